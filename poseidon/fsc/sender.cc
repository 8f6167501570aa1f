// SPDX-License-Identifier: Apache-2.0
#include "poseidon/fsc/sender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::fsc {

Sender::Sender(const sync::ExchangeEnvironment& env, Owner* local)
    : env_(env), local_(local), compression_(env.strategy.zero_compression) {}

void Sender::Declare(const wire::Key& key, const plan::LayerSpec& layer, std::vector<LayerPart> parts) {
  POSEIDON_ASSERT_ON(env_.io);
  const std::size_t count = parts.size();
  layers_.emplace(
      key,
      Layer{.spec = layer, .parts = std::move(parts), .u = {}, .packed_u = std::vector<sync::PackedFactor>(count)});
}

void Sender::Start(const wire::Key& key, sync::SyncRequest request) {
  POSEIDON_ASSERT_ON(env_.io);
  if (!abandoned_.ok()) {
    env_.io.Post([done = std::move(request.done), reason = abandoned_] { done(reason); });
    return;
  }
  POSEIDON_CHECK(request.absent || request.factors.has_value(), "a factor layer is given its factors");
  Layer& layer = layers_.find(key)->second;
  POSEIDON_CHECK(!layer.outstanding, "one step per layer at a time");
  if (request.absent) {
    request.factors = Factors{};
    request.weight = 0;
  }
  layer.outstanding = Outstanding{.landings = sync::Landings(request.step, request.gradient),
                                  .done = std::move(request.done),
                                  .serial = next_serial_++};
  PackU(layer, *request.factors);
  PackV(layer, *request.factors);
  // Nothing completes within these calls, so all parts are counted before the first is done.
  for (std::size_t part = 0; part < layer.parts.size(); ++part) SendPart(key, layer, part, request);
}

// From [rows x outputs] to one [rows x units] behind another, in the order of the parts.
void Sender::PackU(Layer& layer, const Factors& factors) {
  if (factors.rows == 0) return;  // an absent worker has no u
  const std::uint64_t size = SizeOf(layer.spec.dtype);
  const std::uint64_t row_bytes = layer.spec.factors->outputs * size;
  // A payload is one span, but the columns of a part are apart in u. No frame reads the old copy any more: the last
  // step was done only when all its frames had left.
  if (layer.u.size() < factors.rows * row_bytes) layer.u.resize(factors.rows * row_bytes);
  std::byte* to = layer.u.data();
  for (const LayerPart& part : layer.parts) {
    const std::uint64_t bytes = part.units().count * size;
    const std::byte* from = factors.u + part.units().first * size;
    for (std::uint32_t row = 0; row < factors.rows; ++row, from += row_bytes, to += bytes) std::memcpy(to, from, bytes);
  }
}

// Once for all owners.
void Sender::PackV(Layer& layer, const Factors& factors) {
  const auto others = std::count_if(layer.parts.begin(), layer.parts.end(), [this](const LayerPart& part) {
    return env_.among.owner_of_shard[part.units().shard] != env_.among.self;
  });
  layer.packed_v.Pack({factors.v, factors.rows * layer.spec.factors->v_bytes_per_row(layer.spec.dtype)},
                      static_cast<std::uint32_t>(others), compression_);
}

Factors Sender::FactorsFor(const Layer& layer, const LayerPart& part, const Factors& whole) const {
  if (whole.rows == 0) return {};
  // Parts are in the order of their units and leave none out, so those before this one hold rows * first numbers.
  return {layer.u.data() + whole.rows * part.units().first * SizeOf(layer.spec.dtype), whole.v, whole.rows};
}

void Sender::SendPart(const wire::Key& key, Layer& layer, std::size_t index, const sync::SyncRequest& request) {
  Outstanding& outstanding = *layer.outstanding;
  const LayerPart& part = layer.parts[index];
  const Factors factors = FactorsFor(layer, part, *request.factors);
  const MemberId owner = env_.among.owner_of_shard[part.units().shard];
  if (owner == env_.among.self) {
    outstanding.own_part = true;
    return local_->Local(key, request, factors,
                         alive_.Guard([this, key](const Status& status) { OnOwnPartDone(key, status); }));
  }
  for (const Stretch& stretch : part.stretches()) {
    outstanding.landings.Expect(owner, stretch.begin, stretch.bytes);
    ++outstanding.pending;
  }
  sync::PackedFactor& u = layer.packed_u[index];
  u.Pack({factors.u, factors.rows * part.shape().u_bytes_per_row(layer.spec.dtype)}, 1, compression_);
  outstanding.pending += sync::SendFactors(
      env_.mesh, owner, *env_.among.self_rank, key, request,
      {.scheme = plan::Scheme::kFactorScatter, .dtype = layer.spec.dtype, .u = u, .v = layer.packed_v},
      [&] { return PartDone(key, outstanding.serial); });
}

