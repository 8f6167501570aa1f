// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "poseidon/plan/test_chain.h"

namespace poseidon::plan {
namespace {

// The oracle: steps played event by event. One processor computes forward 0..L-1 and backward
// L-1..0 again and again; one link serves the transfers that are ready, in the order given; layer
// i's next forward waits for its transfer, its latency and its rebuild, or, with a barrier, for
// everyone's. While it would wait, the processor does another layer's rebuild if one is possible.
class ChainPlay {
 public:
  enum class Order { kLowestFirst, kArrival };
  ChainPlay(std::vector<LayerCost> layers, Order order, bool barrier)
      : layers_(std::move(layers)), order_(order), barrier_(barrier) {}

  // The mean step time after the first steps.
  double SteadyStep() {
    constexpr int kWarmUp = 25;
    constexpr int kMeasured = 12;
    double begin = 0;
    for (int step = 0; step < kWarmUp + kMeasured; ++step) {
      if (step == kWarmUp) begin = now_;
      PlayStep();
    }
    return (now_ - begin) / kMeasured;
  }

 private:
  struct Pending {
    double left = 0;     // of the transfer
    double arrived = 0;  // when its last byte was there
    bool rebuilt = true;
  };

  void PlayStep() {
    const std::size_t count = layers_.size();
    for (std::size_t i = 0; barrier_ && i < count; ++i) Await(i);
    for (std::size_t i = 0; i < count; ++i) {
      Await(i);
      PassTime(layers_[i].forward);
    }
    for (std::size_t i = count; i-- > 0;) {
      PassTime(layers_[i].backward);
      pending_[i] = {.left = layers_[i].transfer, .arrived = now_, .rebuilt = false};
      queue_.push_back(i);
      if (layers_[i].transfer > 0) pending_[i].arrived = kNever;
    }
  }
  bool Arrived(std::size_t i) const {
    return pending_[i].arrived + layers_[i].latency <= now_ * (1 + 1e-15);
  }
  void Await(std::size_t i) {
    while (!pending_[i].rebuilt) {
      std::size_t next = layers_.size();
      if (Arrived(i)) {
        next = i;
      } else {
        for (std::size_t k = 0; k < layers_.size() && next == layers_.size(); ++k) {
          if (!pending_[k].rebuilt && Arrived(k)) next = k;
        }
      }
      if (next < layers_.size()) {
        pending_[next].rebuilt = true;
        PassTime(layers_[next].rebuild);
      } else {
        PassTime(NextArrival() - now_);
      }
    }
  }
  double NextArrival() const {
    double next = kNever;
    if (const std::size_t served = Served(); served < layers_.size()) {
      next = now_ + pending_[served].left;
    }
    for (std::size_t k = 0; k < layers_.size(); ++k) {
      if (!pending_[k].rebuilt && pending_[k].arrived < kNever) {
        const double at = pending_[k].arrived + layers_[k].latency;
        if (at > now_) next = std::min(next, at);
      }
    }
    return next;
  }
  std::size_t Served() const {
    std::size_t best = layers_.size();
    for (const std::size_t i : queue_) {
      if (order_ == Order::kArrival) return i;
      best = std::min(best, i);
    }
    return best;
  }
  void PassTime(double seconds) {
    const double until = now_ + seconds;
    while (now_ < until) {
      const std::size_t served = Served();
      if (served == layers_.size()) break;
      Pending& transfer = pending_[served];
      const double end = now_ + transfer.left;
      if (end > until) {
        transfer.left -= until - now_;
        break;
      }
      now_ = end;
      transfer.left = 0;
      transfer.arrived = end;
      std::erase(queue_, served);
    }
    now_ = until;
    // What needs no link is there at once.
    std::erase_if(queue_, [&](std::size_t i) { return pending_[i].left <= 0; });
  }

  static constexpr double kNever = 1e300;
  std::vector<LayerCost> layers_;
  Order order_;
  bool barrier_;
  std::vector<Pending> pending_ = std::vector<Pending>(layers_.size());
  std::vector<std::size_t> queue_;
  double now_ = 0;
};

TEST(LeastStepSeconds, EqualsAPlayedStepOnRandomChains) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 1500; ++i) {
    const auto chain = RandomChain(random);
    const double played = ChainPlay(chain, ChainPlay::Order::kLowestFirst, false).SteadyStep();
    ASSERT_NEAR(LeastStepSeconds(chain) / played, 1, 1e-5) << "chain " << i;
  }
}

