// SPDX-License-Identifier: Apache-2.0
#include "poseidon/kv/server.h"

#include <algorithm>
#include <string>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::kv {
namespace {

// Collectives that peers may be ahead of this member; more is no program.
constexpr std::size_t kMaxOneOffKeys = 1u << 16;
// At least so much may wait for a rank that is late, as much as is kept of the blocks in which it waits.
constexpr std::uint64_t kLeastRunAhead = LandingBlocks::kKeptBytes;
// A grant, which is renewed when half of it has arrived.
constexpr std::uint64_t kGrantBytes = std::uint64_t{4} << 20;

}  // namespace

Server::Server(Executor& executor, messaging::Mesh& mesh, const sync::Topology& topology,
               TraceRecorder* trace, const sync::Strategy& strategy)
    : executor_(executor),
      mesh_(mesh),
      topology_(topology),
      shard_(topology.self_shard().value()),
      trace_(trace),
      strategy_(strategy),
      run_ahead_bytes_(kLeastRunAhead) {}

void Server::Declare(ModelId model, std::span<const plan::LayerSpec> layers,
                     const std::vector<std::vector<plan::Slice>>& slices) {
  POSEIDON_ASSERT_ON(executor_);
  plans_.insert_or_assign(model, plan::History(layers.size()));
  for (std::uint32_t i = 0; i < layers.size(); ++i) {
    if (layers[i].is_table()) continue;  // its rows go from worker to worker
    for (const plan::Slice& slice : slices[i]) {
      if (slice.shard != shard_) continue;
      Hosted hosted;
      hosted.slice = slice;
      hosted.name = layers[i].name;
      hosted.dtype = layers[i].dtype;
      hosted.layer_bytes = layers[i].bytes();
      hosted.shard =
          std::make_unique<Shard>(Shard::Spec{.elements = slice.count,
                                              .dtype = layers[i].dtype,
                                              .ranks = topology_.ranks(),
                                              .local_rank = topology_.self_rank,
                                              // Where ranks are hosts, the weights are in their sums already
                                              // (sync/topology.h).
                                              .scaling = topology_.workers == 0
                                                         ? Scaling::kMean
                                                         : Scaling::kMeanOfSums,
                                              .workers = topology_.workers,
                                              .whole = strategy_.placement != plan::Placement::kEven},
                                  blocks_);
      hosted_.insert_or_assign(Key{model, LayerId(i)}, std::move(hosted));
    }
  }
  run_ahead_bytes_ = std::max(kLeastRunAhead, declared_bytes() / 4);
}

void Server::UsePlan(ModelId model, const plan::Plan& plan) {
  POSEIDON_ASSERT_ON(executor_);
  plans_.at(model).Use(plan);
}

// A one-off key exists from its first contribution to its last result.
Server::Hosted& Server::AddOneOff(const Key& key, const OneOff& called) {
  const DType dtype = called.dtype;
  const std::uint64_t elements = called.bytes / SizeOf(dtype);
  // As Client::PushPull has it: no message says where the slices of a one-off key are.
  const auto owner = static_cast<std::uint16_t>(key.layer.value() % topology_.shards());
  Hosted hosted;
  for (const plan::Slice& slice : plan::MakeSlices(elements, dtype, topology_.shards(), owner)) {
    if (slice.shard == shard_) hosted.slice = slice;
  }
  hosted.dtype = dtype;
  hosted.layer_bytes = elements * SizeOf(dtype);
  hosted.one_off = called;
  hosted.shard = std::make_unique<Shard>(Shard::Spec{.elements = hosted.slice.count,
                                                     .dtype = dtype,
                                                     .ranks = topology_.ranks(),
                                                     .local_rank = topology_.self_rank,
                                                     .scaling = Scaling::kNone},
                                         blocks_);
  ++one_off_keys_;
  return hosted_.emplace(key, std::move(hosted)).first->second;
}

