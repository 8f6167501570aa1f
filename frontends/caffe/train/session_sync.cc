// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/session_sync.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "frontends/caffe/engine/engine.h"
#include "frontends/caffe/net/placement.h"
#include "frontends/caffe/proto/at.h"
#include "frontends/caffe/train/engine_device.h"

namespace poseidon::caffe {
namespace {

// Of each worker, in the test product of a layer.
constexpr std::uint64_t kTestRows = 64;
// Most blobs of a joined layer whose shapes a message lists one by one.
constexpr std::size_t kMostShapes = 8;

FactorSource* FactorsOf(const Net& net, int index) {
  // A layer that backward passes over has no factors; its gradient is the zeros in its diff.
  FactorSource* const factors = net.needs_backward(index) ? net.layer(index).factors() : nullptr;
  return factors != nullptr && factors->FactorCapable() ? factors : nullptr;
}

std::string ShapeOf(const Net& net, std::span<const int> layers) {
  std::string text;
  std::size_t blobs = 0;
  for (const int index : layers) {
    for (const Blob& blob : net.layer(index).blobs()) {
      text += (text.empty() ? "" : "+") + ShapeText(blob.data.sizes());
      ++blobs;
    }
  }
  return layers.size() > 1 && blobs > kMostShapes ? std::to_string(blobs) + " tensors" : text;
}

}  // namespace

SolverAction ActionFor(const session::Wish& wish) {
  if (wish.stop) return wish.snapshot ? SolverAction::kSnapshotAndStop : SolverAction::kStop;
  return wish.snapshot ? SolverAction::kSnapshot : SolverAction::kNone;
}

std::vector<plan::LayerSpec> SpecsOf(Net& net, std::span<const int> layers) {
  std::vector<plan::LayerSpec> specs;
  for (const int index : layers) {
    plan::LayerSpec spec;
    spec.name = net.UniqueName(index);
    spec.shape = ShapeOf(net, {&index, 1});
    spec.dtype = net.options().dtype;
    spec.elements = static_cast<std::uint64_t>(net.layer_params(index).data.numel());
    spec.forward_position = static_cast<std::uint32_t>(index);
    if (const FactorSource* const factors = FactorsOf(net, index)) {
      spec.factors = plan::FactorShape{.outputs = static_cast<std::uint64_t>(factors->M()),
                                       .inputs = static_cast<std::uint64_t>(factors->N()),
                                       .bias = factors->has_bias()};
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

SessionSync::SessionSync(session::Session& session, Net& net, std::vector<int> synced_layers,
                         Options options)
    : session_(session),
      net_(net),
      synced_layers_(std::move(synced_layers)),
      options_(std::move(options)),
      dtype_(net.options().dtype) {}

// `specs` are those of its net layers.
void SessionSync::AddLayer(std::vector<int> net_layers, std::span<const plan::LayerSpec> specs) {
  Layer layer;
  plan::LayerSpec spec = specs.front();
  std::vector<std::string>& names = members_.emplace_back();
  for (const plan::LayerSpec& member : specs) names.push_back(member.name);
  if (net_layers.size() == 1) {
    layer.gradient = net_.layer_params(net_layers.front()).diff;
    layer.factors = FactorsOf(net_, net_layers.front());
  } else {
    layer.gradient = net_.JoinParamDiffs(net_layers);
    spec.shape = ShapeOf(net_, net_layers);
    spec.elements = static_cast<std::uint64_t>(layer.gradient.numel());
    spec.factors.reset();
  }
  for (const int index : net_layers) by_net_layer_[index] = layers_.size();
  layer.net_layers = std::move(net_layers);
  layers_.push_back(std::move(layer));
  specs_.push_back(std::move(spec));
}

Status SessionSync::Begin() {
  const std::vector<plan::LayerSpec> single = SpecsOf(net_, synced_layers_);
  POSEIDON_ASSIGN_OR_RETURN(const auto groups, GroupsOf(single, options_.joining));
  for (const std::vector<std::size_t>& group : groups) {
    std::vector<int> net_layers;
    std::vector<plan::LayerSpec> specs;
    for (const std::size_t place : group) {
      net_layers.push_back(synced_layers_[place]);
      specs.push_back(single[place]);
    }
    AddLayer(std::move(net_layers), specs);
  }
  rows_.assign(layers_.size(), 0);
  POSEIDON_ASSIGN_OR_RETURN(model_, session_.NewModel());
  POSEIDON_RETURN_IF_ERROR(DeclareLayers());
  POSEIDON_RETURN_IF_ERROR(model_->Commit().status());
  model_->MeasureWith([this] { return Measured(); });
  // All learned blobs, also those that are not trained: replicas start out equal.
  for (int i = 0; i < net_.layer_count(); ++i) {
    const at::Tensor data = net_.layer_params(i).data;
    if (!data.defined()) continue;
    const at::Tensor numbers = OnHost(data);
    POSEIDON_RETURN_IF_ERROR(session_.Broadcast(ViewOf(numbers), Rank(0)));
    if (!data.is_cpu()) data.copy_(numbers);
  }
  return OkStatus();
}

// Where the net is on a device, products of factors are made there. Layers of one shape share a test of it.
Status SessionSync::DeclareLayers() {
  const Placement& placement = net_.options().placement;
  std::vector<std::pair<plan::FactorShape, factors::ProductTest>> tests;
  for (plan::LayerSpec& spec : specs_) {
    std::optional<factors::ProductTest> test;
    if (spec.factors && !placement.on_host()) {
      spec.factors->by_device = true;
      const auto known = std::find_if(tests.begin(), tests.end(), [&](const auto& one) { return one.first == *spec.factors; });
      if (known != tests.end()) {
        test = known->second;
      } else {
        POSEIDON_ASSIGN_OR_RETURN(test, TestOnDevice(*spec.factors, dtype_, kTestRows * session_.workers(), placement));
        tests.emplace_back(*spec.factors, *test);
      }
    }
    POSEIDON_RETURN_IF_ERROR(model_->Declare(spec, test).status());
  }
  return OkStatus();
}

TensorView SessionSync::ViewOf(const at::Tensor& numbers) const {
  return {static_cast<std::byte*>(numbers.data_ptr()), static_cast<std::uint64_t>(numbers.numel()), dtype_};
}

Status SessionSync::BeginStep(std::uint64_t step) {
  if (!first_step_) first_step_ = step;
  step_ = Step(step - *first_step_);
  const bool was_final = model_->plan_is_final();
  if (!was_final && step_.value() >= session_.final_plan_step()) {
    // The counts of the final plan begin with nothing of an earlier step under way, here or at
    // another worker that still sends to this one or already sends for the next.
    POSEIDON_RETURN_IF_ERROR(AwaitAll());
    POSEIDON_RETURN_IF_ERROR(session_.Barrier());
  }
  const double on_device = options_.on_device ? options_.on_device() : 0;
  POSEIDON_RETURN_IF_ERROR(model_->BeginStep(step_, options_.wish ? options_.wish() : session::Wish{}, on_device).status());
  if (!was_final && model_->plan_is_final()) {
    before_final_ = model_->Collect();
    POSEIDON_RETURN_IF_ERROR(session_.Barrier());
    model_->ResetTimings();
    if (options_.final_plan) options_.final_plan();
  }
  if (model_->plan_is_final()) ++final_steps_;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].factors != nullptr) {
      rows_[i] = static_cast<std::uint32_t>(layers_[i].factors->K() * options_.iter_size);
    }
  }
  return OkStatus();
}

Status SessionSync::AwaitAll() {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    POSEIDON_RETURN_IF_ERROR(AwaitLayer(i));
  }
  all_landed_ = true;
  return OkStatus();
}

