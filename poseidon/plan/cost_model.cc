// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/cost_model.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>

#include "poseidon/base/check.h"
#include "poseidon/plan/lanes.h"
#include "poseidon/plan/schemes.h"
#include "poseidon/plan/send_order.h"

namespace poseidon::plan {
namespace {

double SecondsFor(std::uint64_t bytes, double bytes_per_second) {
  return bytes_per_second > 0 ? static_cast<double>(bytes) / bytes_per_second : 0;
}

double ProductSeconds(double flops, const ClusterSpec& cluster) {
  return cluster.rebuild_flops > 0 ? flops / cluster.rebuild_flops : 0;
}

LayerPlan PlanUnder(Scheme scheme, std::span<const std::uint32_t> rows) {
  LayerPlan layer_plan;
  layer_plan.scheme = scheme;
  layer_plan.measured.rows.assign(rows.begin(), rows.end());
  return layer_plan;
}

// Returns the seconds that a layer waits on its host before and after the network: the shares go into the shared
// memory and the leaders add or concatenate them; the mean, which they write there, is copied out. Where devices
// multiply, the factors of all hosts are written there and copied out instead.
double LocalSeconds(const LayerSpec& layer, const SchemeRow& row, const ClusterSpec& cluster,
                    std::span<const std::uint32_t> rows) {
  if (GoesFromWorkerToWorker(row, layer, cluster)) return 0;
  const auto factor_bytes = [&](std::uint64_t of_rows) { return of_rows * layer.factors->bytes_per_row(layer.dtype); };
  const bool gathered = row.takes_factors && !row.through_shards && layer.is_multiplied_by_device();
  const std::uint64_t all_rows = std::accumulate(rows.begin(), rows.end(), std::uint64_t{0});
  const std::uint16_t leaders = cluster.leaders();
  std::uint64_t most_bytes = 0;  // of one host
  for (const std::vector<std::uint16_t>& ranks : RanksByHost(cluster.host_of_rank)) {
    if (ranks.size() == 1) continue;
    std::uint64_t bytes = gathered ? 2 * factor_bytes(all_rows) : layer.bytes();  // out
    if (!row.takes_factors) {
      // In, but for what a leader adds up itself, and added by all leaders at once.
      bytes += (leaders > 1 ? layer.bytes() - layer.bytes() / leaders : layer.bytes()) + ranks.size() * layer.bytes() / leaders;
    } else {
      for (const std::uint16_t rank : ranks) {
        if (rank < rows.size()) bytes += 2 * factor_bytes(rows[rank]);
      }
    }
    most_bytes = std::max(most_bytes, bytes);
  }
  return SecondsFor(most_bytes, cluster.copy_bytes_per_second);
}

// The least step time with rebuilds: with B the sum of b over all layers and p the lowest rebuilt layer, it is the
// largest, over the rebuilt layers j, of
//   B + min over rebuilt i <= j of (c_i + l_i - sum over k < i of b_k)    the first of them has landed
//     + sum over i <= j of r_i + sum over i >= p of f_i                   what is computed only after that.
// A transfer begins at the end of its own layer's backward, while the backward of the layers below runs. Before the
// first of the rebuilt layers 0..j has landed none of them is rebuilt, and neither p nor a layer above it runs forward.
double RebuildAfterLandingSeconds(std::span<const LayerCost> layers) {
  double below = 0;  // sum of b over layers < j
  double rebuilt = 0;
  double first_landed = std::numeric_limits<double>::infinity();  // counted from the end of backward
  double forward = 0;  // from the lowest rebuilt layer on
  double longest = 0;
  for (const LayerCost& layer : layers) {
    if (layer.rebuild > 0) {
      rebuilt += layer.rebuild;
      first_landed = std::min(first_landed, layer.transfer + layer.latency - below);
      longest = std::max(longest, rebuilt + first_landed);
    }
    if (rebuilt > 0) forward += layer.forward;
    below += layer.backward;
  }
  return rebuilt > 0 ? below + longest + forward : 0;
}

}  // namespace

// Counting from layer 0, with T the step time: the end of layer j's backward and its next forward are
// T - sum over i >= j of (f_i + b_i) seconds apart. In that window the transfers of all
// layers 0..j begin and end, since their gradients come later and their forwards earlier; and after the
// one that ends last come its latency and its rebuild. The window also holds layer j's own path. A
// rebuild competes with forward and backward for the processor, but not before its layer has landed.
// The published sketch of this bound sums over the layers below j instead; chains that are played event by
// event contradict it (docs/decisions/cost-model.md).
double LeastStepSeconds(std::span<const LayerCost> layers) {
  double outside = 0;  // sum of f + b over layers >= j
  for (const LayerCost& layer : layers) outside += layer.forward + layer.backward;
  double least = std::max(ComputeSeconds(layers), RebuildAfterLandingSeconds(layers));
  double transfers = 0;  // sum of c over layers <= j
  double tail = 0;       // the least latency and rebuild of layers <= j
  for (std::size_t j = 0; j < layers.size(); ++j) {
    const LayerCost& layer = layers[j];
    const double own_tail = layer.latency + layer.rebuild;
    transfers += layer.transfer;
    tail = j == 0 ? own_tail : std::min(tail, own_tail);
    least = std::max(least, outside + std::max(transfers + tail, layer.transfer + own_tail));
    outside -= layer.forward + layer.backward;
  }
  return least;
}

// First come, first served: the transfer of layer i begins when its backward and all transfers
// before it are over. Rebuilds follow one another.
double WaitFreeStepSeconds(std::span<const LayerCost> layers) {
  double forward = 0;
  double backward = 0;
  double rebuild = 0;
  double link_free = 0;
  double rebuilt = 0;  // when the rebuilds so far are over
  double finished = 0;
  for (std::size_t i = layers.size(); i-- > 0;) {
    const LayerCost& layer = layers[i];
    forward += layer.forward;
    backward += layer.backward;
    rebuild += layer.rebuild;
    link_free = std::max(link_free, backward) + layer.transfer;
    const double landed = link_free + layer.latency;
    if (layer.rebuild > 0) rebuilt = std::max(rebuilt, landed) + layer.rebuild;
    finished = std::max({finished, landed, rebuilt});
  }
  return forward + std::max(finished, backward + rebuild);
}

double ComputeSeconds(std::span<const LayerCost> layers) {
  double sum = 0;
  for (const LayerCost& layer : layers) sum += layer.forward + layer.backward + layer.rebuild;
  return sum;
}

std::vector<NodeBytes> MachineBytes(const LayerSpec& layer, std::span<const Slice> slices,
                                    Scheme scheme, const ClusterSpec& cluster,
                                    std::span<const std::uint32_t> rows) {
  const SchemeRow& row = RowOf(scheme);
  if (row.through_shards && cluster.servers > 0 && cluster.servers_share_worker_hosts) {
    // A machine with a worker and a server exchanges what a worker with a shard of its own does.
    std::vector<Slice> placed(slices.begin(), slices.end());
    for (Slice& slice : placed) {
      slice.shard = static_cast<std::uint16_t>(slice.shard % cluster.contributors());
    }
    SchemeInput input = InputOf(row, layer, placed, cluster, rows);
    input.servers = 0;
    return AtLeaders(row.payload(input), cluster).workers;
  }
  LayerPayload payload = PayloadOf(layer, slices, PlanUnder(scheme, rows), cluster);
  payload.workers.insert(payload.workers.end(), payload.servers.begin(), payload.servers.end());
  return payload.workers;
}

NodeBytes BusiestMachine(std::span<const NodeBytes> machines) {
  NodeBytes most;
  for (const NodeBytes& machine : machines) {
    most.sent = std::max(most.sent, machine.sent);
    most.received = std::max(most.received, machine.received);
  }
  return most;
}

LayerCost CostOf(const LayerSpec& layer, std::span<const Slice> slices, Scheme scheme,
                 const ClusterSpec& cluster, const LayerMeasurement& measured) {
  // A link carries both directions at once (ClusterSpec::bandwidth), so the fuller one is the transfer.
  const NodeBytes bytes =
      BusiestMachine(MachineBytes(layer, slices, scheme, cluster, measured.rows));
  LayerCost cost{.forward = measured.forward_seconds,
                 .backward = measured.backward_seconds,
                 .transfer = SecondsFor(std::max(bytes.sent, bytes.received), cluster.bandwidth)};
  const SchemeRow& row = RowOf(scheme);
  const bool has_rows = layer.factors.has_value() && !measured.rows.empty();
  const double own_product =
      has_rows ? ProductSeconds(layer.factors->product_flops(*std::max_element(
                                    measured.rows.begin(), measured.rows.end())),
                                cluster)
               : 0;
  if (row.takes_factors && measured.backward_has_weight_product) {
    // The test products and the backward pass are measured apart: the product may come out longer than the pass.
    cost.backward -= std::min(own_product, cost.backward);
  } else if (!row.takes_factors && !measured.backward_has_weight_product) {
    cost.backward += own_product;
  }
  const Products products = row.products(InputOf(row, layer, slices, cluster, measured.rows));
  cost.rebuild = ProductSeconds(products.worker, cluster);
  // A server's product delays the mean but takes no worker's time.
  cost.latency = ProductSeconds(products.server, cluster);
  (cluster.factors_are_flat() ? cost.transfer : cost.latency) += LocalSeconds(layer, row, cluster, measured.rows);
  const std::uint32_t contributors = row.takes_factors ? cluster.factor_contributors() : cluster.contributors();
  const bool leaves = contributors > 1 || (row.through_shards && cluster.servers > 0);
  if (leaves) cost.latency += row.trips * cluster.latency;
  return cost;
}

double JudgedSeconds(const StepPrediction& prediction) {
  // docs/decisions/cost-model.md, "Bytes that hide are not free", has the measured plans behind this number.
  constexpr double kHiddenIsNotFree = 0.03;
  return prediction.step + kHiddenIsNotFree * prediction.link;
}

StepModel::StepModel(std::span<const LayerSpec> layers, std::span<const std::vector<Slice>> slices,
                     const ClusterSpec& cluster, std::span<const LayerMeasurement> measured, bool waits_for_all,
                     Placement placement)
    : cluster_(cluster), waits_for_all_(waits_for_all), forward_order_(ForwardOrder(layers)) {
  POSEIDON_CHECK(slices.size() == layers.size() && measured.size() == layers.size(),
                 "the model needs slices and a measurement for each layer");
  const DividedPayloads divided(layers, cluster, placement);
  const auto choice_of = [&](std::size_t i, Scheme scheme) -> Choice {
    const LayerPayload payload = divided.Of(i, layers[i], slices[i], PlanUnder(scheme, measured[i].rows));
    return Choice{.cost = CostOf(layers[i], slices[i], scheme, cluster, measured[i]),
                  .busiest_worker = BusiestWorker(payload),
                  .workers = payload.workers,
                  .machines = MachineBytes(layers[i], slices[i], scheme, cluster, measured[i].rows)};
  };
  for (std::size_t i = 0; i < layers.size(); ++i) {
    std::vector<Choice>& by_scheme = choices_.emplace_back();
    for (const SchemeRow& row : Schemes()) {
      const bool known = row.scheme == kDense || row.applies(layers[i]);
      by_scheme.push_back(known ? choice_of(i, row.scheme) : Choice{});
    }
    single_worker_seconds_ += cost(i, kDense).forward + cost(i, kDense).backward;
  }
}

const StepModel::Choice& StepModel::choice(std::size_t layer, Scheme scheme) const {
  return choices_[layer][IndexOf(scheme)];
}
const LayerCost& StepModel::cost(std::size_t layer, Scheme scheme) const {
  return choice(layer, scheme).cost;
}
const NodeBytes& StepModel::worker_bytes(std::size_t layer, Scheme scheme) const {
  return choice(layer, scheme).busiest_worker;
}

std::vector<LayerCost> StepModel::Chain(std::span<const Scheme> schemes,
                                        const Speeds& speeds) const {
  POSEIDON_CHECK(schemes.size() == choices_.size(), "a prediction needs a scheme for each layer");
  std::vector<LayerCost> chain;
  chain.reserve(schemes.size());
  std::vector<NodeBytes> machines;
  std::uint64_t before = 0;
  for (const std::size_t i : forward_order_) {
    const LayerCost& chosen = cost(i, schemes[i]);
    const std::vector<NodeBytes>& of_layer = choice(i, schemes[i]).machines;
    machines.resize(std::max(machines.size(), of_layer.size()));
    for (std::size_t m = 0; m < of_layer.size(); ++m) machines[m] = machines[m] + of_layer[m];
    const NodeBytes most = BusiestMachine(machines);
    const std::uint64_t bytes = std::max(most.sent, most.received);
    // On one host no link carries a gradient: its transfer is its copies.
    const double copying = cluster_.factors_are_flat() && !TakesFactors(schemes[i]) ? chosen.transfer : 0;
    // The difference below is not negative: bytes are only added to links, so the busiest one never has fewer.
    chain.push_back({.forward = chosen.forward / speeds.computing,
                     .backward = chosen.backward / speeds.computing,
                     .transfer = SecondsFor(bytes - before, cluster_.bandwidth) / speeds.network + copying,
                     .latency = chosen.latency,
                     .rebuild = chosen.rebuild / speeds.rebuilding});
    before = bytes;
  }
  return chain;
}

StepPrediction StepModel::Predict(std::span<const Scheme> schemes, const Speeds& speeds) const {
  StepPrediction prediction = Bound(schemes, speeds);
  const std::vector<LayerCost> chain = Chain(schemes, speeds);
  const bool rebuilds =
      std::any_of(chain.begin(), chain.end(), [](const LayerCost& cost) { return cost.rebuild > 0; });
  if (!rebuilds || chain.size() > kMostPlayedLayers) return prediction;
  prediction.step = std::max(prediction.step, PlayedStepSeconds(chain, SendOrder(chain)));
  prediction.wait_free = std::max(prediction.wait_free, prediction.step);
  return prediction;
}

StepPrediction StepModel::Bound(std::span<const Scheme> schemes, const Speeds& speeds) const {
  const std::vector<LayerCost> chain = Chain(schemes, speeds);
  std::vector<NodeBytes> workers(cluster_.workers);
  for (std::size_t i = 0; i < schemes.size(); ++i) {
    const std::vector<NodeBytes>& of_layer = choice(i, schemes[i]).workers;
    for (std::size_t w = 0; w < of_layer.size(); ++w) workers[w] = workers[w] + of_layer[w];
  }
  StepPrediction prediction{.step = LeastStepSeconds(chain),
                            .wait_free = WaitFreeStepSeconds(chain),
                            .compute = ComputeSeconds(chain)};
  for (const LayerCost& cost : chain) prediction.link += cost.transfer;
  std::uint64_t most = 0;
  for (const NodeBytes& worker : workers) {
    prediction.busiest_worker.sent = std::max(prediction.busiest_worker.sent, worker.sent);
    prediction.busiest_worker.received =
        std::max(prediction.busiest_worker.received, worker.received);
    most = std::max(most, worker.sent + worker.received);
  }
  // A byte's cost is its sender's and its receiver's together: half of it at each end. The cores
  // can do no more than their time: what computes and what serves the network share them.
  prediction.network_cpu = 0.5 * static_cast<double>(most) * cluster_.cpu_seconds_per_wire_byte;
  if (prediction.network_cpu > 0 && cluster_.cores_per_worker > 0) {
    const double computing = std::min<double>(cluster_.compute_threads, cluster_.cores_per_worker);
    const double busy =
        (prediction.compute * computing + prediction.network_cpu) / cluster_.cores_per_worker;
    // However many cores are idle, a lane serves the network with one thread.
    const double serving = prediction.network_cpu / cluster_.lanes;
    prediction.step = std::max({prediction.step, busy, serving});
    prediction.wait_free = std::max({prediction.wait_free, busy, serving});
  }
  if (waits_for_all_) prediction.step = prediction.wait_free;
  return prediction;
}

}  // namespace poseidon::plan