TEST(WaitFreeStepSeconds, EqualsAPlayedStepOnRandomChains) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 1500; ++i) {
    const auto chain = RandomChain(random);
    const double played = ChainPlay(chain, ChainPlay::Order::kArrival, true).SteadyStep();
    ASSERT_NEAR(WaitFreeStepSeconds(chain) / played, 1, 1e-5) << "chain " << i;
    ASSERT_GE(WaitFreeStepSeconds(chain), LeastStepSeconds(chain) * (1 - 1e-9));
  }
}

TEST(LeastStepSeconds, HasATermForEachThingThatCanBind) {
  // All computing.
  std::vector<LayerCost> chain = {{.forward = 1, .backward = 2}, {.forward = 3, .backward = 4}};
  chain[1].rebuild = 5;
  EXPECT_DOUBLE_EQ(LeastStepSeconds(chain), 15);
  // The first layer's transfer is always exposed.
  chain[0].transfer = 7;
  EXPECT_DOUBLE_EQ(LeastStepSeconds(chain), 17);
  // All bytes, and the last layer's compute.
  chain[1].transfer = 20;
  chain[1].rebuild = 0;
  EXPECT_DOUBLE_EQ(LeastStepSeconds(chain), 7 + 20 + 7);
  // One layer's own path: c + latency + r between its backward and its forward.
  chain[0].transfer = 0;
  chain[1].latency = 0.5;
  chain[1].rebuild = 5;
  EXPECT_DOUBLE_EQ(LeastStepSeconds(chain), 3 + 4 + 20 + 0.5 + 5);
  // Both are rebuilt, the upper one first: it lands 6 s after its backward, of which the lower one's
  // backward hides 2.
  chain = {{.forward = 1, .backward = 2, .transfer = 9, .rebuild = 5},
           {.forward = 3, .backward = 4, .transfer = 5.5, .latency = 0.5, .rebuild = 10}};
  EXPECT_DOUBLE_EQ(LeastStepSeconds(chain), 4 + 6 + 10 + 5 + 1 + 3);
  // A lower layer that is not rebuilt runs forward meanwhile.
  chain.insert(chain.begin(), {.forward = 4, .backward = 0});
  EXPECT_DOUBLE_EQ(LeastStepSeconds(chain), 4 + 6 + 10 + 5 + 1 + 3);
}

TEST(LeastStepSeconds, IsALowerBoundWithRebuildsAndLatency) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> unit(0, 1);
  double worst = 1;
  double sum = 0;
  constexpr int kChains = 2000;
  for (int i = 0; i < kChains; ++i) {
    auto chain = RandomChain(random);
    for (LayerCost& layer : chain) {
      layer.latency = 0.05 * unit(random);
      if (random() % 3 == 0) layer.rebuild = 2 * unit(random);
    }
    const double played = ChainPlay(chain, ChainPlay::Order::kLowestFirst, false).SteadyStep();
    const double ratio = played / LeastStepSeconds(chain);
    ASSERT_GE(ratio, 1 - 1e-9) << "chain " << i;
    ASSERT_GE(WaitFreeStepSeconds(chain), LeastStepSeconds(chain) * (1 - 1e-9)) << "chain " << i;
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  RecordProperty("mean_ratio", std::to_string(sum / kChains));
  EXPECT_LT(sum / kChains, 1.03) << "worst " << worst;
}

LayerSpec FullyConnected(std::uint64_t outputs, std::uint64_t inputs) {
  return {.name = "fc",
          .shape = "",
          .elements = outputs * inputs,
          .factors = FactorShape{outputs, inputs, false}};
}

TEST(CostOf, ChargesTheRebuildAndDropsTheOwnProduct) {
  const LayerSpec layer = FullyConnected(100, 200);
  ClusterSpec cluster;
  cluster.workers = 4;
  cluster.bandwidth = 1e6;
  cluster.latency = 1e-3;
  cluster.rebuild_flops = 2e6;  // 0.02 s per row
  const LayerMeasurement measured{
      .forward_seconds = 1, .backward_seconds = 2, .rows = {10, 20, 10, 10}};
  const auto slices = MakeSlices(layer.elements, layer.dtype, 4, 0);

  const LayerCost dense = CostOf(layer, slices, Scheme::kKeyValue, cluster, measured);
  EXPECT_DOUBLE_EQ(dense.backward, 2);
  EXPECT_DOUBLE_EQ(dense.rebuild, 0);
  EXPECT_NEAR(dense.transfer, 2 * 80e3 * 3 / 4 / 1e6, 1e-3);
  EXPECT_DOUBLE_EQ(dense.latency, 2e-3);

  const LayerCost factors = CostOf(layer, slices, Scheme::kFactorBroadcast, cluster, measured);
  EXPECT_DOUBLE_EQ(factors.backward, 2 - 20 * 0.02);
  EXPECT_DOUBLE_EQ(factors.rebuild, 50 * 0.02);
  EXPECT_DOUBLE_EQ(factors.transfer, 20 * 3 * 300 * 4 / 1e6);  // rank 1 sends most
  EXPECT_DOUBLE_EQ(factors.latency, 1e-3);

  // Measured while it broadcast factors: the product comes on top for the key-value scheme.
  LayerMeasurement without = measured;
  without.backward_has_weight_product = false;
  EXPECT_DOUBLE_EQ(CostOf(layer, slices, Scheme::kKeyValue, cluster, without).backward, 2.4);
  EXPECT_DOUBLE_EQ(CostOf(layer, slices, Scheme::kFactorBroadcast, cluster, without).backward, 2);
}

