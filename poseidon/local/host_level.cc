// SPDX-License-Identifier: Apache-2.0
#include "poseidon/local/host_level.h"

#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::local {

HostLevel::HostLevel(Executor& executor, messaging::Mesh& mesh, std::vector<MemberId> members, std::size_t place,
                     Rank self_rank, TraceRecorder* trace)
    : executor_(executor),
      mesh_(mesh),
      members_(std::move(members)),
      place_(place),
      self_rank_(self_rank),
      trace_(trace) {}

Status HostLevel::Declare(ModelId model, std::span<const plan::LayerSpec> layers) {
  POSEIDON_ASSERT_ON(executor_);
  std::vector<plan::LayerSpec> own(layers.begin(), layers.end());
  return leads() ? LeaderOf(model).Declare(model, std::move(own)) : FollowerOf(model).Declare(model, std::move(own));
}

Leader& HostLevel::LeaderOf(ModelId model) {
  POSEIDON_ASSERT_ON(executor_);
  std::unique_ptr<Leader>& leader = leaders_[model];
  if (!leader) leader = std::make_unique<Leader>(executor_, mesh_, members_, trace_);
  return *leader;
}

Follower& HostLevel::FollowerOf(ModelId model) {
  POSEIDON_ASSERT_ON(executor_);
  // Made by what comes first: the leader's offer may arrive before this worker declares the model.
  std::unique_ptr<Follower>& follower = followers_[model];
  if (!follower) {
    follower = std::make_unique<Follower>(
        executor_, mesh_,
        Follower::Place{.self_rank = self_rank_,
                               .leader = members_.front(),
                               .place = static_cast<std::uint32_t>(place_),
                               .places = static_cast<std::uint32_t>(members_.size())});
  }
  return *follower;
}

void HostLevel::AddWaits(std::vector<wire::Wait>* waits) const {
  POSEIDON_ASSERT_ON(executor_);
  for (const auto& [model, leader] : leaders_) leader->AddWaits(waits);
  for (const auto& [model, follower] : followers_) follower->AddWaits(waits);
}

void HostLevel::Abandon(const Status& reason) {
  POSEIDON_ASSERT_ON(executor_);
  for (const auto& [model, leader] : leaders_) leader->Abandon(reason);
  for (const auto& [model, follower] : followers_) follower->Abandon(reason);
}

std::uint64_t HostLevel::moved_bytes(ModelId model, LayerId layer) const {
  POSEIDON_ASSERT_ON(executor_);
  if (const auto leader = leaders_.find(model); leader != leaders_.end()) return leader->second->moved_bytes(layer);
  if (const auto follower = followers_.find(model); follower != followers_.end()) {
    return follower->second->moved_bytes(layer);
  }
  return 0;
}

std::uint64_t HostLevel::allocated_bytes() const {
  POSEIDON_ASSERT_ON(executor_);
  std::uint64_t bytes = 0;
  for (const auto& [model, leader] : leaders_) bytes += leader->allocated_bytes();
  return bytes;
}

messaging::FrameSink* HostLevel::SinkOf(ModelId model) {
  if (const auto leader = leaders_.find(model); leader != leaders_.end()) return leader->second.get();
  if (const auto follower = followers_.find(model); follower != followers_.end()) return follower->second.get();
  return nullptr;
}

Result<MutableBytes> HostLevel::PlaceFor(MemberId from, const wire::FrameHeader& header) {
  POSEIDON_ASSERT_ON(executor_);
  messaging::FrameSink* const sink = SinkOf(header.model);
  if (sink == nullptr) return DataLoss("a frame about shared memory names no model");
  return sink->PlaceFor(from, header);
}

Status HostLevel::OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) {
  POSEIDON_ASSERT_ON(executor_);
  messaging::FrameSink* const sink = SinkOf(header.model);
  if (sink == nullptr) return DataLoss("a frame about shared memory names no model");
  return sink->OnFrame(from, header, payload);
}

}  // namespace poseidon::local
