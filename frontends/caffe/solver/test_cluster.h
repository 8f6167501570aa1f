// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_TEST_CLUSTER_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_TEST_CLUSTER_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "frontends/caffe/net/net.h"
#include "frontends/caffe/solver/collectives.h"
#include "frontends/caffe/solver/gradient_sync.h"
#include "poseidon/base/check.h"

namespace poseidon::caffe {

// For tests: workers that are threads of this process. Gradients are added in rank order by whoever
// comes last and divided once; factors are multiplied once, concatenated in rank order.
class TestCluster {
 public:
  TestCluster(int world, bool factors) : world_(world), factors_(factors), sums_(Index(world)) {}

  class Worker final : public GradientSync, public Collectives {
   public:
    Worker(TestCluster* cluster, int rank, Net* net)
        : cluster_(*cluster), rank_(rank), net_(*net) {}

    Status BeginStep(std::uint64_t step) override {
      POSEIDON_CHECK(step == expected_step_++, "steps come in order");
      return OkStatus();
    }
    bool WantsFactors(int layer) const override {
      return cluster_.factors_ && net_.layer(layer).factors() != nullptr &&
             net_.layer(layer).factors()->FactorCapable();
    }
    Status GradientReady(int layer, std::uint32_t weight) override {
      Part part;
      part.weight = weight;
      if (WantsFactors(layer)) {
        part.factors = net_.layer(layer).factors()->TakeFactors();
      } else {
        part.dense = net_.layer_params(layer).diff;
      }
      cluster_.Add({layer, pushed_[layer]++}, rank_, std::move(part),
                   net_.layer_params(layer).diff);
      return OkStatus();
    }
    Status Await(int layer) override {
      net_.layer_params(layer).diff.copy_(cluster_.Wait({layer, awaited_[layer]++}));
      return OkStatus();
    }
    // As if the last of them had landed first: the layer that the solver needs next comes last.
    int AwaitAny(std::span<const int> layers) override { return layers.back(); }
    Status SumDoubles(std::span<double> values) override {
      cluster_.Sum(rank_, values);
      return OkStatus();
    }

   private:
    TestCluster& cluster_;
    const int rank_;
    Net& net_;
    std::uint64_t expected_step_ = 0;
    std::map<int, std::uint64_t> pushed_;
    std::map<int, std::uint64_t> awaited_;
  };

 private:
  struct Part {
    at::Tensor dense;
    std::vector<FactorPair> factors;
    std::uint32_t weight = 0;
  };
  // Layer and how many gradients of it came before.
  using Key = std::pair<int, std::uint64_t>;
  struct Round {
    std::vector<Part> parts;
    int arrived = 0;
    int waited = 0;
    at::Tensor mean;
  };
  static std::size_t Index(int i) { return static_cast<std::size_t>(i); }

  void Add(Key key, int rank, Part part, const at::Tensor& like) {
    std::lock_guard lock(mutex_);
    Round& round = rounds_[key];
    round.parts.resize(Index(world_));
    round.parts[Index(rank)] = std::move(part);
    if (++round.arrived < world_) return;
    round.mean = round.parts[0].factors.empty() ? DenseMean(round) : FactorMean(round, like);
    changed_.notify_all();
  }

  // The share of each rank in the mean: its weight of all, or the same where none has one.
  std::vector<double> Shares(const Round& round) const {
    double sum = 0;
    for (const Part& part : round.parts) sum += part.weight;
    std::vector<double> shares;
    for (const Part& part : round.parts) shares.push_back(sum == 0 ? 1.0 / world_ : part.weight / sum);
    return shares;
  }
  at::Tensor DenseMean(const Round& round) const {
    const std::vector<double> shares = Shares(round);
    at::Tensor mean = round.parts[0].dense.mul(shares[0]);
    for (int rank = 1; rank < world_; ++rank) mean.add_(round.parts[Index(rank)].dense, shares[Index(rank)]);
    return mean;
  }
  at::Tensor FactorMean(const Round& round, const at::Tensor& like) const {
    const std::vector<double> shares = Shares(round);
    std::vector<at::Tensor> u;
    std::vector<at::Tensor> v;
    for (int rank = 0; rank < world_; ++rank) {
      for (const FactorPair& pair : round.parts[Index(rank)].factors) {
        u.push_back(pair.u.mul(shares[Index(rank)]));
        v.push_back(pair.v);
      }
    }
    const at::Tensor all = at::cat(u);
    const at::Tensor weight = at::mm(all.t(), at::cat(v)).view({-1});
    if (weight.numel() == like.numel()) return weight;
    return at::cat({weight, at::sum(all, at::IntArrayRef{0})});
  }

  at::Tensor Wait(Key key) {
    std::unique_lock lock(mutex_);
    Round& round = rounds_[key];
    changed_.wait(lock, [&] { return round.arrived == world_; });
    at::Tensor mean = round.mean;
    if (++round.waited == world_) rounds_.erase(key);
    return mean;
  }

  void Sum(int rank, std::span<double> values) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return leaving_ == 0; });
    sums_[Index(rank)].assign(values.begin(), values.end());
    if (++summing_ == world_) {
      leaving_ = world_;
      summing_ = 0;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return leaving_ > 0; });
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 0;
      for (const std::vector<double>& part : sums_) values[i] += part[i];
    }
    if (--leaving_ == 0) changed_.notify_all();
  }

  const int world_;
  const bool factors_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Round> rounds_;
  std::vector<std::vector<double>> sums_;
  int summing_ = 0;
  int leaving_ = 0;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_TEST_CLUSTER_H_
