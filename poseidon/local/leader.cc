// SPDX-License-Identifier: Apache-2.0
#include "poseidon/local/leader.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/local/stretches.h"
#include "poseidon/tensor/sum.h"

namespace poseidon::local {

Leader::Leader(Executor& executor, messaging::Mesh& mesh, std::vector<MemberId> members, std::size_t place,
               const HostMemory& memory, TraceRecorder* trace)
    : executor_(executor), mesh_(mesh), members_(std::move(members)), place_(place), memory_(memory), trace_(trace) {}

void Leader::Declare(ModelId model, std::span<const plan::LayerSpec> layers) {
  POSEIDON_ASSERT_ON(executor_);
  model_ = model;
  for (const plan::LayerSpec& layer : layers) {
    layers_.emplace_back();
    layers_.back().spec = layer;
    layers_.back().arrivals.resize(members_.size());
  }
}

void Leader::Lead(plan::Scheme scheme, std::vector<bool> layers) {
  POSEIDON_ASSERT_ON(executor_);
  led_.insert_or_assign(scheme, std::move(layers));
}

// ---- shares come in

Result<MutableBytes> Leader::PlaceFor(MemberId, const wire::FrameHeader&) {
  POSEIDON_ASSERT_ON(executor_);
  return DataLoss("a message about shared memory carries bytes");
}

Status Leader::Fits(const LayerState& state, const Arrival& arrival) const {
  const bool factors = plan::TakesFactors(arrival.scheme);
  if (factors && !state.spec.factors) {
    return DataLoss("a worker of this host brings factors of layer '" + state.spec.name +
                    "', which has none");
  }
  // A round that has begun has its shares. A follower that holds its mean may bring the next step while this worker
  // still copies the mean (Spread).
  if (state.round && !state.round->begun &&
      (arrival.step != state.round->share.step || arrival.scheme != state.round->share.scheme)) {
    return DataLoss("a worker of this host brings layer '" + state.spec.name + "' of step " +
                    std::to_string(arrival.step.value()) + " as " +
                    std::string(plan::NameOf(arrival.scheme)) + ", expected step " +
                    std::to_string(state.round->share.step.value()) + " as " +
                    std::string(plan::NameOf(state.round->share.scheme)));
  }
  return OkStatus();
}

Status Leader::OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes) {
  POSEIDON_ASSERT_ON(executor_);
  if (!abandoned_.ok()) return abandoned_;
  const auto place = static_cast<std::size_t>(std::find(members_.begin(), members_.end(), from) -
                                              members_.begin());
  if (place == place_ || place == members_.size()) {
    return DataLoss("member " + std::to_string(from.value()) +
                    " speaks of shared memory, which it does not share");
  }
  if (header.model != model_ || header.layer.value() >= layers_.size()) {
    return DataLoss("a message about shared memory names no layer");
  }
  LayerState& state = layers_[header.layer.value()];
  const auto led = led_.find(header.scheme);
  if (led == led_.end() || !led->second[header.layer.value()]) {
    return DataLoss("member " + std::to_string(from.value()) + " brings layer '" + state.spec.name + "' as " +
                    std::string(plan::NameOf(header.scheme)) + ", which this worker does not lead");
  }
  if (state.arrivals[place].here) {
    return DataLoss("member " + std::to_string(from.value()) + " brings layer '" +
                    state.spec.name + "' twice");
  }
  const bool absent = (header.flags & wire::kFlagAbsent) != 0;
  Arrival arrival{.here = true,
                  .step = header.step,
                  .scheme = header.scheme,
                  .absent = absent,
                  .weight = absent ? 0 : header.weight};
  // Before FactorBytes, which needs a layer that has factors.
  POSEIDON_RETURN_IF_ERROR(Fits(state, arrival));
  const bool factors = plan::TakesFactors(arrival.scheme) && !absent;
  if (factors) arrival.rows = header.total / FactorBytes(state.spec, 1);
  const std::uint64_t whole = factors ? FactorBytes(state.spec, arrival.rows) : 0;
  // The product is compared with the total, so that a part of a row is refused; the bound keeps this worker from
  // reading the next worker's slot.
  if (header.total != whole || whole > memory_.slot_bytes(header.layer)) {
    return DataLoss("a worker of this host brings " + std::to_string(header.total) + " bytes of layer '" +
                    state.spec.name + "' as " + std::string(plan::NameOf(arrival.scheme)) +
                    ", expected none, or whole rows that fit its slot");
  }
  state.arrivals[place] = arrival;
  CombineIfComplete(state);
  return OkStatus();
}

