// SPDX-License-Identifier: Apache-2.0
#include "poseidon/kv/client.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::kv {
namespace {

constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max() / 2;  // a window without bounds

}  // namespace

Client::Client(Executor& executor, messaging::Mesh& mesh, const sync::Topology& topology, Server* local,
               plan::Placement placement)
    : executor_(executor),
      mesh_(mesh),
      topology_(topology),
      local_(local),
      windows_(placement == plan::Placement::kEven) {}

void Client::Declare(ModelId model, const std::vector<std::vector<plan::Slice>>& slices) {
  POSEIDON_ASSERT_ON(executor_);
  for (std::uint32_t i = 0; i < slices.size(); ++i) {
    POSEIDON_CHECK(std::ranges::is_sorted(slices[i], {}, &plan::Slice::first), "slices come in the order of the gradient");
    rows_.insert_or_assign(Key{model, LayerId(i)}, Row{.slices = slices[i]});
  }
}

Client::Row* Client::Find(const Key& key) {
  const auto found = rows_.find(key);
  return found == rows_.end() || !found->second.under_way ? nullptr : &found->second;
}

Client::Row& Client::RowFor(const Key& key, const TensorView& gradient) {
  if (key.model != wire::kCollectiveModel) return rows_.at(key);
  // A small key does not go to every shard (plan::MakeSlices). The layer of a one-off key counts the collectives, so
  // that they take the shards in turn. The server derives the same owner (Server::AddOneOff).
  const auto owner = static_cast<std::uint16_t>(key.layer.value() % topology_.shards());
  return rows_.try_emplace(key, Row{.slices = plan::MakeSlices(gradient.elements, gradient.dtype, topology_.shards(), owner)})
      .first->second;
}

void Client::PushPull(const Key& key, sync::SyncRequest request) {
  POSEIDON_ASSERT_ON(executor_);
  if (!abandoned_.ok()) {
    executor_.Post([done = std::move(request.done), reason = abandoned_] { done(reason); });
    return;
  }
  const TensorView gradient = request.gradient;
  Row& row = RowFor(key, gradient);
  POSEIDON_CHECK(!row.under_way, "one request per key at a time");
  row.under_way = true;
  row.landings.Begin(request.step, gradient);
  row.request = std::move(request);
  row.arrived = 0;
  row.failure = OkStatus();
  row.serial = next_serial_++;
  row.pending = static_cast<std::uint32_t>(row.slices.size());
  const std::uint64_t size = SizeOf(gradient.dtype);
  const std::size_t window = mesh_.flow().window_bytes;
  row.window = !windows_ || window == 0 || row.request.absent ? kAll : std::max<std::uint64_t>(window, size);
  row.ways.clear();
  for (const plan::Slice& slice : row.slices) {
    row.ways.push_back({slice.first * size, slice.first * size + row.window});
    const MemberId owner = topology_.owner_of_shard[slice.shard];
    if (owner != topology_.self) row.landings.Expect(owner, slice.first * size, slice.count * size);
  }
  if (!row.request.in_parts) Arrived(key, gradient.elements);
}

void Client::Arrived(const Key& key, std::uint64_t elements) {
  POSEIDON_ASSERT_ON(executor_);
  Row* const row = Find(key);
  if (row == nullptr) return;
  const std::uint64_t before = std::exchange(row->arrived, elements);
  POSEIDON_CHECK(before < elements && elements <= row->request.gradient.elements, "a contribution grows to its end");
  for (std::size_t i = 0; i < row->slices.size(); ++i) PushOn(key, *row, i);
}

void Client::PushOn(const Key& key, Row& row, std::size_t which) {
  const plan::Slice& slice = row.slices[which];
  Row::Way& way = row.ways[which];
  const std::uint64_t size = SizeOf(row.request.gradient.dtype);
  const std::uint64_t there = std::min(slice.first + slice.count, row.arrived);
  const bool own = topology_.owner_of_shard[slice.shard] == topology_.self;
  Stretch stretch{way.pushed / size, own ? there : std::min(there, way.may / size)};
  if (stretch.begin >= stretch.end) return;
  stretch.held = stretch.end < there;
  way.pushed = stretch.end * size;
  PushStretch(key, row, slice, stretch);
}

std::size_t Client::SliceAt(const Row& row, std::uint64_t byte) {
  const std::uint64_t element = byte / SizeOf(row.request.gradient.dtype);
  const auto last = [](const plan::Slice& slice) { return slice.first + slice.count - 1; };
  const auto found = std::ranges::lower_bound(row.slices, element, {}, last);
  const bool holds = found != row.slices.end() && found->first <= element;
  return holds ? static_cast<std::size_t>(found - row.slices.begin()) : row.slices.size();
}

// A sum has come as far as byte `to`.
void Client::OnSummed(const Key& key, Row& row, std::uint64_t to) {
  const std::size_t which = SliceAt(row, to - 1);
  const plan::Slice& slice = row.slices[which];
  Row::Way& way = row.ways[which];
  way.may = std::max(way.may, to + row.window);
  // Not before half a window may follow, or the end: or every frame of a sum would let out a frame.
  const std::uint64_t end = (slice.first + slice.count) * SizeOf(row.request.gradient.dtype);
  if (way.may >= end || way.may - way.pushed >= row.window / 2) PushOn(key, row, which);
}

