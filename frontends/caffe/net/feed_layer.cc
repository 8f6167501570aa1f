// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/feed_layer.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include <utility>

#include "frontends/caffe/engine/engine.h"
#include "frontends/caffe/net/placement.h"

namespace poseidon::caffe {

FeedLayer::FeedLayer(std::unique_ptr<Layer> inner, std::unique_ptr<PassContext> pass, const LayerContext& context)
    : Layer(inner->param(), context), pass_(std::move(pass)), inner_(std::move(inner)), copies_(context.placement.NewStream()) {}

FeedLayer::~FeedLayer() {
  if (ahead_.valid()) ahead_.wait();
  static_cast<void>(RunOnEngine([this] {
    if (copied_) copied_->synchronize();  // the batch's memory is given back
    return OkStatus();
  }));
}

Status FeedLayer::SetUp(const Blobs& /*bottom*/, const Blobs& top) {
  for (std::size_t i = 0; i < top.size(); ++i) host_top_.push_back(host_.emplace_back(std::make_unique<Blob>()).get());
  spare_.resize(top.size());
  return inner_->SetUp({}, host_top_);
}

Status FeedLayer::Reshape(const Blobs& /*bottom*/, const Blobs& top) {
  POSEIDON_RETURN_IF_ERROR(inner_->Reshape({}, host_top_));
  for (std::size_t i = 0; i < top.size(); ++i) SetShape(top[i], host_top_[i]->shape(), options());
  return OkStatus();
}

Status FeedLayer::Bring(std::uint64_t batch) {
  if (copied_) copied_->synchronize();  // readers get the memory of the last batch back
  pass_->batch = batch;
  POSEIDON_RETURN_IF_ERROR(inner_->Forward({}, host_top_));
  for (std::size_t i = 0; i < spare_.size(); ++i) {
    const at::Tensor& read = host_top_[i]->data;
    if (spare_[i].defined() && spare_[i].sizes() == read.sizes()) continue;
    spare_[i] = at::empty(read.sizes(), options());
    unused_.emplace(context().placement.Now());  // memory that was freed may still be in use by what was launched before
  }
  const c10::StreamGuard on(copies_);
  if (unused_) unused_->block(copies_);
  for (std::size_t i = 0; i < spare_.size(); ++i) spare_[i].copy_(host_top_[i]->data, /*non_blocking=*/host_top_[i]->data.is_pinned());
  copied_.emplace(context().placement.Now());
  return OkStatus();
}

// A batch that was read ahead and is not asked for is dropped, with its failure.
Status FeedLayer::TakeAhead(std::uint64_t batch, bool* taken) {
  if (!ahead_.valid()) return OkStatus();
  const Status status = ahead_.get();
  *taken = ahead_batch_ == batch;
  return *taken ? status : OkStatus();
}

Status FeedLayer::Forward(const Blobs& /*bottom*/, const Blobs& top) {
  const Placement& placement = context().placement;
  const std::uint64_t batch = context().pass->batch;
  bool taken = false;
  POSEIDON_RETURN_IF_ERROR(TakeAhead(batch, &taken));
  if (!taken) POSEIDON_RETURN_IF_ERROR(Bring(batch));
  copied_->block(placement.stream());
  for (std::size_t i = 0; i < top.size(); ++i) std::swap(top[i]->data, spare_[i]);
  unused_.emplace(placement.Now());
  if (phase() != TRAIN) return OkStatus();
  ahead_batch_ = batch + 1;
  ahead_ = std::async(std::launch::async, [this, placement] {
    return RunOnEngine([&] {
      const c10::DeviceGuard guard(placement.device());
      return Bring(ahead_batch_);
    });
  });
  return OkStatus();
}

// The inner layer may be a batch ahead: it reads this one again, for a message about it.
std::string FeedLayer::RecordAt(std::int64_t row) const {
  if (ahead_.valid()) static_cast<void>(ahead_.get());
  std::string record;
  static_cast<void>(RunOnEngine([&]() -> Status {
    if (copied_) copied_->synchronize();
    pass_->batch = context().pass->batch;
    POSEIDON_RETURN_IF_ERROR(inner_->Forward({}, host_top_));
    record = inner_->RecordAt(row);
    return OkStatus();
  }));
  return record;
}

}  // namespace poseidon::caffe