void Leader::Combine(const Share& share, TakeCombined combined) {
  POSEIDON_ASSERT_ON(executor_);
  if (!abandoned_.ok()) {
    executor_.Post([combined = std::move(combined), reason = abandoned_] { combined(reason); });
    return;
  }
  LayerState& state = layers_.at(share.layer.value());
  POSEIDON_CHECK(!state.round, "one step per layer at a time");
  state.round = std::make_shared<Round>();
  state.round->share = share;
  state.round->combined = std::move(combined);
  // Those that came before this worker's share could not be compared with it then.
  for (const Arrival& arrival : state.arrivals) {
    if (!arrival.here) continue;
    if (const Status status = Fits(state, arrival); !status.ok()) return Fail(state, status);
  }
  CombineIfComplete(state);
}

void Leader::AddWaits(std::vector<wire::Wait>* waits) const {
  POSEIDON_ASSERT_ON(executor_);
  for (std::uint32_t i = 0; i < layers_.size(); ++i) {
    const LayerState& state = layers_[i];
    const bool own = state.round != nullptr;
    if (own && state.round->begun) continue;
    const auto some = std::find_if(state.arrivals.begin(), state.arrivals.end(), [](const Arrival& a) { return a.here; });
    if (!own && some == state.arrivals.end()) continue;
    wire::Wait wait{wire::Wait::For::kShare, model_, LayerId(i), own ? state.round->share.step : some->step, {}};
    for (std::size_t place = 0; place < members_.size(); ++place) {
      if (place == place_ ? !own : !state.arrivals[place].here) wait.on.push_back(members_[place]);
    }
    if (!wait.on.empty()) waits->push_back(std::move(wait));
  }
}

void Leader::Fail(LayerState& state, const Status& reason) {
  // The round ends here, and with it the summing or copying that a queued stretch would go on with.
  const std::shared_ptr<Round> round = std::exchange(state.round, nullptr);
  executor_.Post([combined = std::move(round->combined), done = std::move(round->done), reason] {
    // `combined` is empty once it has been answered, and `done` is until Spread.
    if (combined) combined(reason);
    if (done) done(reason);
  });
}

// ---- what they make together

void Leader::CombineIfComplete(LayerState& state) {
  if (!state.round || state.round->begun) return;
  for (std::size_t place = 0; place < members_.size(); ++place) {
    if (place != place_ && !state.arrivals[place].here) return;
  }
  Round& round = *state.round;
  round.begun = true;
  std::vector<Arrival> arrivals(members_.size());
  // Emptied for the next step, whose first frames may come before this round ends.
  std::swap(arrivals, state.arrivals);
  const Share& share = round.share;
  const bool factors = plan::TakesFactors(share.scheme);
  arrivals[place_] = {.here = true,
                      .step = share.step,
                      .scheme = share.scheme,
                      .absent = share.absent,
                      .weight = share.absent ? 0 : share.weight,
                      .rows = factors && !share.absent ? share.factors->rows : 0};
  std::uint64_t weight = 0;
  for (const Arrival& arrival : arrivals) weight += arrival.weight;
  // The sum travels in a frame's weight, which has 32 bits.
  if (weight > std::numeric_limits<std::uint32_t>::max()) {
    return Fail(state, InvalidArgument("the weights of layer '" + state.spec.name +
                                       "' on this host add up to more than 32 bits hold"));
  }
  round.result = share;
  round.result.absent = false;
  round.result.weight = static_cast<std::uint32_t>(weight);
  round.result.factors = factors ? std::optional(Factors{}) : std::nullopt;
  // There the others read the mean. The place is free: each of them had copied the last mean before it brought this step.
  if (memory_.is_shared() && share.gathered == nullptr) round.result.gradient.memory = memory_.MeanOf(share.layer);
  if (factors) {
    CombineFactors(state, std::move(arrivals));
  } else {
    CombineDense(state, std::move(arrivals));
  }
}

