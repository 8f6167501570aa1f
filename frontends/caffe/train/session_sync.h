// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_SESSION_SYNC_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_SESSION_SYNC_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "frontends/caffe/net/net.h"
#include "frontends/caffe/solver/collectives.h"
#include "frontends/caffe/solver/gradient_sync.h"
#include "frontends/caffe/solver/solver.h"
#include "poseidon/plan/layer.h"
#include "poseidon/session/session.h"

namespace poseidon::caffe {

SolverAction ActionFor(const session::Wish& wish);

// The solver's view of a job: layers of a net become layers of a model of the session, one for one.
//
// Thread: the solver's. Lifetime: session and net outlive it.
class SessionSync final : public GradientSync, public Collectives {
 public:
  struct Options {
    // Measured seconds per net layer; asked once, before the final plan's step.
    std::function<std::vector<plan::LayerSeconds>()> layer_seconds;
    // Called when the final plan takes over, with nothing in flight.
    std::function<void()> final_plan;
    // What this worker wants; asked at the beginning of every iteration.
    std::function<session::Wish()> wish;
    int iter_size = 1;
  };
  SessionSync(session::Session& session, Net& net, std::vector<int> synced_layers, Options options);

  // What is declared: one layer per synchronised layer of the net, in net order.
  const std::vector<plan::LayerSpec>& specs() const { return specs_; }
  // What trains; after Begin.
  session::Model& model() { return *model_; }
  const session::Model& model() const { return *model_; }
  // The model's layer of a net layer, -1 for layers that are not synchronised.
  int SessionLayer(int net_layer) const;

  // Declares the layers and gives every worker rank 0's learned blobs.
  Status Begin();

  // GradientSync:
  Status BeginStep(std::uint64_t step) override;
  bool WantsFactors(int layer) const override;
  Status GradientReady(int layer) override;
  Status Await(int layer) override;
  int AwaitAny(std::span<const int> layers) override;
  // Collectives:
  Status SumDoubles(std::span<double> values) override;

  // What all workers together want at the iteration begun last: the same answer on all of them.
  Result<SolverAction> Agreed();

  // Steps of the final plan so far, and what was moved before it.
  std::uint64_t steps_under_final_plan() const { return final_steps_; }
  const session::ModelStatistics& before_final_plan() const { return before_final_; }
  // Worker `rank`'s rows are taken from the plan; these are ours in the last step, by session layer.
  const std::vector<std::uint32_t>& rows() const { return rows_; }

 private:
  struct Layer {
    int net_layer = 0;
    LayerParams params;
    FactorSource* factors = nullptr;
    bool by_factors = false;  // in the step under way
    std::vector<FactorPair> lent;
    bool in_flight = false;
  };

  void DescribeLayers(const std::vector<int>& synced_layers);
  TensorView GradientOf(const Layer& layer) const;
  std::vector<wire::Measured::Layer> Measured() const;
  Status AwaitAll();
  FactorPair Joined(std::vector<FactorPair> passes) const;

  session::Session& session_;
  session::Model* model_ = nullptr;  // lives in the session
  Net& net_;
  const Options options_;
  const DType dtype_;
  std::vector<plan::LayerSpec> specs_;
  std::vector<Layer> layers_;
  std::map<int, std::size_t> by_net_layer_;
  std::optional<std::uint64_t> first_step_;  // the solver's number of our step 0
  Step step_;
  std::uint64_t final_steps_ = 0;
  session::ModelStatistics before_final_;
  std::vector<std::uint32_t> rows_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_SESSION_SYNC_H_
