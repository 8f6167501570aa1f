// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_EXPLAIN_H_
#define POSEIDON_PLAN_EXPLAIN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "poseidon/plan/layer.h"
#include "poseidon/plan/plan.h"

// A plan for people: what it does, why, what it predicts, and beside it what came true.
namespace poseidon::plan {

// A run's measurements of one layer: counted payload of the worker that reports, and the time from
// handing over its gradient until the mean had landed, per step.
struct LayerOutcome {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  double seconds = 0;
  // The same with the zeros that factors left without.
  std::uint64_t whole_bytes_sent = 0;
  std::uint64_t whole_bytes_received = 0;
};

// A line of headings and a line per layer, aligned, each ended by a newline: layer, shape, rows per
// worker, scheme, bytes each way, transfer and rebuild time, the reason; with `outcomes` (one per
// layer, or none) also counted bytes and measured time. `layers` are those the plan was made for. Where that is wider than
// `width` columns, outcomes and the reason follow each line in lines of their own; so does all but
// name and shape where these are long, and a reason that several layers have is given once.
std::string PlanTable(const Plan& plan, std::span<const LayerSpec> layers,
                      std::span<const LayerOutcome> outcomes = {}, std::size_t width = std::string::npos);

// One line: predicted step time and its parts, speed-up over one worker, bytes saved against the
// key-value scheme everywhere. `measured_step_seconds`, the median, is put beside the prediction where it is above 0.
std::string PlanSummary(const Plan& plan, double measured_step_seconds = 0);

// One line: how many times fewer bytes were sent because factors left without their zeros; empty where none did.
std::string WhatCompressionSaved(std::span<const LayerOutcome> outcomes);

// One line: which change of the cluster would shorten the step most, and to what.
std::string WhatWouldHelp(const Plan& plan, std::span<const LayerSpec> layers);

// The step's seconds with these schemes if one resource were twice as good.
struct Doubled {
  double computing = 0;   // forward and backward
  double rebuilding = 0;  // the product of everybody's factors
  double network = 0;     // its rate
  double latency = 0;     // half of it
  double cores = 0;       // one more core per worker for serving the network
  double copies = 0;      // through the memory of a host
};
Doubled DoubledOf(const Plan& plan, std::span<const LayerSpec> layers);

// One line: which resource bounds the step, how much faster the step is with twice as much of it,
// and what twice as much of the others does.
std::string WhatBounds(const Plan& plan, std::span<const LayerSpec> layers);

// One line: at which share of the network's rate transfers are spread over the step (SpreadRate); empty where they are not.
std::string HowSpread(const Plan& plan, std::span<const LayerSpec> layers);

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_EXPLAIN_H_
