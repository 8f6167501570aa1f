// SPDX-License-Identifier: Apache-2.0
#include "poseidon/local/follower.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/local/stretches.h"

namespace poseidon::local {

Follower::Follower(Executor& executor, messaging::Mesh& mesh, const Place& place)
    : executor_(executor), mesh_(mesh), place_(place) {}

Status Follower::Declare(ModelId model, std::vector<plan::LayerSpec> layers) {
  POSEIDON_ASSERT_ON(executor_);
  model_ = model;
  POSEIDON_ASSIGN_OR_RETURN(layout_, Layout::Of(layers, place_.places));
  for (plan::LayerSpec& layer : layers) {
    layers_.emplace_back();
    layers_.back().spec = std::move(layer);
  }
  return AttachIfBoth();
}

Status Follower::Attach(MemberId from, const wire::Segment& offer) {
  POSEIDON_ASSERT_ON(executor_);
  if (from != place_.leader || offer_) {
    return DataLoss("shared memory is offered twice, or not by the leader of this host");
  }
  offer_ = std::make_unique<wire::Segment>(offer);
  return AttachIfBoth();
}

Status Follower::AttachIfBoth() {
  if (!offer_ || layers_.empty()) return OkStatus();
  // Equal layers give an equal layout on every member. Another size means other layers, and this worker's offsets could
  // lead beyond the mapping.
  if (offer_->model != model_ || offer_->bytes != layout_.bytes()) {
    return DataLoss("the leader offers " + std::to_string(offer_->bytes) +
                    " bytes of shared memory, expected " + std::to_string(layout_.bytes()));
  }
  POSEIDON_ASSIGN_OR_RETURN(segment_, Segment::Attach(*offer_));
  return OkStatus();
}

std::byte* Follower::Slot(LayerId layer, std::uint32_t place) const {
  return segment_->memory().data() + layout_.OffsetOf(layer, place);
}

void Follower::Contribute(const Share& share, Completion done) {
  POSEIDON_ASSERT_ON(executor_);
  LayerState& state = layers_.at(share.layer.value());
  POSEIDON_CHECK(!state.round, "one step per layer at a time");
  Status refused = abandoned_;
  // The slot has its size from Declare, but each step may bring another number of rows.
  if (plan::TakesFactors(share.scheme) && !share.absent &&
      share.factors->rows > layout_.slot_bytes(share.layer) / FactorBytes(state.spec, 1)) {
    refused = TooManyRows(state.spec, share.factors->rows, layout_.slot_bytes(share.layer));
  }
  if (!refused.ok()) {
    executor_.Post([done = std::move(done), refused] { done(refused); });
    return;
  }
  state.round = std::make_shared<Round>();
  state.round->share = share;
  state.round->done = std::move(done);
  CopyIn(state);
}

void Follower::CopyIn(LayerState& state) {
  const Share& share = state.round->share;
  if (share.absent) return Tell(state);
  std::byte* const slot = Slot(share.layer, place_.place);
  if (plan::TakesFactors(share.scheme)) {
    const std::uint64_t u_bytes = FactorUBytes(state.spec, share.factors->rows);
    const std::uint64_t bytes = FactorBytes(state.spec, share.factors->rows);
    if (bytes > 0) {
      std::memcpy(slot, share.factors->u, u_bytes);
      std::memcpy(slot + u_bytes, share.factors->v, bytes - u_bytes);
    }
    state.moved += bytes;
    return Tell(state);
  }
  state.moved += state.spec.bytes();
  InStretches(
      executor_, state.round, state.spec.bytes(),
      [slot, from = share.gradient.memory](std::uint64_t begin, std::uint64_t end) {
        std::memcpy(slot + begin, from + begin, end - begin);
      },
      [this, &state] { Tell(state); });
}

void Follower::Tell(LayerState& state) {
  Round& round = *state.round;
  round.told = true;
  messaging::Outgoing word;
  word.header.type = wire::FrameType::kLocal;
  word.header.step = round.share.step;
  word.header.model = model_;
  word.header.rank = place_.self_rank;
  word.header.layer = round.share.layer;
  word.header.dtype = state.spec.dtype;
  word.header.scheme = round.share.scheme;
  if (round.share.absent) {
    word.header.flags = wire::kFlagAbsent;
  } else {
    word.header.weight = round.share.weight;
    if (plan::TakesFactors(round.share.scheme)) {
      word.header.total = FactorBytes(state.spec, round.share.factors->rows);
    }
  }
  // It carries no payload and the whole host waits for it, so it does not queue behind gradients.
  word.priority = messaging::kControlPriority;
  mesh_.Send(place_.leader, std::move(word));
}

Result<MutableBytes> Follower::PlaceFor(MemberId, const wire::FrameHeader&) {
  POSEIDON_ASSERT_ON(executor_);
  return DataLoss("a message about shared memory carries bytes");
}

// The leader's message that the mean is in the segment: legal while this worker waits for it.
Status Follower::OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes) {
  POSEIDON_ASSERT_ON(executor_);
  if (!abandoned_.ok()) return abandoned_;
  if (from != place_.leader || header.model != model_ || header.layer.value() >= layers_.size()) {
    return DataLoss("a message about shared memory names no layer, or is not the leader's");
  }
  LayerState& state = layers_[header.layer.value()];
  // `told` keeps a mean from landing in a gradient that is still being copied out, `landing` keeps it from landing
  // twice.
  if (!state.round || !state.round->told || state.round->landing ||
      state.round->share.step != header.step || state.round->share.scheme != header.scheme) {
    return DataLoss("a mean of layer '" + state.spec.name + "' came that nobody waits for");
  }
  if (state.round->share.gathered != nullptr) return LandGathered(state, header.total);
  if (header.total != 0) {
    return DataLoss("the mean of layer '" + state.spec.name + "' came as " + std::to_string(header.total) +
                    " bytes of factors, expected it multiplied");
  }
  const std::uint64_t bytes = state.spec.bytes();
  Land(state, bytes,
       [mean = Slot(header.layer, 0), into = state.round->share.gradient.memory](std::uint64_t begin, std::uint64_t end) {
         std::memcpy(into + begin, mean + begin, end - begin);
       });
  return OkStatus();
}