Completion Client::PartDone(const Key& key, std::uint64_t serial) {
  return alive_.Guard([this, key, serial](const Status& status) { OnPartDone(key, serial, status); });
}

void Client::PushStretch(const Key& key, Row& row, const plan::Slice& slice, const Stretch& stretch) {
  const sync::SyncRequest& request = row.request;
  const std::uint64_t size = SizeOf(request.gradient.dtype);
  const MemberId owner = topology_.owner_of_shard[slice.shard];
  if (owner == topology_.self) {
    if (stretch.begin == slice.first) {
      local_->Local({request, key, slice, PartDone(key, row.serial)});
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
  if (stretch.held) out.last_flags = wire::kFlagHeld;
  if (request.absent) {
    out.header.flags = wire::kFlagAbsent;
  } else {
    out.payload = request.gradient.Slice(stretch.begin, stretch.end - stretch.begin).span();
  }
  out.priority = request.priority;
  out.left = PartDone(key, row.serial);
  ++row.pending;
  mesh_.Send(owner, std::move(out));
}

Result<MutableBytes> Client::PlaceFor(MemberId from, const wire::FrameHeader& header) {
  POSEIDON_ASSERT_ON(executor_);
  if (header.type == wire::FrameType::kGrant) return DataLoss("a grant carries bytes");
  const Row* const row = Find(header.key());
  if (row == nullptr) {
    // After Abandon the gradient is no longer lent: the channel keeps the bytes itself.
    if (!abandoned_.ok()) return MutableBytes{};
    return sync::NothingPushed(header);
  }
  POSEIDON_ASSIGN_OR_RETURN(const MutableBytes place, row->landings.PlaceFor(from, header));
  // Behind what was handed on the gradient is still being written, and a mean of it cannot exist.
  const TensorView& gradient = row->request.gradient;
  if (place.data() + place.size() > gradient.memory + row->arrived * SizeOf(gradient.dtype)) {
    return DataLoss("a result for layer " + std::to_string(header.layer.value()) +
                    " came before this worker's contribution to it");
  }
  return place;
}

Status Client::OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes) {
  POSEIDON_ASSERT_ON(executor_);
  if (header.type == wire::FrameType::kGrant) return OnGrant(from, header);
  const Key key = header.key();
  Row* const row = Find(key);
  if (row == nullptr) {  // a frame without bytes had no place asked for
    return abandoned_.ok() ? sync::NothingPushed(header) : OkStatus();
  }
  POSEIDON_ASSIGN_OR_RETURN(const bool whole, row->landings.Landed(from, header));
  if (whole) {
    OnPartDone(key, row->serial, OkStatus());
  } else if (row->window < kAll) {
    OnSummed(key, *row, header.offset + header.length);
  }
  return OkStatus();
}

Status Client::OnGrant(MemberId from, const wire::FrameHeader& header) {
  const Key key = header.key();
  Row* const row = Find(key);
  if (row == nullptr) return abandoned_.ok() ? sync::NothingPushed(header) : OkStatus();
  const sync::SyncRequest& request = row->request;
  if (header.step == request.step && header.total == request.gradient.bytes() && header.offset > 0) {
    const std::size_t which = SliceAt(*row, header.offset - 1);
    if (which < row->slices.size() && topology_.owner_of_shard[row->slices[which].shard] == from) {
      Row::Way& way = row->ways[which];
      way.may = std::max(way.may, header.offset);
      PushOn(key, *row, which);
      return OkStatus();
    }
  }
  return DataLoss("a grant for layer " + std::to_string(header.layer.value()) + " fits no slice that its sender owns in step " +
                  std::to_string(request.step.value()));
}

void Client::OnPartDone(const Key& key, std::uint64_t serial, const Status& status) {
  Row* const row = Find(key);
  if (row == nullptr || row->serial != serial) return;
  if (row->failure.ok()) row->failure = status;
  if (--row->pending > 0) return;
  row->under_way = false;
  // Posted, because `done` may push the same key again, and the key must be free by then.
  executor_.Post([done = std::move(row->request.done), failure = std::move(row->failure)] { done(failure); });
  row->request = {};
  if (key.model == wire::kCollectiveModel) rows_.erase(key);
}

void Client::AddWaits(std::vector<wire::Wait>* waits) const {
  POSEIDON_ASSERT_ON(executor_);
  for (const auto& [key, row] : rows_) {
    if (row.under_way && row.whole()) row.landings.AddWaits(key, waits);
  }
}

void Client::Abandon(const Status& reason) {
  POSEIDON_ASSERT_ON(executor_);
  // Frames that read the gradients are not waited for: all connections have closed before (Ending::Finish).
  abandoned_ = reason;
  std::map<Key, Row> rows = std::exchange(rows_, {});
  for (auto& [key, row] : rows) {
    if (row.under_way) executor_.Post([done = std::move(row.request.done), reason] { done(reason); });
  }
}

}  // namespace poseidon::kv
