// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_COST_MODEL_H_
#define POSEIDON_PLAN_COST_MODEL_H_

#include <span>
#include <vector>

#include "poseidon/plan/cluster.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/payload.h"
#include "poseidon/plan/scheme.h"

// Predicts how long a training step takes. Seconds throughout; pure functions.
//
// One step is a chain: forward runs layer 0..L-1, backward L-1..0. A layer's transfer may begin
// when its backward ends and must be over, and its rebuild done, before its next forward. The next
// forward waits for nothing else, so layer 0 has the shortest window and the windows are nested.
namespace poseidon::plan {

// The seconds that one layer costs under the scheme chosen for it.
struct LayerCost {
  double forward = 0;
  double backward = 0;
  // That the busiest link is busy with it; or on one host the thread that copies and adds, one layer after another
  // (plan::FactorsAreFlat).
  double transfer = 0;
  double latency = 0;   // that its bytes are under way, or copied on one of several hosts, whatever the link does
  double rebuild = 0;   // computing after the transfer, before the next forward
};

// Returns the least step time of equal workers for this chain, on a network that can divide its time freely
// among transfers. With f, b, c, l and r for the seconds of LayerCost it is the largest of
//   sum over i of (f_i + b_i + r_i)                                                  all computing;
//   sum over i >= j of (f_i + b_i) + sum over i <= j of c_i + min over i <= j of (l_i + r_i), for each j:
//                                   the transfers between the backward and the next forward of layer j;
//   sum over i >= j of (f_i + b_i) + c_j + l_j + r_j, for each j                     one layer's own path;
//   what is left to compute when the first of the layers to rebuild has landed.
// Without rebuilds and latency it is exact, and reached by serving the lowest layer first, preempting; with
// them it is a lower bound.
double LeastStepSeconds(std::span<const LayerCost> layers);

// The step time when transfers overlap with backward only and leave in order of arrival, and the
// next step begins when all are over: wait-free backpropagation without the next forward's help.
double WaitFreeStepSeconds(std::span<const LayerCost> layers);

// Forward, backward and rebuilds of all layers.
double ComputeSeconds(std::span<const LayerCost> layers);

// Each machine's traffic: the workers' by rank, then the dedicated servers'. A server on a worker's machine
// shares its link, and what these two send each other does not use it: then machines are the workers'.
std::vector<NodeBytes> MachineBytes(const LayerSpec& layer, std::span<const Slice> slices,
                                    Scheme scheme, const ClusterSpec& cluster,
                                    std::span<const std::uint32_t> rows);
// The traffic of the busiest of them, each direction's maximum over machines.
NodeBytes BusiestMachine(std::span<const NodeBytes> machines);

// Cost of `layer` under `scheme`. Where factors are handed over the layer's own product is not
// computed (its share of the measured backward is taken off; the slowest worker is taken to have
// the most rows), and what the worker multiplies of everybody's rows is the rebuild. Products take
// no time where their rate is unknown.
LayerCost CostOf(const LayerSpec& layer, std::span<const Slice> slices, Scheme scheme,
                 const ClusterSpec& cluster, const LayerMeasurement& measured);

// The predicted step of one set of decisions.
struct StepPrediction {
  double step = 0;         // of a chain that is played, or longer where the cores have more work
  double wait_free = 0;    // WaitFreeStepSeconds, likewise
  double compute = 0;      // ComputeSeconds
  double link = 0;         // that the busiest link is busy, hidden behind computing or not
  double network_cpu = 0;  // core seconds that the busiest worker spends on sending and receiving
  NodeBytes busiest_worker = {};  // the whole step's, of the worker with most

  friend bool operator==(const StepPrediction&, const StepPrediction&) = default;
};

// Returns the number by which plans are compared: the step, and a thirty-third of the link's time. The
// step is a bound that only a link without jitter and bursts reaches, and a plan misses it by more the
// more it has to hide: a plan that sends a third of the bytes for one hundredth more computing is the
// faster one.
double JudgedSeconds(const StepPrediction& prediction);

// How many times as fast as measured each resource is taken to be.
struct Speeds {
  double computing = 1;   // forward and backward
  double rebuilding = 1;  // the product of everybody's factors
  double network = 1;     // its rate, not its latency
};

// The cost of each layer under each scheme, computed once, and the prediction of any choice.
class StepModel {
 public:
  // All spans have one entry per layer in declaration order; the model keeps no reference to them. `waits_for_all`: the next
  // step begins when all transfers are over, so the step is the wait-free one. `placement`: of `slices`.
  StepModel(std::span<const LayerSpec> layers, std::span<const std::vector<Slice>> slices,
            const ClusterSpec& cluster, std::span<const LayerMeasurement> measured, bool waits_for_all = false,
            Placement placement = Placement::kEven);

  // `schemes`: one per layer, that applies to it or is kDense; factors only where its rows are known.
  //
  // The step is LeastStepSeconds where nothing is rebuilt. That bound is not reached where much is,
  // and a plan that is good by it alone may be slow: there a step is played (plan/send_order.h), in
  // the order that SendOrder finds.
  StepPrediction Predict(std::span<const Scheme> schemes, const Speeds& speeds = {}) const;
  // The same with LeastStepSeconds in any case: never more than Predict returns, and faster to compute.
  StepPrediction Bound(std::span<const Scheme> schemes, const Speeds& speeds = {}) const;
  // The costs in forward order, of the layers in `forward_order` (declaration indices). A transfer is what its
  // layer adds to the time of the link that is busiest with it and the layers before it. Small tensors are whole
  // at one owner: the link that is busiest with one is not so with the next, and no link carries the sum of what
  // each layer's busiest does.
  std::vector<LayerCost> Chain(std::span<const Scheme> schemes, const Speeds& speeds = {}) const;
  const std::vector<std::size_t>& forward_order() const { return forward_order_; }
  // The layer's cost under the scheme, by declaration index.
  const LayerCost& cost(std::size_t layer, Scheme scheme) const;
  const NodeBytes& worker_bytes(std::size_t layer, Scheme scheme) const;
  // Forward and backward of all layers with their own products, without a network.
  double single_worker_seconds() const { return single_worker_seconds_; }

 private:
  struct Choice {
    LayerCost cost;
    NodeBytes busiest_worker;
    std::vector<NodeBytes> workers;
    std::vector<NodeBytes> machines;
  };
  const Choice& choice(std::size_t layer, Scheme scheme) const;

  ClusterSpec cluster_;
  bool waits_for_all_;
  std::vector<std::size_t> forward_order_;
  std::vector<std::vector<Choice>> choices_;  // by layer and IndexOf(scheme); empty where it does not apply
  double single_worker_seconds_ = 0;
};

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_COST_MODEL_H_