// The owners multiply, each for its share of the outputs: a worker for a quarter of 50 rows' product, or a server for
// half of it, which takes no worker's time and delays the mean.
TEST(CostOf, AnOwnerMultipliesForItsSlice) {
  const LayerSpec layer = FullyConnected(100, 200);
  ClusterSpec cluster{.workers = 4, .bandwidth = 1e6, .latency = 1e-3, .rebuild_flops = 2e6};
  const LayerMeasurement measured{
      .forward_seconds = 1, .backward_seconds = 2, .rows = {10, 20, 10, 10}};
  const LayerCost at_workers = CostOf(layer, {}, Scheme::kFactorScatter, cluster, measured);
  EXPECT_DOUBLE_EQ(at_workers.backward, 2 - 20 * 0.02);
  EXPECT_DOUBLE_EQ(at_workers.rebuild, 50 * 0.02 / 4);
  EXPECT_DOUBLE_EQ(at_workers.transfer, 3 * (20 * (25 + 200) + 25 * 200) * 4 / 1e6);  // rank 1 sends most
  EXPECT_DOUBLE_EQ(at_workers.latency, 2e-3);

  cluster.servers = 2;
  const LayerCost at_servers = CostOf(layer, {}, Scheme::kFactorScatter, cluster, measured);
  EXPECT_DOUBLE_EQ(at_servers.backward, 2 - 20 * 0.02);
  EXPECT_DOUBLE_EQ(at_servers.rebuild, 0);
  EXPECT_DOUBLE_EQ(at_servers.transfer, 4 * 50 * 200 * 4 / 1e6);  // each server's slice to four workers
  EXPECT_DOUBLE_EQ(at_servers.latency, 2e-3 + 50 * 0.02 / 2);
}