Completion Sender::PartDone(const wire::Key& key, std::uint64_t serial) {
  return alive_.Guard([this, key, serial](const Status& status) { OnPartDone(key, serial, status); });
}

Result<Sender::Outstanding*> Sender::Find(const wire::FrameHeader& header) {
  // The gradient of a request that waits for its own part alone is lent, but nothing of others lands in it any more.
  if (!abandoned_.ok()) return static_cast<Outstanding*>(nullptr);
  const auto found = layers_.find(header.key());
  if (found == layers_.end() || !found->second.outstanding) return sync::NothingPushed(header);
  return &*found->second.outstanding;
}

Result<MutableBytes> Sender::PlaceFor(MemberId from, const wire::FrameHeader& header) {
  POSEIDON_ASSERT_ON(env_.io);
  POSEIDON_ASSIGN_OR_RETURN(const Outstanding* outstanding, Find(header));
  if (outstanding == nullptr) return MutableBytes{};
  return outstanding->landings.PlaceFor(from, header);
}

Status Sender::OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes) {
  POSEIDON_ASSERT_ON(env_.io);
  POSEIDON_ASSIGN_OR_RETURN(Outstanding * outstanding, Find(header));
  if (outstanding == nullptr) return OkStatus();
  POSEIDON_ASSIGN_OR_RETURN(const bool whole, outstanding->landings.Landed(from, header));
  if (whole) OnPartDone(header.key(), outstanding->serial, OkStatus());
  return OkStatus();
}

void Sender::OnPartDone(const wire::Key& key, std::uint64_t serial, const Status& status) {
  Layer& layer = layers_.find(key)->second;
  if (!layer.outstanding || layer.outstanding->serial != serial) return;
  --layer.outstanding->pending;
  FinishIfDone(layer, status);
}

void Sender::OnOwnPartDone(const wire::Key& key, const Status& status) {
  Layer& layer = layers_.find(key)->second;
  // No serial is compared: the request cannot end, or the next one begin, before its own part is done.
  layer.outstanding->own_part = false;
  FinishIfDone(layer, status);
}

void Sender::FinishIfDone(Layer& layer, const Status& status) {
  Outstanding& outstanding = *layer.outstanding;
  if (outstanding.failure.ok()) outstanding.failure = status;
  if (outstanding.pending > 0 || outstanding.own_part) return;
  env_.io.Post([done = std::move(outstanding.done), failure = outstanding.failure] { done(failure); });
  layer.outstanding.reset();
}

void Sender::AddWaits(std::vector<wire::Wait>* waits) const {
  POSEIDON_ASSERT_ON(env_.io);
  for (const auto& [key, layer] : layers_) {
    if (layer.outstanding) layer.outstanding->landings.AddWaits(key, waits);
  }
}

// Pushes on their way to other owners fail at once, but the own part is waited for: its product may still write the
// gradient.
void Sender::Abandon(const Status& reason) {
  POSEIDON_ASSERT_ON(env_.io);
  abandoned_ = reason;
  for (auto& [key, layer] : layers_) {
    if (!layer.outstanding) continue;
    layer.outstanding->pending = 0;
    layer.outstanding->serial = next_serial_++;
    FinishIfDone(layer, reason);
  }
}

std::uint64_t Sender::allocated_bytes() const {
  POSEIDON_ASSERT_ON(env_.io);
  std::uint64_t sum = 0;
  for (const auto& [key, layer] : layers_) {
    sum += layer.u.capacity() + layer.packed_v.allocated_bytes();
    for (const sync::PackedFactor& u : layer.packed_u) sum += u.allocated_bytes();
  }
  return sum;
}

}  // namespace poseidon::fsc