Result<Server::Hosted*> Server::Find(const wire::FrameHeader& header) {
  const Key key = header.key();
  auto found = hosted_.find(key);
  if (found == hosted_.end() && header.model == wire::kCollectiveModel) {
    const std::size_t size = SizeOf(header.dtype);
    // A peer's first frame decides how large the slots become, so its size is bounded before the shard is made.
    if (header.total == 0 || header.total > kMaxCollectiveBytes || header.total % size != 0 ||
        !HasSum(header.dtype)) {
      return DataLoss("a one-off key has an impossible size of " + std::to_string(header.total) +
                      " bytes");
    }
    if (one_off_keys_ >= kMaxOneOffKeys) {
      return ResourceExhausted("more than " + std::to_string(kMaxOneOffKeys) +
                               " one-off keys are under way");
    }
    AddOneOff(key, {header.total, header.dtype, header.weight, header.rank});
    found = hosted_.find(key);
  }
  if (found == hosted_.end()) {
    return DataLoss("a contribution names layer " + std::to_string(header.layer.value()) +
                    ", which this shard does not host");
  }
  Hosted& hosted = found->second;
  const std::uint64_t begin = hosted.slice.first * SizeOf(hosted.dtype);
  const std::uint64_t size = hosted.shard->bytes();
  // Differences of numbers whose order is known: sums of the peer's numbers may wrap. The size is 0 where this shard
  // owns no slice of a small one-off key.
  if (header.dtype != hosted.dtype || header.total != hosted.layer_bytes || header.offset < begin ||
      header.offset - begin > size || header.length > size - (header.offset - begin) || size == 0) {
    return DataLoss("a contribution to layer " + std::to_string(header.layer.value()) +
                    " does not fit the slice of this shard");
  }
  return &hosted;
}

Status Server::CheckSender(MemberId from, const wire::FrameHeader& header) const {
  if (!abandoned_.ok()) return abandoned_;
  if (header.rank.value() >= topology_.ranks() ||
      topology_.worker_of_rank[header.rank.value()] != from) {
    return DataLoss("member " + std::to_string(from.value()) + " contributes as rank " +
                    std::to_string(header.rank.value()) + ", which is not its own");
  }
  return OkStatus();
}

// The length is checked in both calls, because a frame without bytes asks for no place.
Result<Server::Admission> Server::Admit(MemberId from, const wire::FrameHeader& header) {
  POSEIDON_RETURN_IF_ERROR(CheckSender(from, header));
  const bool absent = (header.flags & wire::kFlagAbsent) != 0;
  if (absent != (header.length == 0)) {
    return DataLoss(absent ? "an absent contribution carries bytes" : "a contribution without bytes is not marked absent");
  }
  // Before Find, which would say of another size that it does not fit.
  if (Status differs = CheckOneOff(header); !differs.ok()) return Admission{nullptr, std::move(differs)};
  POSEIDON_ASSIGN_OR_RETURN(Hosted * hosted, Find(header));
  return Admission{hosted, CheckStep(*hosted, header.rank, header.step)};
}

void Server::HandOver(const Status& differs) const {
  if (differing_) differing_(differs);
}

Result<MutableBytes> Server::PlaceFor(MemberId from, const wire::FrameHeader& header) {
  POSEIDON_ASSERT_ON(executor_);
  POSEIDON_ASSIGN_OR_RETURN(const Admission admission, Admit(from, header));
  if (!admission.differs.ok()) return MutableBytes{};  // OnFrame hands it over once the frame is whole
  const Hosted& hosted = *admission.hosted;
  return hosted.shard->PlaceFor(header.rank, header.step, header.offset - hosted.slice.first * SizeOf(hosted.dtype),
                                header.length);
}

