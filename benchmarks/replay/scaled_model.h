// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BENCHMARKS_REPLAY_SCALED_MODEL_H_
#define POSEIDON_BENCHMARKS_REPLAY_SCALED_MODEL_H_

#include <cstdint>
#include <vector>

#include "poseidon/plan/cluster.h"
#include "poseidon/plan/layer.h"
#include "tools/profile/profile.h"

// A model made smaller by one factor, for a network made slower by the same: transfers take as long as
// at full size, and two cores can carry them.
namespace poseidon::replay {

struct ScaledLayer {
  plan::LayerSpec spec;
  double forward_seconds = 0;   // not scaled
  double backward_seconds = 0;  // with the product that makes the weight gradient
  double product_seconds = 0;   // of that product, for this worker's rows alone
  std::uint32_t rows = 0;
};

struct ScaledModel {
  std::vector<ScaledLayer> layers;  // in forward order
  // FLOP/s at which products of scaled factors take as long as those of whole ones.
  double product_flops = 0;  // 0: they take no time

  std::vector<plan::LayerSpec> specs() const;
  std::vector<plan::LayerMeasurement> measurements(std::uint32_t workers) const;
  double step_seconds() const;
};

// Divides the bytes of every scheme by `scale` >= 1: elements by it; of factor layers the outputs,
// inputs and rows by its root, so that M N and K (M + N) shrink alike. K M N shrinks by scale^1.5, so
// does the rate of products. Every number stays at least 1.
ScaledModel Scale(const profile::Profile& profile, double scale);

// The model as a store of key-value pairs sees it: every layer not in `whole` cut into pairs of at most
// `pair_elements`, each of them a layer of its own without factors. The first pair carries the forward
// pass, the last one, which a backward pass meets first, the backward pass: all pairs are ready when the
// layer is. Pre: pair_elements > 0, whole.size() == layers.size().
ScaledModel CutIntoPairs(const ScaledModel& model, std::uint64_t pair_elements,
                         const std::vector<bool>& whole);

}  // namespace poseidon::replay

#endif  // POSEIDON_BENCHMARKS_REPLAY_SCALED_MODEL_H_
