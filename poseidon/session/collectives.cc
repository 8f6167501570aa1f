// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/collectives.h"

#include <string>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/wire/messages.h"

namespace poseidon::session {

Collectives::Collectives(Executor& io, messaging::Mesh& mesh, const sync::Topology& flat, const sync::Strategy& strategy,
                         std::function<void(const Status&)> differ)
    : io_(io), differ_(std::move(differ)), self_rank_(flat.self_rank) {
  if (flat.self_shard()) {
    server_.emplace(io, mesh, flat, nullptr, strategy);
    server_->OnDiffering(differ_);
  }
  if (flat.self_rank) client_.emplace(io, mesh, flat, server_ ? &*server_ : nullptr);
}

// The next number of a collective; an empty one needs none.
LayerId Collectives::Next(const TensorView& view) {
  // Modulo, because the upper half of the keys belongs to the sums of steps (wire::StepSumOf).
  return LayerId(view.elements == 0 ? next_ : next_++ % wire::kCollectives);
}

void Collectives::Sum(TensorView view, bool contribute, Completion done) {
  POSEIDON_ASSERT_ON(io_);
  Start({.number = Next(view), .contribute = contribute}, view, std::move(done));
}

void Collectives::Broadcast(TensorView view, Rank root, Completion done) {
  POSEIDON_ASSERT_ON(io_);
  Start({.number = Next(view), .contribute = self_rank_ == root, .kind = kv::BroadcastFrom(root)}, view,
        std::move(done));
}

void Collectives::StepSum(ModelId model, Step step, TensorView view, Completion done) {
  POSEIDON_ASSERT_ON(io_);
  Start({.number = wire::KeyOf({model, step})}, view, std::move(done));
}

void Collectives::Start(const OneOff& one, TensorView view, Completion done) {
  // Posted, because nothing completes within the call.
  const auto answer = [&](const Status& status) {
    io_.Post([done = std::move(done), status] { done(status); });
  };
  if (view.elements == 0) return answer(OkStatus());
  // Divided, because the product of a count that is out of bounds could overflow.
  if (view.elements > kv::kMaxCollectiveBytes / SizeOf(view.dtype)) {
    return answer(InvalidArgument("a collective of " + std::to_string(view.elements) + " elements of " +
                                  std::string(poseidon::NameOf(view.dtype)) + " was called, at most " +
                                  std::to_string(kv::kMaxCollectiveBytes >> 20) + " MiB go at once"));
  }
  const wire::Key key{wire::kCollectiveModel, one.number};
  // A peer's contribution may have come first. Where it is of another collective this one can never be whole, and its
  // sum may not fit the memory that it is written to.
  if (server_) {
    const Status differs = server_->CheckOneOff(key, {view.bytes(), view.dtype, one.kind, *self_rank_});
    if (!differs.ok()) {
      differ_(differs);
      return answer(differs);
    }
  }
  sync::SyncRequest request;
  // Ahead of the layers of later steps, because the program mostly waits in the call.
  request.priority = {messaging::Priority::kData, 0, 0};
  request.gradient = view;
  request.absent = !one.contribute;
  // A collective has no weights. In their place it carries its kind, by which owners see that calls differ.
  request.weight = one.kind;
  request.done = std::move(done);
  client_->PushPull(key, std::move(request));
}

messaging::FrameSink* Collectives::SinkOf(wire::FrameType type) {
  if (type == wire::FrameType::kPush && server_) return &*server_;
  if (kv::Client::Takes(type) && client_) return &*client_;
  return nullptr;
}

void Collectives::AddWaits(std::vector<wire::Wait>* waits) const {
  POSEIDON_ASSERT_ON(io_);
  if (server_) server_->AddWaits(waits);
  if (client_) client_->AddWaits(waits);
}

void Collectives::Abandon(const Status& reason) {
  POSEIDON_ASSERT_ON(io_);
  if (client_) client_->Abandon(reason);
  if (server_) server_->Abandon(reason);
}

std::uint64_t Collectives::allocated_bytes() const { return server_ ? server_->allocated_bytes() : 0; }

}  // namespace poseidon::session