Status Server::OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) {
  POSEIDON_ASSERT_ON(executor_);
  POSEIDON_ASSIGN_OR_RETURN(const Admission admission, Admit(from, header));
  if (!admission.differs.ok()) {
    // An error from here would close the connection as that of a broken peer.
    HandOver(admission.differs);
    return OkStatus();
  }
  Hosted& hosted = *admission.hosted;
  if (payload.empty()) {
    POSEIDON_RETURN_IF_ERROR(hosted.shard->Absent(header.rank, header.step));
  } else {
    POSEIDON_RETURN_IF_ERROR(
        // The weight of a one-off key says its kind (kSum, BroadcastFrom) and multiplies nothing.
        hosted.shard->Landed(header.rank, header.step, payload, hosted.one_off ? 0 : header.weight));
  }
  NoteArrival(header.key(), hosted, header);
  Advance(header.key(), hosted);
  return OkStatus();
}

void Server::NoteArrival(const Key& key, Hosted& hosted, const wire::FrameHeader& header) {
  const bool held = (header.flags & wire::kFlagHeld) != 0;
  if (hosted.ahead.empty()) {
    if (!held) return;
    hosted.ahead.resize(topology_.ranks());
  }
  Ahead& ahead = hosted.ahead[header.rank.value()];
  const std::uint64_t arrived = hosted.shard->arrived(header.rank);
  promised_ -= std::min(arrived, ahead.granted) - std::min(arrived - header.length, ahead.granted);
  ahead.held = held;
  static_cast<void>(GrantAhead(key, hosted, header.rank));
}

bool Server::GrantAhead(const Key& key, Hosted& hosted, Rank rank) {
  const Shard& shard = *hosted.shard;
  if (hosted.ahead.empty() || shard.all_have_begun()) return true;
  Ahead& ahead = hosted.ahead[rank.value()];
  const std::uint64_t arrived = shard.arrived(rank);
  const std::uint64_t known = std::max(ahead.granted, arrived);
  const bool will_hold = ahead.granted > arrived && ahead.granted - arrived <= kGrantBytes / 2;
  if (known == shard.bytes() || !(will_hold || HoldsBack(hosted, rank))) return true;
  const std::uint64_t to = std::min(shard.bytes(), arrived + kGrantBytes);
  if (blocks_.bytes_in_use() + promised_ + (to - known) > run_ahead_bytes_) {
    waiting_.emplace(key, rank);
    return false;
  }
  promised_ += to - known;
  ahead.granted = to;
  messaging::Outgoing out;
  out.header.type = wire::FrameType::kGrant;
  out.header.step = shard.step();
  out.header.model = key.model;
  out.header.layer = key.layer;
  out.header.rank = rank;
  out.header.offset = hosted.slice.first * SizeOf(hosted.dtype) + to;
  out.header.total = hosted.layer_bytes;
  out.header.dtype = hosted.dtype;
  out.priority = messaging::kControlPriority;
  mesh_.Send(topology_.worker_of_rank[rank.value()], std::move(out));
  return true;
}

// In the order of the layers, as far as what has become free reaches.
void Server::GrantWaiting() {
  while (!waiting_.empty()) {
    const auto [key, rank] = waiting_.extract(waiting_.begin()).value();
    const auto found = hosted_.find(key);
    if (found != hosted_.end() && !GrantAhead(key, found->second, rank)) return;
  }
}

// Such a rank owes nothing before it is answered.
bool Server::HoldsBack(const Hosted& hosted, Rank rank) const {
  if (hosted.ahead.empty()) return false;
  const Ahead& ahead = hosted.ahead[rank.value()];
  return ahead.held && ahead.granted <= hosted.shard->arrived(rank);
}

