// SPDX-License-Identifier: Apache-2.0
#include "poseidon/local/host_level.h"

#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::local {

HostLevel::HostLevel(Executor& executor, messaging::Mesh& mesh, Place place, TraceRecorder* trace)
    : executor_(executor), mesh_(mesh), place_(std::move(place)), trace_(trace) {}

// Made by what comes first: the offer of the memory may arrive before this worker declares the model.
HostLevel::OfModel& HostLevel::Of(ModelId model) {
  POSEIDON_ASSERT_ON(executor_);
  const auto found = models_.find(model);
  if (found != models_.end()) return found->second;
  return models_.emplace(model, OfModel{.memory = {mesh_, place_.members, place_.place}, .leader = {}, .follower = {}}).first->second;
}

Status HostLevel::Declare(ModelId model, std::span<const plan::LayerSpec> layers) {
  POSEIDON_ASSERT_ON(executor_);
  OfModel& of = Of(model);
  if (leads()) {
    of.leader = std::make_unique<Leader>(executor_, mesh_, place_.members, place_.place, of.memory, trace_);
    of.leader->Declare(model, layers);
  }
  if (place_.members.size() > 1) {
    of.follower = std::make_unique<Follower>(executor_, mesh_, place_.members, place_.place, place_.self_rank, of.memory);
    of.follower->Declare(model, layers);
  }
  for (const plan::LayerSpec& layer : layers) {
    if (!layer.is_table()) of.dense_bytes += layer.bytes();
  }
  return of.memory.Declare(model, layers);
}

Status HostLevel::Attach(MemberId from, const wire::Segment& offer) {
  POSEIDON_ASSERT_ON(executor_);
  return Of(offer.model).memory.Attach(from, offer);
}

bool HostLevel::is_ready(ModelId model) const {
  POSEIDON_ASSERT_ON(executor_);
  const HostMemory& memory = models_.at(model).memory;
  return memory.attached() || !memory.is_shared();
}

void HostLevel::Close(ModelId model) {
  POSEIDON_ASSERT_ON(executor_);
  models_.at(model).memory.Close();
}

const HostMemory& HostLevel::MemoryOf(ModelId model) const {
  POSEIDON_ASSERT_ON(executor_);
  return models_.at(model).memory;
}

Leader& HostLevel::LeaderOf(ModelId model) {
  POSEIDON_ASSERT_ON(executor_);
  const OfModel& of = models_.at(model);
  POSEIDON_CHECK(of.leader != nullptr, "this worker leads");
  return *of.leader;
}

Follower& HostLevel::FollowerOf(ModelId model) {
  POSEIDON_ASSERT_ON(executor_);
  const OfModel& of = models_.at(model);
  POSEIDON_CHECK(of.follower != nullptr, "this worker has company");
  return *of.follower;
}

void HostLevel::AddWaits(std::vector<wire::Wait>* waits) const {
  POSEIDON_ASSERT_ON(executor_);
  for (const auto& [id, of] : models_) {
    if (of.leader) of.leader->AddWaits(waits);
    if (of.follower) of.follower->AddWaits(waits);
  }
}

void HostLevel::Abandon(const Status& reason) {
  POSEIDON_ASSERT_ON(executor_);
  for (const auto& [id, of] : models_) {
    if (of.leader) of.leader->Abandon(reason);
    if (of.follower) of.follower->Abandon(reason);
  }
}

std::uint64_t HostLevel::moved_bytes(ModelId model, LayerId layer) const {
  POSEIDON_ASSERT_ON(executor_);
  const auto found = models_.find(model);
  if (found == models_.end()) return 0;
  const OfModel& of = found->second;
  return (of.leader ? of.leader->moved_bytes(layer) : 0) + (of.follower ? of.follower->moved_bytes(layer) : 0);
}

std::uint64_t HostLevel::allocated_bytes() const {
  POSEIDON_ASSERT_ON(executor_);
  std::uint64_t bytes = 0;
  for (const auto& [id, of] : models_) {
    if (of.leader) bytes += of.leader->allocated_bytes();
    // Of the slots and the mean. A leader whose gradients are not brought to its slot touches less there.
    if (place_.place == 0 && of.memory.is_shared()) bytes += of.dense_bytes * (place_.members.size() + 1);
  }
  return bytes;
}

Result<messaging::FrameSink*> HostLevel::SinkOf(const wire::FrameHeader& header) const {
  const auto found = models_.find(header.model);
  messaging::FrameSink* sink = nullptr;
  if (found != models_.end()) {
    const OfModel& of = found->second;
    sink = (header.flags & wire::kFlagMean) != 0 ? static_cast<messaging::FrameSink*>(of.follower.get()) : of.leader.get();
  }
  if (sink == nullptr) return DataLoss("a frame about shared memory names no model, or is for a leader, which this worker is not");
  return sink;
}

Result<MutableBytes> HostLevel::PlaceFor(MemberId from, const wire::FrameHeader& header) {
  POSEIDON_ASSERT_ON(executor_);
  POSEIDON_ASSIGN_OR_RETURN(messaging::FrameSink* const sink, SinkOf(header));
  return sink->PlaceFor(from, header);
}

Status HostLevel::OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) {
  POSEIDON_ASSERT_ON(executor_);
  POSEIDON_ASSIGN_OR_RETURN(messaging::FrameSink* const sink, SinkOf(header));
  return sink->OnFrame(from, header, payload);
}

}  // namespace poseidon::local
