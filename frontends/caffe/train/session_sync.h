// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_SESSION_SYNC_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_SESSION_SYNC_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "frontends/caffe/net/net.h"
#include "frontends/caffe/solver/collectives.h"
#include "frontends/caffe/solver/gradient_sync.h"
#include "frontends/caffe/solver/solver.h"
#include "frontends/caffe/train/device_products.h"
#include "frontends/caffe/train/joining.h"
#include "poseidon/plan/layer.h"
#include "poseidon/session/session.h"

namespace poseidon::caffe {

SolverAction ActionFor(const session::Wish& wish);

// Layers of a net as a session would declare them one by one: in net order, by their unique names.
std::vector<plan::LayerSpec> SpecsOf(Net& net, std::span<const int> layers);

// The solver's view of a job: layers of a net become layers of a model of the session. Small ones join (see GroupsOf):
// the model has one layer in their place, with the name and the place of the first, whose gradient is all of theirs in
// one piece. It leaves when the last of their gradients is ready, and has landed for all of them at once.
//
// Thread: the solver's. Lifetime: session and net outlive it.
class SessionSync final : public GradientSync, public Collectives {
 public:
  struct Options {
    // Measured seconds per net layer; asked once, before the final plan's step.
    std::function<std::vector<plan::LayerSeconds>()> layer_seconds;
    // Called when the final plan takes over, with nothing in flight.
    std::function<void()> final_plan;
    // Returns this worker's wishes; called at the beginning of every iteration.
    std::function<session::Wish()> wish;
    // Returns for how many seconds this worker's device computed since the last call; likewise.
    std::function<double()> on_device;
    JoiningRule joining;  // the same on every worker
    int iter_size = 1;
  };
  SessionSync(session::Session& session, Net& net, std::vector<int> synced_layers, Options options);

  // Joins the diffs of layers that share a message, declares the layers, and gives every worker rank 0's learned
  // blobs. kInvalidArgument where the net is not what Options::joining was made for.
  Status Begin();
  // All below is there after Begin.

  // The declared layers, in net order.
  const std::vector<plan::LayerSpec>& specs() const { return specs_; }
  // For each of them the unique names of its net layers.
  const std::vector<std::vector<std::string>>& members() const { return members_; }
  const sync::Strategy& strategy() const { return session_.strategy(); }
  // The solver's number of the job's first step; 0 before it.
  std::uint64_t first_iteration() const { return first_step_.value_or(0); }
  // The model that trains.
  session::Model& model() { return *model_; }
  const session::Model& model() const { return *model_; }

  // GradientSync:
  Status BeginStep(std::uint64_t step) override;
  bool WantsFactors(int layer) const override;
  Status GradientReady(int layer, std::uint32_t weight) override;
  Status Await(int layer) override;
  int AwaitAny(std::span<const int> layers) override;
  // Collectives:
  Status SumDoubles(std::span<double> values) override;

  // Returns the action that all workers together want at the iteration begun last: the same on all of them.
  Result<SolverAction> Agreed();

  // Steps of the final plan so far, and what was moved before it.
  std::uint64_t steps_under_final_plan() const { return final_steps_; }
  const session::ModelStatistics& before_final_plan() const { return before_final_; }
  // Worker `rank`'s rows are taken from the plan; these are ours in the last step, by session layer.
  const std::vector<std::uint32_t>& rows() const { return rows_; }

 private:
  struct Layer {
    std::vector<int> net_layers;  // that share it, in net order
    at::Tensor gradient;          // flat
    FactorSource* factors = nullptr;
    std::vector<FactorPair> lent;
    std::optional<GatheredProduct> product;  // of a layer whose product the device makes
    bool multiplies = false;  // what landed last is what all workers brought, and its product is to be made on the device
    std::size_t ready = 0;  // net layers whose gradients of the next push are there
  };

  void AddLayer(std::vector<int> net_layers, std::span<const plan::LayerSpec> specs);
  Status DeclareLayers();
  TensorView ViewOf(const at::Tensor& numbers) const;
  // By which the layer goes as factors in the step under way, where it does.
  std::optional<plan::Scheme> FactorScheme(std::size_t index) const;
  std::vector<wire::Measured::Layer> Measured() const;
  Status AwaitLayer(std::size_t index);
  Status AwaitAll();
  // Waits for all layers where the strategy does so before the first of the next forward pass.
  Status AwaitAsStrategyDoes();
  FactorPair Joined(std::vector<FactorPair> passes) const;

  session::Session& session_;
  session::Model* model_ = nullptr;  // lives in the session
  Net& net_;
  const std::vector<int> synced_layers_;
  const Options options_;
  const DType dtype_;
  std::vector<plan::LayerSpec> specs_;
  std::vector<std::vector<std::string>> members_;
  std::vector<Layer> layers_;
  std::map<int, std::size_t> by_net_layer_;
  std::optional<std::uint64_t> first_step_;  // the solver's number of our step 0
  Step step_;
  bool all_landed_ = true;  // since the last push
  std::uint64_t final_steps_ = 0;
  session::ModelStatistics before_final_;
  std::vector<std::uint32_t> rows_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_SESSION_SYNC_H_
