// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sfb/broadcaster.h"

#include <limits>
#include <string>
#include <utility>

namespace poseidon::sfb {

using factors::Concatenation;
using factors::Part;
using factors::WeightedRows;

namespace {

Part PartOf(const wire::FrameHeader& header) {
  return (header.flags & wire::kFlagFactorV) != 0 ? Part::kV : Part::kU;
}

// Bytes of a row.
std::uint64_t WidthOf(const plan::FactorShape& shape, DType dtype, Part part) {
  return part == Part::kU ? shape.u_bytes_per_row(dtype) : shape.v_bytes_per_row(dtype);
}

}  // namespace

Broadcaster::Broadcaster(Executor& executor, Executor& compute, messaging::Mesh& mesh,
                         const sync::Topology& topology, factors::ProductEngine* engine, TraceRecorder* trace)
    : executor_(executor),
      compute_(compute),
      mesh_(mesh),
      topology_(topology),
      engine_(engine),
      trace_(trace) {}

void Broadcaster::Declare(const wire::Key& key, const plan::LayerSpec& spec) {
  POSEIDON_CHECK(engine_ != nullptr || spec.is_table(), "products need an engine");
  layers_.emplace(key, LayerState{.shape = *spec.factors,
                                  .dtype = spec.dtype,
                                  .store = factors::FactorStore(*spec.factors, spec.dtype, topology_.ranks()),
                                  .outstanding = std::nullopt});
}

void Broadcaster::Expect(const wire::Key& key, Rank rank, std::uint32_t rows) {
  const auto found = layers_.find(key);
  if (found != layers_.end() && rank.value() < topology_.ranks()) {
    found->second.store.Expect(rank, rows);
  }
}

void Broadcaster::Broadcast(const wire::Key& key, sync::SyncRequest request) {
  if (!abandoned_.ok()) {
    executor_.Post([done = std::move(request.done), reason = abandoned_] { done(reason); });
    return;
  }
  const auto found = layers_.find(key);
  POSEIDON_CHECK(found != layers_.end(), "a layer that broadcasts factors has been declared so");
  POSEIDON_CHECK(request.absent || request.factors.has_value(), "a factor layer is given its factors");
  LayerState& state = found->second;
  POSEIDON_CHECK(!state.outstanding, "one step per layer at a time");
  if (request.absent) {
    request.factors = Factors{};
    request.weight = 0;
  }
  state.outstanding = Outstanding{};
  state.outstanding->step = request.step;
  state.outstanding->gradient = request.gradient.memory;
  state.outstanding->gathered = request.gathered;
  state.outstanding->done = std::move(request.done);

  const Factors& own = *request.factors;
  const Status put = state.store.Put(*topology_.self_rank, request.step, own, request.weight);
  if (!put.ok()) {
    state.outstanding->failure = put;
    state.outstanding->rebuilt = true;
    return FinishIfDone(state);
  }
  // Without rows one empty frame says all there is to say; a second would come after the others had
  // gone on.
  SendPart(key, state, request, own, Part::kU);
  if (own.rows > 0) SendPart(key, state, request, own, Part::kV);
  RebuildIfComplete(key);
}

void Broadcaster::SendPart(const wire::Key& key, LayerState& state, const sync::SyncRequest& request, const Factors& own,
                           Part part) {
  const std::uint64_t bytes = own.rows * WidthOf(state.shape, state.dtype, part);
  for (const MemberId peer : topology_.worker_of_rank) {
    if (peer == topology_.self) continue;
    messaging::Outgoing out;
    out.header.type = wire::FrameType::kFactor;
    out.header.plan_epoch = request.plan_epoch;
    out.header.step = request.step;
    out.header.model = key.model;
    out.header.rank = *topology_.self_rank;
    out.header.layer = key.layer;
    out.header.total = bytes;
    out.header.weight = request.weight;
    out.header.dtype = state.dtype;
    out.header.scheme = plan::Scheme::kFactorBroadcast;
    out.header.flags = part == Part::kV ? wire::kFlagFactorV : std::uint16_t{0};
    if (bytes == 0 && request.weight == 0) out.header.flags |= wire::kFlagAbsent;
    out.payload = ConstBytes(part == Part::kU ? own.u : own.v, bytes);
    out.priority = request.priority;
    out.left =
        alive_.Guard([this, key, step = request.step](const Status& status) { OnLeft(key, step, status); });
    ++state.outstanding->unsent;
    mesh_.Send(peer, std::move(out));
  }
}

Result<Broadcaster::LayerState*> Broadcaster::Find(MemberId from, const wire::FrameHeader& header) {
  if (!abandoned_.ok()) return abandoned_;
  if (header.rank.value() >= topology_.ranks() ||
      topology_.worker_of_rank[header.rank.value()] != from) {
    return DataLoss("member " + std::to_string(from.value()) + " sends factors as rank " +
                    std::to_string(header.rank.value()) + ", which is not its own");
  }
  const auto found = layers_.find(header.key());
  if (found == layers_.end() || found->second.dtype != header.dtype) {
    return DataLoss("factors name layer " + std::to_string(header.layer.value()) +
                    ", which has none of that dtype");
  }
  LayerState& state = found->second;
  const std::uint64_t width = WidthOf(state.shape, state.dtype, PartOf(header));
  if (header.total % width != 0 || header.total / width > std::numeric_limits<std::uint32_t>::max()) {
    return DataLoss("factors of layer " + std::to_string(header.layer.value()) + " have " +
                    std::to_string(header.total) + " bytes, expected whole rows of " + std::to_string(width));
  }
  return &state;
}

WeightedRows Broadcaster::Brought(const LayerState& state, const wire::FrameHeader& header) {
  const std::uint64_t width = WidthOf(state.shape, state.dtype, PartOf(header));
  return {static_cast<std::uint32_t>(header.total / width), header.weight};
}

Result<MutableBytes> Broadcaster::PlaceFor(MemberId from, const wire::FrameHeader& header) {
  POSEIDON_ASSIGN_OR_RETURN(LayerState * state, Find(from, header));
  return state->store.PlaceFor(header.rank, header.step, PartOf(header), Brought(*state, header),
                               header.offset, header.length);
}

Status Broadcaster::OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) {
  POSEIDON_ASSIGN_OR_RETURN(LayerState * state, Find(from, header));
  POSEIDON_RETURN_IF_ERROR(state->store.Landed(header.rank, header.step, PartOf(header),
                                               Brought(*state, header), payload.size()));
  RebuildIfComplete(header.key());
  return OkStatus();
}

