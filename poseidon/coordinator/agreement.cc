// SPDX-License-Identifier: Apache-2.0
#include "poseidon/coordinator/agreement.h"

#include <algorithm>
#include <string>

#include "poseidon/base/lesser.h"
#include "poseidon/tensor/sum.h"

namespace poseidon::coordinator {
namespace {

std::string Worker(std::size_t rank) { return "worker " + std::to_string(rank); }

std::string Shape(const plan::LayerSpec& layer) {
  return layer.shape + " of " + std::string(NameOf(layer.dtype)) + " (" +
         std::to_string(layer.elements) + " elements" +
         (layer.is_table() ? ", a table)" : layer.factors ? ", with factors)" : ", without factors)");
}

// Where a layer's product is made is no part of the net.
bool IsSame(plan::LayerSpec a, plan::LayerSpec b) {
  for (plan::LayerSpec* const layer : {&a, &b}) {
    if (layer->factors) layer->factors->by_device = false;
  }
  return a == b;
}

Status CompareLayers(const std::vector<plan::LayerSpec>& first,
                     const std::vector<plan::LayerSpec>& other, std::size_t rank) {
  const std::size_t layers = std::min(first.size(), other.size());
  for (std::size_t i = 0; i < layers; ++i) {
    if (IsSame(first[i], other[i])) continue;
    if (first[i].name != other[i].name) {
      return InvalidArgument("the nets of the workers differ: layer " + std::to_string(i) + " is '" +
                             other[i].name + "' on " + Worker(rank) + " and '" + first[i].name +
                             "' on worker 0");
    }
    return InvalidArgument("the nets of the workers differ: layer '" + first[i].name + "' is " +
                           Shape(other[i]) + " on " + Worker(rank) + " and " + Shape(first[i]) +
                           " on worker 0");
  }
  if (first.size() != other.size()) {
    const std::string& extra =
        first.size() > other.size() ? first[layers].name : other[layers].name;
    return InvalidArgument("the nets of the workers differ: " + Worker(rank) + " has " +
                           std::to_string(other.size()) + " learnable layers and worker 0 has " +
                           std::to_string(first.size()) + "; only one of them has '" + extra + "'");
  }
  return OkStatus();
}

}  // namespace

Result<Agreement> Agree(std::span<const wire::Declare> by_rank, std::uint32_t servers) {
  const wire::Declare& first = by_rank[0];
  // Only worker 0's layers are validated, because the others' have to equal them.
  POSEIDON_RETURN_IF_ERROR(plan::Validate(first.layers).WithPrefix("worker 0"));
  for (const plan::LayerSpec& layer : first.layers) {
    if (HasSum(layer.dtype)) continue;
    return Unimplemented("layer '" + layer.name + "' is of " + std::string(NameOf(layer.dtype)) +
                         ", expected f32, f64 or i64");
  }
  Agreement agreement;
  agreement.layers = first.layers;
  agreement.products_agree.assign(first.layers.size(), true);
  agreement.cluster.workers = static_cast<std::uint32_t>(by_rank.size());
  agreement.cluster.servers = servers;
  agreement.cluster.cores_per_worker = first.cores;
  agreement.cluster.compute_threads = first.compute_threads;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const wire::Declare& own = by_rank[rank];
    POSEIDON_RETURN_IF_ERROR(CompareLayers(first.layers, own.layers, rank));
    for (std::size_t i = 0; i < first.layers.size(); ++i) {
      if (own.product_hashes[i] != first.product_hashes[i]) agreement.products_agree[i] = false;
      // Of one worker's device is enough: its product is not the host's, so that the test products differ.
      if (own.layers[i].is_multiplied_by_device()) agreement.layers[i].factors->by_device = true;
    }
    plan::ClusterSpec& cluster = agreement.cluster;
    // A step is synchronous and waits for its slowest worker, so of each number the worst counts: the plan is made for
    // it. A worker that has not measured says 0, which is unknown and not slow.
    cluster.bandwidth = LesserRate(cluster.bandwidth, own.bandwidth);
    cluster.latency = std::max(cluster.latency, own.latency);
    cluster.copy_bytes_per_second =
        LesserRate(cluster.copy_bytes_per_second, own.copy_bytes_per_second);
    cluster.rebuild_flops = LesserRate(cluster.rebuild_flops, own.rebuild_flops);
    cluster.cores_per_worker = std::min(cluster.cores_per_worker, own.cores);
    cluster.cpu_seconds_per_wire_byte =
        std::max(cluster.cpu_seconds_per_wire_byte, own.cpu_seconds_per_wire_byte);
    cluster.compute_threads = std::min(cluster.compute_threads, own.compute_threads);
  }
  return agreement;
}

std::vector<plan::LayerMeasurement> Combine(std::span<const wire::Measured> by_rank,
                                            std::span<const plan::LayerSpec> layers,
                                            const plan::Plan& measured_under) {
  std::vector<plan::LayerMeasurement> combined(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    plan::LayerMeasurement& m = combined[i];
    // A layer that was sent as factors left out its weight product while it was measured. Slices would need it, so
    // the planner adds it (plan/cluster.h).
    m.backward_has_weight_product = !plan::TakesFactors(measured_under.layers[i].scheme);
    for (const wire::Measured& own : by_rank) {
      m.forward_seconds = std::max(m.forward_seconds, own.layers[i].forward_seconds);
      m.backward_seconds = std::max(m.backward_seconds, own.layers[i].backward_seconds);
      if (layers[i].factors) m.rows.push_back(own.layers[i].rows);
    }
  }
  return combined;
}

}  // namespace poseidon::coordinator
