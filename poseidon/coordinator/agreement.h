// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_COORDINATOR_AGREEMENT_H_
#define POSEIDON_COORDINATOR_AGREEMENT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "poseidon/base/result.h"
#include "poseidon/plan/cluster.h"
#include "poseidon/plan/layer.h"
#include "poseidon/wire/messages.h"

// Combines what all workers sent about the model and the cluster: pure functions.
namespace poseidon::coordinator {

struct Agreement {
  std::vector<plan::LayerSpec> layers;
  // By layer: every worker's test product has the same bits (always true without factors).
  std::vector<bool> products_agree;
  // Measured constants: the slowest link, the slowest product, the fewest cores.
  plan::ClusterSpec cluster;
};

// `by_rank` holds every worker's declaration. A difference is kInvalidArgument naming the layer,
// the worker that differs from worker 0, and both shapes.
Result<Agreement> Agree(std::span<const wire::Declare> by_rank, std::uint32_t servers);

// The measurements the planner wants: per layer the slowest worker's times and every rank's rows.
std::vector<plan::LayerMeasurement> Combine(std::span<const wire::Measured> by_rank,
                                            std::span<const plan::LayerSpec> layers,
                                            const plan::Plan& measured_under);

}  // namespace poseidon::coordinator

#endif  // POSEIDON_COORDINATOR_AGREEMENT_H_