TEST(BusiestMachine, DedicatedServersAreNodesOfTheirOwnOrShareALink) {
  const LayerSpec layer = FullyConnected(160, 100);
  ClusterSpec cluster;
  cluster.workers = 8;
  cluster.servers = 2;
  const auto slices = MakeSlices(layer.elements, layer.dtype, 2, 0);
  // A server of half the layer serves eight workers.
  EXPECT_EQ(BusiestMachine(MachineBytes(layer, slices, Scheme::kKeyValue, cluster, {})),
            (NodeBytes{256'000, 256'000}));
  // On a worker's machine: MN (P + S - 2) / S each way.
  cluster.servers_share_worker_hosts = true;
  EXPECT_EQ(BusiestMachine(MachineBytes(layer, slices, Scheme::kKeyValue, cluster, {})),
            (NodeBytes{64'000 * 8 / 2, 64'000 * 8 / 2}));
  // Four workers on each of two hosts: a machine is its leader's, for either scheme.
  cluster.host_of_rank = {0, 0, 0, 0, 1, 1, 1, 1};
  const std::vector<std::uint32_t> rows(8, 1);
  const auto dense = MachineBytes(layer, slices, Scheme::kKeyValue, cluster, rows);
  const auto factors = MachineBytes(layer, slices, Scheme::kFactorBroadcast, cluster, rows);
  for (const std::size_t machine : {0u, 4u}) {
    EXPECT_EQ(dense[machine].sent, 64'000u);
    EXPECT_EQ(factors[machine].sent, 4 * 260 * sizeof(float));
  }
}

// A worker reports its rows in 32 bits, and twice as many bytes of them move on its host.
TEST(CostModel, RowsThatFill32BitsAreCopiedTwiceAllTheSame) {
  const LayerSpec layer{.name = "fc", .elements = 2, .factors = FactorShape{2, 1, false}};
  ClusterSpec cluster;
  cluster.workers = 3;
  cluster.host_of_rank = {0, 0, 1};
  cluster.copy_bytes_per_second = 1;
  LayerMeasurement measured;
  measured.rows = {std::uint32_t{1} << 31, 0, 0};
  const LayerCost cost = CostOf(layer, {}, Scheme::kFactorBroadcast, cluster, measured);
  EXPECT_EQ(cost.latency, 2.0 * 2147483648.0 * 3 * sizeof(float) + 2 * sizeof(float));
}

// Three biases of 1 kB, each whole at another of three workers, who sends and receives 2 kB for it and 1 kB for
// either of the others.
TEST(StepModel, NoLinkCarriesWhatEachSmallTensorsOwnerDoes) {
  std::vector<LayerSpec> layers;
  for (std::uint32_t i = 0; i < 3; ++i) {
    layers.push_back({.name = std::to_string(i), .elements = 250, .forward_position = i});
  }
  ClusterSpec cluster;
  cluster.workers = 3;
  cluster.bandwidth = 1000;
  const StepModel model(layers, AssignSlices(layers, 3), cluster, std::vector<LayerMeasurement>(3));
  const std::vector<Scheme> dense(3, Scheme::kKeyValue);
  EXPECT_DOUBLE_EQ(model.Predict(dense).link, 4);
  EXPECT_DOUBLE_EQ(model.Predict(dense).step, 4);
  EXPECT_EQ(model.Predict(dense).busiest_worker, (NodeBytes{4000, 4000}));
  EXPECT_DOUBLE_EQ(model.cost(0, Scheme::kKeyValue).transfer, 2);
}

// Worked out by hand: f = 1, 2; b = 2, 4; 3 MB and 6 MB of gradient on 3 workers, which is 4 MB and
// 8 MB each way, at 1 MB/s.
TEST(StepModel, PredictsTwoLayersAsByHand) {
  const std::vector<LayerSpec> layers = {
      {.name = "a", .elements = 750'000},
      {.name = "b", .elements = 1'500'000, .forward_position = 1}};
  ClusterSpec cluster;
  cluster.workers = 3;
  cluster.bandwidth = 1e6;
  const auto slices = AssignSlices(layers, 3);
  const std::vector<LayerMeasurement> measured = {{.forward_seconds = 1, .backward_seconds = 2},
                                                  {.forward_seconds = 2, .backward_seconds = 4}};
  const StepModel model(layers, slices, cluster, measured);
  const std::vector<Scheme> schemes(2, Scheme::kKeyValue);
  const StepPrediction now = model.Predict(schemes);
  EXPECT_DOUBLE_EQ(now.compute, 9);
  // Either 9 + 4, or 4 + 8 and the last layer's 2 + 4: 18.
  EXPECT_DOUBLE_EQ(now.step, 18);
  // Backward of b ends at 4, its transfer at 12, that of a at 16, and 3 of forward follow.
  EXPECT_DOUBLE_EQ(now.wait_free, 19);
  // 9 + 2 against 6 + 6.
  EXPECT_DOUBLE_EQ(model.Predict(schemes, {.network = 2}).step, 12);
  // 4.5 + 4 against 12 + 3.
  EXPECT_DOUBLE_EQ(model.Predict(schemes, {.computing = 2}).step, 15);
  EXPECT_DOUBLE_EQ(model.Predict(schemes, {.rebuilding = 2}).step, 18);
}

TEST(StepModel, CoresDoNoMoreThanTheirTime) {
  const LayerSpec layer{.name = "l", .shape = "", .elements = 1'000'000};
  ClusterSpec cluster;
  cluster.workers = 2;
  cluster.cpu_seconds_per_wire_byte = 1e-6;
  const std::vector<LayerSpec> layers = {layer};
  const auto slices = AssignSlices(layers, 2);
  const std::vector<LayerMeasurement> measured = {{.forward_seconds = 1, .backward_seconds = 2}};
  const std::vector<Scheme> schemes = {Scheme::kKeyValue};
  const auto predict = [&] {
    return StepModel(layers, slices, cluster, measured).Predict(schemes);
  };
  // 4 MB each way and 1 us per byte: 4 core seconds, on the core that computes for 3.
  EXPECT_DOUBLE_EQ(predict().network_cpu, 4);
  EXPECT_DOUBLE_EQ(predict().step, 7);
  cluster.cores_per_worker = 2;  // one to spare, which one lane's thread keeps busy for all of the 4
  EXPECT_DOUBLE_EQ(predict().step, 4);
  cluster.lanes = 2;
  EXPECT_DOUBLE_EQ(predict().step, 3.5);
  cluster.cores_per_worker = 4;
  EXPECT_DOUBLE_EQ(predict().step, 3);
  cluster.cores_per_worker = 0.5;  // two workers on one core: the measured 3 s are 1.5 core seconds
  EXPECT_DOUBLE_EQ(predict().step, 11);
}

}  // namespace
}  // namespace poseidon::plan
