// SPDX-License-Identifier: Apache-2.0
#include "poseidon/kv/client.h"

#include <string>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::kv {
namespace {

Status NothingPushed(const wire::FrameHeader& header) {
  return DataLoss("a result came for layer " + std::to_string(header.layer.value()) +
                  ", for which nothing was pushed");
}

}  // namespace

Client::Client(Executor& executor, messaging::Mesh& mesh, const sync::Topology& topology, Server* local)
    : executor_(executor),
      mesh_(mesh),
      topology_(topology),
      local_(local) {}

void Client::Declare(ModelId model, const std::vector<std::vector<plan::Slice>>& slices) {
  POSEIDON_ASSERT_ON(executor_);
  slices_.insert_or_assign(model, slices);
}

void Client::PushPull(const Key& key, sync::SyncRequest request) {
  POSEIDON_ASSERT_ON(executor_);
  if (!abandoned_.ok()) {
    executor_.Post([done = std::move(request.done), reason = abandoned_] { done(reason); });
    return;
  }
  POSEIDON_CHECK(!outstanding_.contains(key), "one request per key at a time");
  Outstanding outstanding;
  outstanding.step = request.step;
  outstanding.gradient = request.gradient;
  if (key.model == wire::kCollectiveModel) {
    // A small key goes whole to one shard (plan::MakeSlices). The layer of a one-off key counts the collectives, so
    // that they take the shards in turn. The server derives the same owner (Server::AddOneOff).
    const auto owner = static_cast<std::uint16_t>(key.layer.value() % topology_.shards());
    outstanding.slices = plan::MakeSlices(request.gradient.elements, request.gradient.dtype,
                                          topology_.shards(), owner);
  } else {
    outstanding.slices = slices_.at(key.model).at(key.layer.value());
  }
  outstanding.landed.assign(outstanding.slices.size(), 0);
  outstanding.done = std::move(request.done);
  outstanding.serial = next_serial_++;
  // A remote slice is pending twice: its push has to leave, its result has to land.
  for (const plan::Slice& slice : outstanding.slices) {
    outstanding.pending += topology_.owner_of_shard[slice.shard] == topology_.self ? 1 : 2;
  }
  const std::uint64_t serial = outstanding.serial;
  const std::vector<plan::Slice> slices = outstanding.slices;
  outstanding_.emplace(key, std::move(outstanding));
  for (const plan::Slice& slice : slices) PushSlice(key, request, slice, serial);
}

Completion Client::PartDone(const Key& key, std::uint64_t serial) {
  return alive_.Guard([this, key, serial](const Status& status) { OnPartDone(key, serial, status); });
}

void Client::PushSlice(const Key& key, const sync::SyncRequest& request, const plan::Slice& slice,
                       std::uint64_t serial) {
  const TensorView part = request.gradient.Slice(slice.first, slice.count);
  const MemberId owner = topology_.owner_of_shard[slice.shard];
  if (owner == topology_.self) {
    local_->Local({.key = key,
                   .step = request.step,
                   .slice = slice,
                   .layer_elements = request.gradient.elements,
                   .dtype = request.gradient.dtype,
                   .slice_memory = part.memory,
                   .absent = request.absent,
                   .weight = request.weight,
                   .done = PartDone(key, serial)});
    return;
  }
  messaging::Outgoing out;
  out.header.type = wire::FrameType::kPush;
  out.header.plan_epoch = request.plan_epoch;
  out.header.step = request.step;
  out.header.model = key.model;
  out.header.rank = *topology_.self_rank;
  out.header.layer = key.layer;
  out.header.offset = slice.first * SizeOf(request.gradient.dtype);
  out.header.total = request.gradient.bytes();
  out.header.weight = request.weight;
  out.header.dtype = request.gradient.dtype;
  if (request.absent) {
    out.header.flags = wire::kFlagAbsent;
  } else {
    out.payload = part.span();
  }
  out.priority = request.priority;
  out.left = PartDone(key, serial);
  mesh_.Send(owner, std::move(out));
}

