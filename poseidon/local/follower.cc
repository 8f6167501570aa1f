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

Follower::Follower(Executor& executor, messaging::Mesh& mesh, std::vector<MemberId> members, std::size_t place,
                   Rank self_rank, const HostMemory& memory)
    : executor_(executor), mesh_(mesh), members_(std::move(members)), place_(place), self_rank_(self_rank), memory_(memory) {}

void Follower::Declare(ModelId model, std::span<const plan::LayerSpec> layers) {
  POSEIDON_ASSERT_ON(executor_);
  model_ = model;
  for (const plan::LayerSpec& layer : layers) {
    layers_.emplace_back();
    layers_.back().spec = layer;
  }
}

void Follower::Contribute(const Share& share, Completion done) {
  POSEIDON_ASSERT_ON(executor_);
  LayerState& state = layers_.at(share.layer.value());
  POSEIDON_CHECK(!state.round, "one step per layer at a time");
  Status refused = abandoned_;
  // The slot has its size from Declare, but each step may bring another number of rows.
  if (plan::TakesFactors(share.scheme) && !share.absent &&
      share.factors->rows > memory_.slot_bytes(share.layer) / FactorBytes(state.spec, 1)) {
    refused = TooManyRows(state.spec, share.factors->rows, memory_.slot_bytes(share.layer));
  }
  Result<bool> in_slot = false;
  if (refused.ok()) {
    in_slot = IsInSlot(state, share);
    refused = in_slot.status();
  }
  if (!refused.ok()) {
    executor_.Post([done = std::move(done), refused] { done(refused); });
    return;
  }
  state.round = std::make_shared<Round>();
  state.round->share = share;
  state.round->in_slot = *in_slot;
  state.round->done = std::move(done);
  state.round->stages.resize(members_.size());
  for (std::size_t leader = 0; leader < members_.size(); ++leader) {
    if (leader != place_ && !share.parts->at(leader).empty()) state.round->stages[leader] = Stage::kCopying;
  }
  CopyIn(state, 0);
}

Result<bool> Follower::IsInSlot(const LayerState& state, const Share& share) const {
  if (share.absent) return false;
  const std::byte* const slot = memory_.SlotOf(share.layer, place_);
  if (!plan::TakesFactors(share.scheme)) return share.gradient.memory == slot;
  const std::uint64_t u_bytes = FactorUBytes(state.spec, share.factors->rows);
  if (share.factors->u == slot && share.factors->v == slot + u_bytes) return true;
  // Copying u would write over v there.
  const auto inside = [&](const std::byte* memory) {
    return !std::less<>()(memory, slot) && std::less<>()(memory, slot + memory_.slot_bytes(share.layer));
  };
  if (share.factors->rows > 0 && (inside(share.factors->u) || inside(share.factors->v))) {
    return InvalidArgument("the factors of layer '" + state.spec.name + "' are in the session's own memory, expected u at its begin and v right "
                           "behind it, or both elsewhere");
  }
  return false;
}

// From `leader` on, each its part before the next one's, so that the first need not wait for all.
void Follower::CopyIn(LayerState& state, std::size_t leader) {
  const Round& round = *state.round;
  while (leader < members_.size() && round.stages[leader] == Stage::kNone) ++leader;
  if (leader == members_.size()) return;
  const Share& share = round.share;
  const auto next = [this, &state, leader] {
    Tell(state, leader);
    CopyIn(state, leader + 1);
  };
  if (share.absent || round.in_slot) return next();
  std::byte* const slot = memory_.SlotOf(share.layer, place_);
  if (plan::TakesFactors(share.scheme)) {
    const std::uint64_t u_bytes = FactorUBytes(state.spec, share.factors->rows);
    const std::uint64_t bytes = FactorBytes(state.spec, share.factors->rows);
    if (bytes > 0) {
      std::memcpy(slot, share.factors->u, u_bytes);
      std::memcpy(slot + u_bytes, share.factors->v, bytes - u_bytes);
    }
    state.moved += bytes;
    return next();
  }
  state.moved += BytesIn(share.parts->at(leader));
  InStretches(executor_, state.round, share.parts->at(leader), Copy(share.gradient.memory, slot), next);
}

