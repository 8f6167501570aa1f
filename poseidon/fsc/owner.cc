// SPDX-License-Identifier: Apache-2.0
#include "poseidon/fsc/owner.h"

#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::fsc {

Owner::Owner(const sync::ExchangeEnvironment& env)
    : env_(env),
      has_worker_(env.among.self_rank.has_value()),
      shard_(env.among.self_shard().value()),
      inbox_(env.among, [this](const wire::Key& key) { MultiplyIfComplete(key); }) {}

void Owner::Declare(const wire::Key& key, const plan::LayerSpec& layer, const LayerPart& part) {
  POSEIDON_ASSERT_ON(env_.io);
  inbox_.Add(key, part.shape(), layer.dtype);
  layers_.emplace(key, Layer{.spec = layer, .part = part});
}

void Owner::UsePlan(ModelId model, const plan::Plan& plan) {
  POSEIDON_ASSERT_ON(env_.io);
  plans_.try_emplace(model, plan.layers.size()).first->second.Use(plan);
}

void Owner::Local(const wire::Key& key, const sync::Contribution& own, const Factors& factors, Completion done) {
  POSEIDON_ASSERT_ON(env_.io);
  Layer& layer = layers_.find(key)->second;
  POSEIDON_CHECK(!layer.local, "one step per layer at a time");
  const Status put = abandoned_.ok()
                         ? inbox_.store(key).Put(*env_.among.self_rank, own.step, factors, own.weight)
                         : abandoned_;
  if (!put.ok()) {
    env_.io.Post([done = std::move(done), put] { done(put); });
    return;
  }
  layer.local = true;
  layer.step = own.step;
  layer.gradient = own.gradient.memory;
  layer.local_done = std::move(done);
  MultiplyIfComplete(key);
}

// A worker's own contribution says which step is next; a dedicated server takes the earliest that it has rows of.
void Owner::MultiplyIfComplete(const wire::Key& key) {
  Layer& layer = layers_.find(key)->second;
  factors::FactorStore& store = inbox_.store(key);
  // The one buffer must not be written while frames still read the last mean in it.
  if (layer.multiplying || layer.unsent > 0 || (has_worker_ && !layer.local)) return;
  if (!has_worker_) layer.step = store.earliest();
  if (!layer.step || !store.Complete(*layer.step)) return;
  const Step step = *layer.step;
  layer.multiplying = true;
  Result<sync::FactorInbox::Mean> mean = inbox_.MeanOf(key, step);
  const Result<Places> places = PlacesOf(layer);
  if (!mean.ok() || !places.ok()) return OnProduct(key, step, mean.ok() ? places.status() : mean.status());
  env_.compute.Post([key, step, mean = *std::move(mean), shape = layer.part.shape(), dtype = layer.spec.dtype,
                     places = *places, &io = env_.io, &compute = env_.compute, engine = env_.engine,
                     trace = env_.trace,
                     then = alive_.Guard([this](const wire::Key& of, Step at, const Status& status) {
                       OnProduct(of, at, status);
                     })]() mutable {
    const TimePoint begin = compute.now();
    const Status status = factors::RebuildGradient(shape, dtype, mean.rows, mean.alpha, *engine, places.weight, places.bias);
    if (trace != nullptr) {
      trace->Record({TraceLane::kRebuild, static_cast<std::int32_t>(key.layer.value()), step.value(), begin,
                     compute.now(), 0, "rebuild", key.model.value()});
    }
    io.Post([key, step, status, then = std::move(then)]() mutable { then(key, step, status); });
  });
}