// The factors of all hosts, multiplied by their weights and divided already.
Status Follower::LandGathered(LayerState& state, std::uint64_t bytes) {
  const Share& share = state.round->share;
  const std::uint64_t rows = bytes / FactorBytes(state.spec, 1);
  // The bound keeps this worker from reading the next slot.
  if (bytes != FactorBytes(state.spec, rows) || bytes > layout_.slot_bytes(share.layer)) {
    return DataLoss("the leader gathered " + std::to_string(bytes) + " bytes of layer '" + state.spec.name +
                    "', expected whole rows that fit a slot");
  }
  const Result<factors::GatheredRows::Places> into = share.gathered->PlacesFor(*state.spec.factors, state.spec.dtype, rows);
  if (!into.ok()) {
    Finish(state, into.status());
    return OkStatus();
  }
  const std::uint64_t u_bytes = FactorUBytes(state.spec, rows);
  Land(state, bytes, [slot = Slot(share.layer, 0), into = *into, u_bytes](std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t middle = std::clamp(u_bytes, begin, end);
    if (begin < middle) std::memcpy(into.u + begin, slot + begin, middle - begin);
    if (middle < end) std::memcpy(into.v + (middle - u_bytes), slot + middle, end - middle);
  });
  return OkStatus();
}

// The stretches hold the round weakly: after Abandon the memory is no longer lent.
void Follower::Land(LayerState& state, std::uint64_t bytes, std::function<void(std::uint64_t, std::uint64_t)> copy) {
  state.round->landing = true;
  state.moved += bytes;
  InStretches(executor_, state.round, bytes, std::move(copy), [this, &state] { Finish(state, OkStatus()); });
}

void Follower::Finish(LayerState& state, const Status& status) {
  // The round ends here, and with it the copying that a queued stretch would go on with.
  const std::shared_ptr<Round> round = std::exchange(state.round, nullptr);
  executor_.Post([done = std::move(round->done), status] { done(status); });
}

void Follower::AddWaits(std::vector<wire::Wait>* waits) const {
  POSEIDON_ASSERT_ON(executor_);
  for (std::uint32_t i = 0; i < layers_.size(); ++i) {
    const Round* const round = layers_[i].round.get();
    if (round == nullptr || !round->told) continue;
    waits->push_back({wire::Wait::For::kMean, model_, LayerId(i), round->share.step, {place_.leader}});
  }
}

void Follower::Abandon(const Status& reason) {
  POSEIDON_ASSERT_ON(executor_);
  abandoned_ = reason;
  for (LayerState& state : layers_) {
    if (state.round) Finish(state, reason);
  }
}

std::uint64_t Follower::moved_bytes(LayerId layer) const {
  POSEIDON_ASSERT_ON(executor_);
  return layer.value() < layers_.size() ? layers_[layer.value()].moved : 0;
}

}  // namespace poseidon::local
