// SPDX-License-Identifier: Apache-2.0
#include "poseidon/kv/client.h"

#include <algorithm>
#include <string>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::kv {

Client::Client(Executor& executor, messaging::Mesh& mesh, const sync::Topology& topology, Server* local)
    : executor_(executor),
      mesh_(mesh),
      topology_(topology),
      local_(local) {}

void Client::Declare(ModelId model, const std::vector<std::vector<plan::Slice>>& slices) {
  POSEIDON_ASSERT_ON(executor_);
  slices_.insert_or_assign(model, slices);
}

std::vector<plan::Slice> Client::SlicesOf(const Key& key, const TensorView& gradient) const {
  if (key.model != wire::kCollectiveModel) return slices_.at(key.model).at(key.layer.value());
  // A small key goes whole to one shard (plan::MakeSlices). The layer of a one-off key counts the collectives, so
  // that they take the shards in turn. The server derives the same owner (Server::AddOneOff).
  const auto owner = static_cast<std::uint16_t>(key.layer.value() % topology_.shards());
  return plan::MakeSlices(gradient.elements, gradient.dtype, topology_.shards(), owner);
}

void Client::PushPull(const Key& key, sync::SyncRequest request) {
  POSEIDON_ASSERT_ON(executor_);
  if (!abandoned_.ok()) {
    executor_.Post([done = std::move(request.done), reason = abandoned_] { done(reason); });
    return;
  }
  POSEIDON_CHECK(!outstanding_.contains(key), "one request per key at a time");
  const TensorView gradient = request.gradient;
  const bool in_parts = request.in_parts;
  Outstanding outstanding{.landings = sync::Landings(request.step, gradient),
                          .request = std::move(request),
                          .slices = SlicesOf(key, gradient),
                          .serial = next_serial_++};
  const std::uint64_t size = SizeOf(gradient.dtype);
  for (const plan::Slice& slice : outstanding.slices) {
    const MemberId owner = topology_.owner_of_shard[slice.shard];
    ++outstanding.pending;
    if (owner != topology_.self) outstanding.landings.Expect(owner, slice.first * size, slice.count * size);
  }
  outstanding_.emplace(key, std::move(outstanding));
  if (!in_parts) Arrived(key, gradient.elements);
}

void Client::Arrived(const Key& key, std::uint64_t elements) {
  POSEIDON_ASSERT_ON(executor_);
  const auto found = outstanding_.find(key);
  if (found == outstanding_.end()) return;
  Outstanding& outstanding = found->second;
  const std::uint64_t before = std::exchange(outstanding.arrived, elements);
  POSEIDON_CHECK(before < elements && elements <= outstanding.request.gradient.elements, "a contribution grows to its end");
  for (const plan::Slice& slice : outstanding.slices) {
    const Stretch stretch{std::max(slice.first, before), std::min(slice.first + slice.count, elements)};
    if (stretch.begin < stretch.end) PushStretch(key, outstanding, slice, stretch);
  }
}

Completion Client::PartDone(const Key& key, std::uint64_t serial) {
  return alive_.Guard([this, key, serial](const Status& status) { OnPartDone(key, serial, status); });
}

void Client::PushStretch(const Key& key, Outstanding& outstanding, const plan::Slice& slice, const Stretch& stretch) {
  const sync::SyncRequest& request = outstanding.request;
  const std::uint64_t size = SizeOf(request.gradient.dtype);
  const MemberId owner = topology_.owner_of_shard[slice.shard];
  if (owner == topology_.self) {
    if (stretch.begin == slice.first) {
      local_->Local({request, key, slice, PartDone(key, outstanding.serial)});
    }
    if (request.in_parts) local_->LocalArrived(key, (stretch.end - slice.first) * size);
    return;
  }
  messaging::Outgoing out;
  out.header.type = wire::FrameType::kPush;
  out.header.step = request.step;
  out.header.model = key.model;
  out.header.rank = *topology_.self_rank;
  out.header.layer = key.layer;
  out.header.offset = stretch.begin * size;
  out.header.total = request.gradient.bytes();
  out.header.weight = request.weight;
  out.header.dtype = request.gradient.dtype;
  if (request.absent) {
    out.header.flags = wire::kFlagAbsent;
  } else {
    out.payload = request.gradient.Slice(stretch.begin, stretch.end - stretch.begin).span();
  }
  out.priority = request.priority;
  out.left = PartDone(key, outstanding.serial);
  ++outstanding.pending;
  mesh_.Send(owner, std::move(out));
}

Result<MutableBytes> Client::PlaceFor(MemberId from, const wire::FrameHeader& header) {
  POSEIDON_ASSERT_ON(executor_);
  const auto found = outstanding_.find(header.key());
  if (found == outstanding_.end()) {
    // After Abandon the gradient is no longer lent: the channel keeps the bytes itself.
    if (!abandoned_.ok()) return MutableBytes{};
    return sync::NothingPushed(header);
  }
  const Outstanding& outstanding = found->second;
  POSEIDON_ASSIGN_OR_RETURN(const MutableBytes place, outstanding.landings.PlaceFor(from, header));
  // Behind what was handed on the gradient is still being written, and a mean of it cannot exist.
  const TensorView& gradient = outstanding.request.gradient;
  if (place.data() + place.size() > gradient.memory + outstanding.arrived * SizeOf(gradient.dtype)) {
    return DataLoss("a result for layer " + std::to_string(header.layer.value()) +
                    " came before this worker's contribution to it");
  }
  return place;
}

Status Client::OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes) {
  POSEIDON_ASSERT_ON(executor_);
  const Key key = header.key();
  const auto found = outstanding_.find(key);
  if (found == outstanding_.end()) {  // a frame without bytes had no place asked for
    return abandoned_.ok() ? sync::NothingPushed(header) : OkStatus();
  }
  Outstanding& outstanding = found->second;
  POSEIDON_ASSIGN_OR_RETURN(const bool whole, outstanding.landings.Landed(from, header));
  if (whole) OnPartDone(key, outstanding.serial, OkStatus());
  return OkStatus();
}

void Client::OnPartDone(const Key& key, std::uint64_t serial, const Status& status) {
  const auto found = outstanding_.find(key);
  if (found == outstanding_.end() || found->second.serial != serial) return;
  Outstanding& outstanding = found->second;
  if (outstanding.failure.ok()) outstanding.failure = status;
  if (--outstanding.pending > 0) return;
  // Posted, because `done` may push the same key again, and the key must be free by then.
  executor_.Post([done = std::move(outstanding.request.done), failure = outstanding.failure] {
    done(failure);
  });
  outstanding_.erase(found);
}

void Client::AddWaits(std::vector<wire::Wait>* waits) const {
  POSEIDON_ASSERT_ON(executor_);
  for (const auto& [key, outstanding] : outstanding_) {
    if (outstanding.whole()) outstanding.landings.AddWaits(key, waits);
  }
}

void Client::Abandon(const Status& reason) {
  POSEIDON_ASSERT_ON(executor_);
  // Frames that read the gradients are not waited for: all connections have closed before (Ending::Finish).
  abandoned_ = reason;
  std::map<Key, Outstanding> abandoned = std::exchange(outstanding_, {});
  for (auto& [key, outstanding] : abandoned) {
    executor_.Post([done = std::move(outstanding.request.done), reason] { done(reason); });
  }
}

}  // namespace poseidon::kv
