// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_TEST_CHAIN_H_
#define POSEIDON_PLAN_TEST_CHAIN_H_

#include <cmath>
#include <random>
#include <vector>

#include "poseidon/plan/cost_model.h"

namespace poseidon::plan {

// For tests: up to twenty layers, from all computing to all network.
inline std::vector<LayerCost> RandomChain(std::mt19937_64& random, bool rebuilds = false) {
  std::uniform_real_distribution<double> unit(0, 1);
  std::vector<LayerCost> layers(1 + random() % 20);
  const double network = std::exp(4 * unit(random) - 2);
  for (LayerCost& layer : layers) {
    layer.forward = unit(random);
    layer.backward = 2 * unit(random);
    layer.transfer = random() % 5 == 0 ? 0 : network * std::pow(unit(random), 3) * 6;
    if (!rebuilds) continue;
    layer.latency = 0.1 * unit(random);
    layer.rebuild = random() % 2 == 0 ? 0 : unit(random);
  }
  return layers;
}

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_TEST_CHAIN_H_