Status SessionSync::AwaitAsStrategyDoes() {
  return session_.strategy().waits_for_all && !all_landed_ ? AwaitAll() : OkStatus();
}

// The work of net layers that are not the first of a declared one counts with the declared layer before them (or the
// first one): so the sum over all layers is the whole iteration, and what runs before a gradient or behind a mean
// counts before or behind it.
std::vector<wire::Measured::Layer> SessionSync::Measured() const {
  const std::vector<plan::LayerSeconds> seconds = options_.layer_seconds();
  std::vector<wire::Measured::Layer> measured(layers_.size());
  std::size_t at = 0;
  for (int i = 0; i < net_.layer_count(); ++i) {
    const auto found = by_net_layer_.find(i);
    if (found != by_net_layer_.end() && layers_[found->second].net_layers.front() == i) at = found->second;
    measured[at].forward_seconds += At(seconds, i).forward;
    measured[at].backward_seconds += At(seconds, i).backward;
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) measured[i].rows = rows_[i];
  return measured;
}

bool SessionSync::WantsFactors(int layer) const {
  const auto found = by_net_layer_.find(layer);
  return found != by_net_layer_.end() && FactorScheme(found->second).has_value();
}

std::optional<plan::Scheme> SessionSync::FactorScheme(std::size_t index) const {
  if (layers_[index].factors == nullptr) return std::nullopt;
  const Result<plan::Scheme> scheme = model_->SchemeOf(LayerId(static_cast<std::uint32_t>(index)), step_);
  return scheme.ok() && plan::TakesFactors(*scheme) ? std::optional(*scheme) : std::nullopt;
}