void Leader::CombineDense(LayerState& state, std::vector<Arrival> arrivals) {
  const std::shared_ptr<Round> round = state.round;
  std::vector<Summand> summands;
  std::size_t present = 0;
  for (std::size_t place = 0; place < arrivals.size(); ++place) {
    if (arrivals[place].absent) continue;
    const std::byte* const memory =
        place == place_ ? round->share.gradient.memory : memory_.SlotOf(round->share.layer, place);
    summands.push_back({memory, arrivals[place].weight});
    ++present;
  }
  round->result.absent = present == 0;
  // Nothing to add, and nothing to move.
  if (present == 0 || (!memory_.is_shared() && round->result.weight == 0)) return Answer(round);

  const std::uint64_t bytes = BytesIn(OwnPart(round->share));
  state.moved += (summands.size() - (arrivals[place_].absent ? 0 : 1)) * bytes;
  const DType dtype = state.spec.dtype;
  const TimePoint begin = executor_.now();
  InStretches(
      executor_, round, OwnPart(round->share),
      [summands, dtype, out = round->result.gradient.memory](std::uint64_t first,
                                                                  std::uint64_t end) {
        std::vector<Summand> part = summands;
        for (Summand& c : part) c.memory += first;
        // Unscaled: the mean is divided once, where the sums of the hosts meet (Scaling::kMeanOfSums).
        SumInRankOrder(part, part.size(), (end - first) / SizeOf(dtype), dtype, Scaling::kNone,
                       out + first);
      },
      [this, weak = std::weak_ptr<Round>(round), begin, bytes] {
        const auto self = weak.lock();
        if (trace_ != nullptr) {
          trace_->Record({TraceLane::kSum, static_cast<std::int32_t>(self->share.layer.value()),
                          self->share.step.value(), begin, executor_.now(), bytes, "local sum",
                          model_.value()});
        }
        Answer(self);
      });
}

void Leader::CombineFactors(LayerState& state, std::vector<Arrival> arrivals) {
  Round& round = *state.round;
  const bool weighted = round.result.weight != 0;
  for (Arrival& arrival : arrivals) {
    if (weighted && arrival.weight == 0) arrival.rows = 0;  // adds nothing, whatever is in it
  }
  std::uint64_t rows = 0;
  for (const Arrival& arrival : arrivals) rows += arrival.rows;
  if (rows > std::numeric_limits<std::uint32_t>::max()) {
    return Fail(state, InvalidArgument("the rows of layer '" + state.spec.name +
                                       "' on this host are more than 32 bits count"));
  }
  if (!memory_.is_shared() && !weighted) {
    if (arrivals[place_].rows != 0) round.result.factors = round.share.factors;
  } else {
    state.u.resize(FactorUBytes(state.spec, rows));
    state.v.resize(FactorBytes(state.spec, rows) - state.u.size());
    std::byte* u = state.u.data();
    std::byte* v = state.v.data();
    for (std::size_t place = 0; place < arrivals.size(); ++place) {
      const std::uint64_t own = arrivals[place].rows;
      if (own == 0) continue;
      const std::uint64_t u_bytes = FactorUBytes(state.spec, own);
      const std::uint64_t v_bytes = FactorBytes(state.spec, own) - u_bytes;
      const bool is_own = place == place_;
      const std::byte* const slot = is_own ? nullptr : memory_.SlotOf(round.share.layer, place);
      // Only u: a weight on both factors would count twice in u^T v, and the bias is made of u alone.
      // A sum of one: multiplied by its weight on the way, where it has one.
      const Summand all{is_own ? round.share.factors->u : slot, arrivals[place].weight};
      SumInRankOrder({&all, 1}, 1, own * state.spec.factors->outputs, state.spec.dtype, Scaling::kNone, u);
      std::memcpy(v, is_own ? round.share.factors->v : slot + u_bytes, v_bytes);
      u += u_bytes;
      v += v_bytes;
      if (!is_own) state.moved += u_bytes + v_bytes;
    }
    round.result.factors = Factors{state.u.data(), state.v.data(), static_cast<std::uint32_t>(rows)};
  }
  Answer(state.round);
}