void Server::Local(LocalPush push) {
  POSEIDON_ASSERT_ON(executor_);
  if (!abandoned_.ok()) {
    executor_.Post([done = std::move(push.done), reason = abandoned_] { done(reason); });
    return;
  }
  const OneOff called{push.gradient.bytes(), push.gradient.dtype, push.weight, *topology_.self_rank};
  auto found = hosted_.find(push.key);
  if (found == hosted_.end()) {
    POSEIDON_CHECK(push.key.model == wire::kCollectiveModel, "a declared layer is hosted");
    AddOneOff(push.key, called);
    found = hosted_.find(push.key);
  }
  Hosted& hosted = found->second;
  POSEIDON_CHECK(!hosted.one_off || CheckOneOff(push.key, called).ok(),
                 "the sum of another size would be written past this memory");
  if (const Status differs = CheckStep(hosted, *topology_.self_rank, push.step); !differs.ok()) {
    executor_.Post([done = std::move(push.done), differs] { done(differs); });
    return HandOver(differs);
  }
  hosted.local_done = std::move(push.done);
  // The last step has left it true, and FinishIfDone would complete this step at once.
  hosted.whole = false;
  std::byte* const memory = push.gradient.Slice(push.slice.first, push.slice.count).memory;
  const Status status =
      hosted.shard->Local(push.step, memory, push.absent, hosted.one_off ? 0 : push.weight, push.in_parts);
  if (!status.ok()) {
    executor_.Post([done = std::exchange(hosted.local_done, {}), status] { done(status); });
    return;
  }
  Advance(push.key, hosted);
}

void Server::LocalArrived(const Key& key, std::uint64_t bytes) {
  POSEIDON_ASSERT_ON(executor_);
  const auto found = hosted_.find(key);
  // Without a completion nothing is under way: the contribution was refused, or the job has ended.
  if (found == hosted_.end() || !found->second.local_done) return;
  found->second.shard->LocalArrived(bytes);
  Advance(key, found->second);
}

Status Server::CheckOneOff(const Key& key, const OneOff& called) const {
  POSEIDON_ASSERT_ON(executor_);
  const auto found = hosted_.find(key);
  if (found == hosted_.end() || !found->second.one_off) return OkStatus();
  const OneOff& first = *found->second.one_off;
  if (first.dtype == called.dtype && first.bytes == called.bytes && first.kind == called.kind) return OkStatus();
  const auto by = [](const OneOff& one) {
    const std::string kind = one.kind == kSum ? "a sum" : "a broadcast from rank " + std::to_string(one.kind - 1);
    return kind + " of " + std::to_string(one.bytes) + " bytes of " + std::string(NameOf(one.dtype)) + " by rank " +
           std::to_string(one.by.value());
  };
  return InvalidArgument("a collective is called as " + by(called) + " and as " + by(first));
}

Status Server::CheckStep(const Hosted& hosted, Rank rank, Step step) const {
  const std::optional<Shard::Disagreement> begun = hosted.shard->Disagrees(rank, step);
  if (!begun) return OkStatus();
  // One sentence, whoever came first. Ranks may be those of hosts, of which the leaders are named.
  const auto by = [this](Rank of, Step in) {
    return "for step " + std::to_string(in.value()) + " by worker " +
           std::to_string(topology_.worker_of_rank[of.value()].value());
  };
  const std::string one = by(rank, step);
  const std::string other = by(begun->with, begun->step);
  return InvalidArgument("layer '" + hosted.name + "' is pushed " +
                         (rank < begun->with ? one + " and " + other : other + " and " + one));
}

Status Server::CheckOneOff(const wire::FrameHeader& header) const {
  if (header.model != wire::kCollectiveModel) return OkStatus();
  return CheckOneOff(header.key(), {header.total, header.dtype, header.weight, header.rank});
}

void Server::AddWaits(std::vector<wire::Wait>* waits) const {
  POSEIDON_ASSERT_ON(executor_);
  for (const auto& [key, hosted] : hosted_) {
    wire::Wait wait{hosted.one_off ? wire::Wait::For::kCollective : wire::Wait::For::kGradient, key.model, key.layer,
                    hosted.shard->step(), {}};
    for (const Rank rank : hosted.shard->Missing()) {
      if (!HoldsBack(hosted, rank)) wait.on.push_back(topology_.worker_of_rank[rank.value()]);
    }
    if (!wait.on.empty()) waits->push_back(std::move(wait));
  }
}