// With iter_size > 1 the factors of all passes are one concatenation: their product is the sum.
FactorPair SessionSync::Joined(std::vector<FactorPair> passes) const {
  if (passes.size() == 1) return passes.front();
  std::vector<at::Tensor> u, v;
  for (const FactorPair& pass : passes) {
    u.push_back(pass.u);
    v.push_back(pass.v);
  }
  EngineGuard guard;
  return {at::cat(u, 0), at::cat(v, 0)};
}

Status SessionSync::GradientReady(int net_layer, std::uint32_t weight) {
  const std::size_t index = by_net_layer_.at(net_layer);
  Layer& layer = layers_[index];
  all_landed_ = false;
  if (++layer.ready < layer.net_layers.size()) return OkStatus();
  layer.ready = 0;
  session::Push push{{.step = step_, .gradient = ViewOf(layer.gradient), .weight = weight}};
  if (const std::optional<plan::Scheme> scheme = FactorScheme(index)) {
    layer.multiplies = model_->Gathers(LayerId(static_cast<std::uint32_t>(index)), *scheme);
    if (layer.multiplies) push.gradient = {};  // nothing lands there
    layer.lent = {Joined(layer.factors->TakeFactors())};
    const FactorPair& pair = layer.lent.front();
    push.factors = Factors{.u = static_cast<const std::byte*>(pair.u.data_ptr()),
                           .v = static_cast<const std::byte*>(pair.v.data_ptr()),
                           .rows = static_cast<std::uint32_t>(pair.u.size(0))};
  }
  if (const Placement& placement = net_.options().placement; !placement.on_host()) {
    push.on_device = true;
    push.ready = std::make_shared<EngineEvent>(placement);  // the backward pass of this layer has been launched, not more
  }
  return model_->Push(LayerId(static_cast<std::uint32_t>(index)), std::move(push));
}

Status SessionSync::AwaitLayer(std::size_t index) {
  const LayerId id(static_cast<std::uint32_t>(index));
  POSEIDON_RETURN_IF_ERROR(model_->Wait(id));
  Layer& layer = layers_[index];
  if (layer.multiplies) {
    layer.multiplies = false;
    POSEIDON_RETURN_IF_ERROR(RunOnEngine([&] {
      if (!layer.product) layer.product.emplace(net_.options().placement, *specs_[index].factors);
      layer.product->Multiply(model_->Gathered(id), layer.gradient);
      return OkStatus();
    }));
  }
  layer.lent.clear();
  return OkStatus();
}

// When the mean of one net layer has landed, so have those of all that share its message, until the next push.
Status SessionSync::Await(int net_layer) {
  POSEIDON_RETURN_IF_ERROR(AwaitAsStrategyDoes());
  return AwaitLayer(by_net_layer_.at(net_layer));
}

int SessionSync::AwaitAny(std::span<const int> net_layers) {
  std::vector<LayerId> layers;
  for (const int net_layer : net_layers) {
    layers.emplace_back(static_cast<std::uint32_t>(by_net_layer_.at(net_layer)));
  }
  const LayerId landed = model_->WaitAny(layers);
  return At(net_layers, std::find(layers.begin(), layers.end(), landed) - layers.begin());
}

Status SessionSync::SumDoubles(std::span<double> values) { return session_.Sum(poseidon::ViewOf(values)); }

Result<SolverAction> SessionSync::Agreed() {
  POSEIDON_ASSIGN_OR_RETURN(const session::Wish wish, model_->Agreed());
  return ActionFor(wish);
}

}  // namespace poseidon::caffe
