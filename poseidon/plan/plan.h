// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_PLAN_H_
#define POSEIDON_PLAN_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "poseidon/base/strong_id.h"
#include "poseidon/plan/cluster.h"
#include "poseidon/plan/scheme.h"

namespace poseidon::plan {

// The step from which the plan that is made of measurements holds, unless a job says another.
inline constexpr std::uint64_t kFinalPlanStep = 10;

// How one layer is synchronised, why, and what that is predicted to take per step.
struct LayerPlan {
  LayerId layer;  // its place in the declaration, and in Plan::layers
  Scheme scheme = Scheme::kKeyValue;
  bool forced = false;        // by the user or a plan file
  std::string reason;         // one clause with its numbers
  LayerMeasurement measured;  // what the decision rests on

  // Payload of the busiest worker, exact where the rows are as measured (plan/payload.h has every
  // worker's and server's). The maxima may be different workers'.
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  double transfer_seconds = 0;  // on the busiest link, or of copies on one host
  double rebuild_seconds = 0;   // the product of all workers' factors
  // Its place among layers whose bytes wait for the same link, 0 leaves first (plan/send_order.h).
  std::uint32_t send_position = 0;

  friend bool operator==(const LayerPlan&, const LayerPlan&) = default;
};

// The scheme of every layer from one step on, with reasons and predictions. A value: members that hold
// equal plans act alike. The predictions are 0 in a provisional plan, where nothing was measured.
struct Plan {
  PlanEpoch epoch;   // 0: provisional
  Step switch_step;  // the first step that follows this plan
  Policy policy = Policy::kTime;
  ClusterSpec cluster;
  std::vector<LayerPlan> layers;  // in declaration order, every declared layer

  double step_seconds = 0;           // predicted with these schemes (StepModel::Predict)
  double compute_seconds = 0;        // of it, without any waiting: forward, backward, rebuilds
  double single_worker_seconds = 0;  // a step of one worker without a network
  double speedup = 0;                // workers * single_worker_seconds / step_seconds
  double wfbp_seconds = 0;        // if gradients overlapped with backward only, in order of arrival
  double dense_step_seconds = 0;  // the same with the key-value scheme for every layer
  std::uint64_t bytes_sent = 0;        // payload of the worker that sends most
  std::uint64_t dense_bytes_sent = 0;  // likewise, with the key-value scheme everywhere

  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_PLAN_H_