void Follower::Tell(LayerState& state, std::size_t leader) {
  Round& round = *state.round;
  round.stages[leader] = Stage::kTold;
  messaging::Outgoing word;
  word.header.type = wire::FrameType::kLocal;
  word.header.step = round.share.step;
  word.header.model = model_;
  word.header.rank = self_rank_;
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
  mesh_.Send(members_[leader], std::move(word));
}

Result<MutableBytes> Follower::PlaceFor(MemberId, const wire::FrameHeader&) {
  POSEIDON_ASSERT_ON(executor_);
  return DataLoss("a message about shared memory carries bytes");
}

// A leader's message that its part of the mean is there: legal while this worker waits for it.
Status Follower::OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes) {
  POSEIDON_ASSERT_ON(executor_);
  if (!abandoned_.ok()) return abandoned_;
  const auto leader = static_cast<std::size_t>(std::find(members_.begin(), members_.end(), from) - members_.begin());
  if (leader == members_.size() || header.model != model_ || header.layer.value() >= layers_.size()) {
    return DataLoss("a message about shared memory names no layer, or is not of a worker of this host");
  }
  LayerState& state = layers_[header.layer.value()];
  // kTold: earlier, it would land in a gradient that is still being copied out; later, twice.
  if (!state.round || state.round->stages[leader] != Stage::kTold || state.round->share.step != header.step ||
      state.round->share.scheme != header.scheme) {
    return DataLoss("a mean of layer '" + state.spec.name + "' came that nobody waits for");
  }
  const Share& share = state.round->share;
  if (share.gathered != nullptr) return LandGathered(state, leader, header.total);
  if (header.total != 0) {
    return DataLoss("the mean of layer '" + state.spec.name + "' came as " + std::to_string(header.total) +
                    " bytes of factors, expected it multiplied");
  }
  std::vector<ByteRange> part;
  if (!share.mean_stays) part = share.parts->at(leader);
  Land(state, leader, std::move(part), Copy(memory_.MeanOf(header.layer), share.gradient.memory));
  return OkStatus();
}

// The factors of all hosts, multiplied by their weights and divided already.
Status Follower::LandGathered(LayerState& state, std::size_t leader, std::uint64_t bytes) {
  const Share& share = state.round->share;
  const std::uint64_t rows = bytes / FactorBytes(state.spec, 1);
  // The bound keeps this worker from reading what is behind the mean.
  if (bytes != FactorBytes(state.spec, rows) || bytes > memory_.slot_bytes(share.layer)) {
    return DataLoss("the leader gathered " + std::to_string(bytes) + " bytes of layer '" + state.spec.name +
                    "', expected whole rows that fit a slot");
  }
  const Result<factors::GatheredRows::Places> into = share.gathered->PlacesFor(*state.spec.factors, state.spec.dtype, rows);
  if (!into.ok()) {
    Finish(state, into.status());
    return OkStatus();
  }
  const std::uint64_t u_bytes = FactorUBytes(state.spec, rows);
  const std::byte* const mean = memory_.MeanOf(share.layer);
  Land(state, leader, {{0, bytes}}, CopyBoth(u_bytes, mean, mean + u_bytes, into->u, into->v));
  return OkStatus();
}

// The stretches hold the round weakly: after Abandon the memory is no longer lent.
void Follower::Land(LayerState& state, std::size_t leader, std::vector<ByteRange> part, Work copy) {
  state.round->stages[leader] = Stage::kLanding;
  state.moved += BytesIn(part);
  InStretches(executor_, state.round, std::move(part), std::move(copy), [this, &state, leader] { OnLanded(state, leader); });
}

void Follower::OnLanded(LayerState& state, std::size_t leader) {
  std::vector<Stage>& stages = state.round->stages;
  stages[leader] = Stage::kLanded;
  const auto is_done = [](Stage stage) { return stage == Stage::kNone || stage == Stage::kLanded; };
  if (std::ranges::all_of(stages, is_done)) Finish(state, OkStatus());
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
    if (round == nullptr) continue;
    wire::Wait wait{wire::Wait::For::kMean, model_, LayerId(i), round->share.step, {}};
    for (std::size_t leader = 0; leader < members_.size(); ++leader) {
      if (round->stages[leader] == Stage::kTold) wait.on.push_back(members_[leader]);
    }
    if (!wait.on.empty()) waits->push_back(std::move(wait));
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