Result<Owner::Places> Owner::PlacesOf(Layer& layer) {
  const Stretch weight = layer.part.weight();
  const Stretch bias = layer.part.bias();
  if (has_worker_) return Places{layer.gradient + weight.begin, layer.gradient + bias.begin};
  if (!layer.own) {
    layer.own = factors::AllocateAligned(weight.bytes + bias.bytes);
    if (!layer.own) {
      return ResourceExhausted("there is no memory for the " + std::to_string(weight.bytes + bias.bytes) +
                               " bytes of this shard's part of layer '" + layer.spec.name + "'");
    }
    layer.own_bytes = weight.bytes + bias.bytes;
  }
  return Places{layer.own.get(), layer.own.get() + weight.bytes};
}

void Owner::OnProduct(const wire::Key& key, Step step, const Status& status) {
  Layer& layer = layers_.find(key)->second;
  layer.multiplying = false;
  // Before the local request is done, since the next step needs a set, and the store has two.
  inbox_.store(key).Release(step);
  if (!abandoned_.ok()) return FinishIfDone(layer, abandoned_);
  if (!status.ok()) {
    // The others wait for this part, which nobody else can make.
    env_.fail(status.WithPrefix("layer '" + layer.spec.name + "'"));
    return FinishIfDone(layer, status);
  }
  SendMean(key, layer);
  FinishIfDone(layer, OkStatus());
}

void Owner::SendMean(const wire::Key& key, Layer& layer) {
  const Step step = *layer.step;
  const Places places = *PlacesOf(layer);
  const std::uint32_t position = plans_.at(key.model).At(step).by_layer[key.layer.value()].send_position;
  for (std::uint16_t r = 0; r < env_.among.ranks(); ++r) {
    const MemberId worker = env_.among.worker_of_rank[r];
    if (worker == env_.among.self) continue;
    const std::byte* from = places.weight;
    for (const Stretch& stretch : layer.part.stretches()) {
      messaging::Outgoing out;
      out.header.type = wire::FrameType::kResult;
      out.header.scheme = plan::Scheme::kFactorScatter;
      out.header.step = step;
      out.header.model = key.model;
      out.header.layer = key.layer;
      out.header.rank = Rank(r);
      out.header.offset = stretch.begin;
      out.header.total = layer.spec.bytes();
      out.header.dtype = layer.spec.dtype;
      out.payload = ConstBytes(from, stretch.bytes);
      out.priority = messaging::PriorityOf(env_.strategy.order, messaging::Leg::kResult, step, position);
      // A result that could not leave is not this shard's failure to report: the peer's end is noticed
      // by whoever watches the members.
      out.left = alive_.Guard([this, key, step](const Status&) { OnLeft(key, step); });
      ++layer.unsent;
      env_.mesh.Send(worker, std::move(out));
      from = places.bias;
    }
  }
}

void Owner::OnLeft(const wire::Key& key, Step step) {
  Layer& layer = layers_.find(key)->second;
  // Abandon has settled what had not left.
  if (!abandoned_.ok() || layer.step != step) return;
  --layer.unsent;
  FinishIfDone(layer, OkStatus());
  if (layer.unsent == 0) MultiplyIfComplete(key);  // a fast rank's next step
}

// The worker's gradient may be freed once the product is made and no frame reads the mean from it any more.
void Owner::FinishIfDone(Layer& layer, const Status& status) {
  if (layer.multiplying || layer.unsent > 0 || !layer.local) return;
  layer.local = false;
  layer.gradient = nullptr;
  env_.io.Post([done = std::exchange(layer.local_done, {}), status] { done(status); });
}

// A product under way still writes the gradient: its request completes when it has ended.
void Owner::Abandon(const Status& reason) {
  POSEIDON_ASSERT_ON(env_.io);
  abandoned_ = reason;
  inbox_.Close(reason);
  for (auto& [key, layer] : layers_) {
    layer.unsent = 0;
    FinishIfDone(layer, reason);
  }
}

std::uint64_t Owner::allocated_bytes() const {
  POSEIDON_ASSERT_ON(env_.io);
  std::uint64_t sum = inbox_.allocated_bytes();
  for (const auto& [key, layer] : layers_) sum += layer.own_bytes;
  return sum;
}

}  // namespace poseidon::fsc