void Leader::Answer(const std::shared_ptr<Round>& round) {
  std::exchange(round->combined, {})(round->result);
}

// ---- the mean goes out

void Leader::Spread(LayerId layer, const Status& status, Completion done) {
  POSEIDON_ASSERT_ON(executor_);
  LayerState& state = layers_.at(layer.value());
  // Abandon may have ended the round while the hosts were exchanging.
  if (!status.ok() || !state.round) {
    state.round.reset();
    executor_.Post([done = std::move(done), reason = status.ok() ? abandoned_ : status] { done(reason); });
    return;
  }
  state.round->done = std::move(done);
  if (state.round->share.gathered != nullptr) return SpreadGathered(state);
  // The frames leave before this worker copies: all copies only read the mean, and may overlap.
  SayItIsThere(state, 0);
  const std::byte* const mean = state.round->result.gradient.memory;
  std::byte* const into = state.round->share.gradient.memory;
  std::vector<ByteRange> part;
  if (mean != into && !state.round->share.mean_stays) part = OwnPart(state.round->share);
  state.moved += BytesIn(part);
  InStretches(executor_, state.round, std::move(part), Copy(mean, into), [this, &state] { EndRound(state, OkStatus()); });
}

// This worker has its own already: the exchange among hosts gathered it.
void Leader::SpreadGathered(LayerState& state) {
  if (!memory_.is_shared()) return EndRound(state, OkStatus());
  const factors::GatheredRows& rows = *state.round->share.gathered;
  const LayerId layer = state.round->share.layer;
  const std::uint64_t u_bytes = FactorUBytes(state.spec, rows.rows());
  const std::uint64_t bytes = FactorBytes(state.spec, rows.rows());
  if (bytes > memory_.slot_bytes(layer)) {
    return EndRound(state, TooManyRows(state.spec, rows.rows(), memory_.slot_bytes(layer)));
  }
  state.moved += bytes;
  std::byte* const mean = memory_.MeanOf(layer);
  InStretches(executor_, state.round, {{0, bytes}}, CopyBoth(u_bytes, rows.u(), rows.v(), mean, mean + u_bytes),
              [this, &state, bytes] {
                SayItIsThere(state, bytes);
                EndRound(state, OkStatus());
              });
}

void Leader::SayItIsThere(const LayerState& state, std::uint64_t bytes) {
  const Share& share = state.round->share;
  for (std::size_t place = 0; place < members_.size(); ++place) {
    if (place == place_) continue;
    messaging::Outgoing word;
    word.header.type = wire::FrameType::kLocal;
    word.header.flags = wire::kFlagMean;
    word.header.step = share.step;
    word.header.model = model_;
    word.header.layer = share.layer;
    word.header.dtype = state.spec.dtype;
    word.header.scheme = share.scheme;
    word.header.total = bytes;
    word.priority = messaging::kControlPriority;
    mesh_.Send(members_[place], std::move(word));
  }
}

void Leader::EndRound(LayerState& state, const Status& status) {
  const std::shared_ptr<Round> finished = std::exchange(state.round, nullptr);
  executor_.Post([done = std::move(finished->done), status] { done(status); });
}

void Leader::Abandon(const Status& reason) {
  POSEIDON_ASSERT_ON(executor_);
  abandoned_ = reason;
  for (LayerState& state : layers_) {
    if (state.round) Fail(state, reason);
  }
}

std::uint64_t Leader::moved_bytes(LayerId layer) const {
  POSEIDON_ASSERT_ON(executor_);
  return layer.value() < layers_.size() ? layers_[layer.value()].moved : 0;
}

std::uint64_t Leader::allocated_bytes() const {
  POSEIDON_ASSERT_ON(executor_);
  std::uint64_t sum = 0;
  for (const LayerState& state : layers_) {
    sum += state.u.capacity() + state.v.capacity();
  }
  return sum;
}

}  // namespace poseidon::local