// A result is legal where this worker waits for it: the step, the sender's own slice, and exactly
// the bytes that come next.
Result<std::size_t> Client::SliceOf(MemberId from, const wire::FrameHeader& header,
                                    const Outstanding& outstanding) const {
  const DType dtype = outstanding.gradient.dtype;
  // The payload lands at header.offset of the gradient, so every field is compared. A frame without bytes would
  // otherwise match the end of a landed slice and complete it a second time.
  if (header.step == outstanding.step && header.dtype == dtype &&
      header.total == outstanding.gradient.bytes() && header.length > 0) {
    for (std::size_t i = 0; i < outstanding.slices.size(); ++i) {
      const plan::Slice& slice = outstanding.slices[i];
      if (topology_.owner_of_shard[slice.shard] != from) continue;
      const std::uint64_t expected = slice.first * SizeOf(dtype) + outstanding.landed[i];
      const std::uint64_t end = (slice.first + slice.count) * SizeOf(dtype);
      if (header.offset == expected && header.length <= end - expected) return i;
    }
  }
  return DataLoss("a result for layer " + std::to_string(header.layer.value()) + ", step " +
                  std::to_string(header.step.value()) + " is not the one expected from member " +
                  std::to_string(from.value()));
}

Result<MutableBytes> Client::PlaceFor(MemberId from, const wire::FrameHeader& header) {
  POSEIDON_ASSERT_ON(executor_);
  const auto found = outstanding_.find(header.key());
  if (found == outstanding_.end()) {
    // After Abandon the gradient is no longer lent: the channel keeps the bytes itself.
    if (!abandoned_.ok()) return MutableBytes{};
    return NothingPushed(header);
  }
  POSEIDON_ASSIGN_OR_RETURN(std::size_t slice, SliceOf(from, header, found->second));
  static_cast<void>(slice);
  return found->second.gradient.span().subspan(header.offset, header.length);
}

Status Client::OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes) {
  POSEIDON_ASSERT_ON(executor_);
  const Key key = header.key();
  const auto found = outstanding_.find(key);
  if (found == outstanding_.end()) {  // a frame without bytes had no place asked for
    return abandoned_.ok() ? NothingPushed(header) : OkStatus();
  }
  Outstanding& outstanding = found->second;
  POSEIDON_ASSIGN_OR_RETURN(std::size_t i, SliceOf(from, header, outstanding));
  outstanding.landed[i] += header.length;
  if (outstanding.landed[i] == outstanding.slices[i].count * SizeOf(header.dtype)) {
    OnPartDone(key, outstanding.serial, OkStatus());
  }
  return OkStatus();
}

void Client::OnPartDone(const Key& key, std::uint64_t serial, const Status& status) {
  const auto found = outstanding_.find(key);
  if (found == outstanding_.end() || found->second.serial != serial) return;
  Outstanding& outstanding = found->second;
  if (outstanding.failure.ok()) outstanding.failure = status;
  if (--outstanding.pending > 0) return;
  // Posted, because `done` may push the same key again, and the key must be free by then.
  executor_.Post([done = std::move(outstanding.done), failure = outstanding.failure] {
    done(failure);
  });
  outstanding_.erase(found);
}

void Client::AddWaits(std::vector<wire::Wait>* waits) const {
  POSEIDON_ASSERT_ON(executor_);
  for (const auto& [key, outstanding] : outstanding_) {
    wire::Wait wait{wire::Wait::For::kMean, key.model, key.layer, outstanding.step, {}};
    for (std::size_t i = 0; i < outstanding.slices.size(); ++i) {
      const plan::Slice& slice = outstanding.slices[i];
      const MemberId owner = topology_.owner_of_shard[slice.shard];
      if (owner != topology_.self && outstanding.landed[i] < slice.count * SizeOf(outstanding.gradient.dtype)) {
        wait.on.push_back(owner);
      }
    }
    if (!wait.on.empty()) waits->push_back(std::move(wait));
  }
}

void Client::Abandon(const Status& reason) {
  POSEIDON_ASSERT_ON(executor_);
  // Frames that read the gradients are not waited for: all connections have closed before (Ending::Finish).
  abandoned_ = reason;
  std::map<Key, Outstanding> abandoned = std::exchange(outstanding_, {});
  for (auto& [key, outstanding] : abandoned) {
    executor_.Post([done = std::move(outstanding.done), reason] { done(reason); });
  }
}

}  // namespace poseidon::kv