void Broadcaster::AddWaits(std::vector<wire::Wait>* waits) const {
  for (const auto& [key, state] : layers_) {
    const std::optional<Step> step = state.store.earliest();
    if (!step) continue;
    wire::Wait wait{wire::Wait::For::kFactors, key.model, key.layer, *step, {}};
    for (const Rank rank : state.store.Missing(*step)) wait.on.push_back(topology_.worker_of_rank[rank.value()]);
    if (!wait.on.empty()) waits->push_back(std::move(wait));
  }
}

void Broadcaster::RebuildIfComplete(const wire::Key& key) {
  LayerState& state = layers_.find(key)->second;
  if (!state.outstanding || state.outstanding->rebuilding) return;
  const Step step = state.outstanding->step;
  if (!state.store.Complete(step)) return;
  state.outstanding->rebuilding = true;
  Result<Concatenation> all = state.store.Concatenate(step);
  if (!all.ok()) return OnRebuilt(key, step, all.status());

  // The mean over workers, or over what their weights count: the one place where a factor layer is divided is the
  // product's alpha.
  const double alpha = 1.0 / static_cast<double>(all->weight != 0 ? all->weight : topology_.contributors());
  if (topology_.workers != 0) all->ranks.clear();  // a host's rows are multiplied already
  auto rebuilt = alive_.Guard([this, key, step](const Status& status) { OnRebuilt(key, step, status); });
  compute_.Post([rebuilt = std::move(rebuilt), key, step, rows = *std::move(all), alpha,
                 shape = state.shape, dtype = state.dtype, gradient = state.outstanding->gradient,
                 gathered = state.outstanding->gathered, &executor = executor_, engine = engine_, &compute = compute_,
                 trace = trace_]() mutable {
    const TimePoint begin = compute.now();
    const Status status = shape.table ? gathered->Take(shape, dtype, rows, alpha)
                                      : factors::RebuildGradient(shape, dtype, rows, alpha, *engine, gradient);
    if (trace != nullptr) {
      trace->Record({TraceLane::kRebuild, static_cast<std::int32_t>(key.layer.value()),
                     step.value(), begin, compute.now(), 0, "rebuild", key.model.value()});
    }
    executor.Post([rebuilt = std::move(rebuilt), status]() mutable { rebuilt(status); });
  });
}

void Broadcaster::OnRebuilt(const wire::Key& key, Step step, const Status& status) {
  LayerState& state = layers_.find(key)->second;
  if (!state.outstanding || state.outstanding->step != step) return;
  state.store.Release(step);
  if (state.outstanding->gathered != nullptr) state.gathered_bytes = state.outstanding->gathered->allocated_bytes();
  state.outstanding->rebuilt = true;
  if (state.outstanding->failure.ok()) state.outstanding->failure = status;
  FinishIfDone(state);
}

void Broadcaster::OnLeft(const wire::Key& key, Step step, const Status& status) {
  LayerState& state = layers_.find(key)->second;
  // Abandon has settled what had not left.
  if (!abandoned_.ok() || !state.outstanding || state.outstanding->step != step) return;
  --state.outstanding->unsent;
  if (state.outstanding->failure.ok()) state.outstanding->failure = status;
  FinishIfDone(state);
}

void Broadcaster::FinishIfDone(LayerState& state) {
  Outstanding& outstanding = *state.outstanding;
  if (!outstanding.rebuilt || outstanding.unsent > 0) return;
  executor_.Post([done = std::move(outstanding.done), failure = outstanding.failure] {
    done(failure);
  });
  state.outstanding.reset();
}

// A product under way still writes the gradient: its request completes when it has ended.
void Broadcaster::Abandon(const Status& reason) {
  abandoned_ = reason;
  for (auto& [key, state] : layers_) {
    if (!state.outstanding) continue;
    Outstanding& outstanding = *state.outstanding;
    if (outstanding.failure.ok()) outstanding.failure = reason;
    outstanding.unsent = 0;
    if (!outstanding.rebuilding) outstanding.rebuilt = true;
    FinishIfDone(state);
  }
}

std::uint64_t Broadcaster::allocated_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [key, state] : layers_) sum += state.store.allocated_bytes() + state.gathered_bytes;
  return sum;
}

}  // namespace poseidon::sfb