void Server::Advance(const Key& key, Hosted& hosted) {
  const TimePoint begin = executor_.now();
  const Step step = hosted.shard->step();
  const Shard::Progress progress = hosted.shard->Advance();
  if (progress.end > progress.begin) {
    if (trace_ != nullptr && key.model != wire::kCollectiveModel) {
      trace_->Record({TraceLane::kSum, static_cast<std::int32_t>(key.layer.value()), step.value(),
                      begin, executor_.now(), progress.end - progress.begin, "sum", key.model.value()});
    }
    SendResult(key, hosted, progress);
  }
  if (progress.complete) {
    hosted.whole = true;
    std::ranges::fill(hosted.ahead, Ahead{});
  }
  if (progress.end > progress.begin) GrantWaiting();
  // Last, because it erases a finished one-off key and `hosted` with it.
  FinishIfDone(key, hosted);
}

// One-off keys are in no plan.
std::uint32_t Server::SendPosition(const Key& key, Step step) const {
  const auto plans = plans_.find(key.model);
  if (plans == plans_.end()) return 0;
  return plans->second.At(step).by_layer[key.layer.value()].send_position;
}

void Server::SendResult(const Key& key, Hosted& hosted, const Shard::Progress& progress) {
  wire::FrameHeader header;
  header.type = wire::FrameType::kResult;
  header.step = hosted.shard->step();
  header.model = key.model;
  header.layer = key.layer;
  header.offset = hosted.slice.first * SizeOf(hosted.dtype) + progress.begin;
  header.total = hosted.layer_bytes;
  header.dtype = hosted.dtype;
  const messaging::Priority priority = messaging::PriorityOf(
      strategy_.order, messaging::Leg::kResult, header.step, SendPosition(key, header.step));
  const ConstBytes sum(hosted.shard->sum() + progress.begin, progress.end - progress.begin);
  for (std::uint16_t r = 0; r < topology_.ranks(); ++r) {
    const MemberId worker = topology_.worker_of_rank[r];
    if (worker == topology_.self) continue;
    messaging::Outgoing out;
    out.header = header;
    out.header.rank = Rank(r);
    out.payload = sum;
    out.priority = priority;
    out.left = alive_.Guard([this, key](const Status& status) { OnResultLeft(key, status); });
    ++hosted.unsent;
    mesh_.Send(worker, std::move(out));
  }
}

void Server::OnResultLeft(const Key& key, const Status&) {
  // A result that could not leave is not this shard's failure to report: the peer's end is noticed
  // by whoever watches the members.
  const auto found = hosted_.find(key);
  if (found == hosted_.end()) return;
  --found->second.unsent;
  FinishIfDone(key, found->second);
}

void Server::FinishIfDone(const Key& key, Hosted& hosted) {
  if (!hosted.whole || hosted.unsent > 0) return;
  if (hosted.local_done) {
    executor_.Post([done = std::exchange(hosted.local_done, {})] { done(OkStatus()); });
  }
  // A one-off key goes only now: the frames of its result read the shard's sum until they have left.
  if (!hosted.one_off) return;
  --one_off_keys_;
  hosted_.erase(key);
}

void Server::Abandon(const Status& reason) {
  POSEIDON_ASSERT_ON(executor_);
  abandoned_ = reason;
  for (auto& [key, hosted] : hosted_) {
    if (!hosted.local_done) continue;
    executor_.Post([done = std::exchange(hosted.local_done, {}), reason] { done(reason); });
  }
}

std::uint64_t Server::allocated_bytes() const {
  POSEIDON_ASSERT_ON(executor_);
  std::uint64_t sum = blocks_.allocated_bytes();
  for (const auto& [key, hosted] : hosted_) sum += hosted.shard->sum_bytes();
  return sum;
}

std::uint64_t Server::declared_bytes() const {
  POSEIDON_ASSERT_ON(executor_);
  // With a local rank P - 1 contributions, and the sum in the worker's own memory; without one P and the sum: P + 1.
  const std::uint64_t buffers =
      topology_.self_rank ? topology_.ranks() - 1u : topology_.ranks() + 1u;
  std::uint64_t sum = 0;
  for (const auto& [key, hosted] : hosted_) {
    if (!hosted.one_off) sum += hosted.shard->bytes() * buffers;
  }
  return sum;
}

}  // namespace poseidon::kv
