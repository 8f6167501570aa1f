// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/on_host_layer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <utility>

#include "frontends/caffe/net/placement.h"

namespace poseidon::caffe {
namespace {

// Brings numbers to the host, into memory of the right shape.
void Bring(const at::Tensor& from, at::Tensor* to) {
  if (!from.defined()) {
    to->reset();
    return;
  }
  if (!to->defined() || to->sizes() != from.sizes()) *to = at::empty_like(from, from.options().device(at::kCPU), at::MemoryFormat::Contiguous);
  to->copy_(from);
}

}  // namespace

OnHostLayer::OnHostLayer(std::unique_ptr<Layer> inner, const LayerContext& context)
    : Layer(inner->param(), context), inner_(std::move(inner)) {}

// A top that is made in place is its bottom, on the host too.
void OnHostLayer::Mirror(const Blobs& bottom, const Blobs& top) {
  if (!mirrors_.empty() || (bottom.empty() && top.empty())) return;
  const auto mirror = [this] { return mirrors_.emplace_back(std::make_unique<Blob>()).get(); };
  for (std::size_t i = 0; i < bottom.size(); ++i) host_bottom_.push_back(mirror());
  for (const Blob* blob : top) {
    const auto in_place = std::find(bottom.begin(), bottom.end(), blob);
    host_top_.push_back(in_place != bottom.end() ? host_bottom_[static_cast<std::size_t>(in_place - bottom.begin())] : mirror());
  }
}

// The inner layer declares what it learns; the net makes that on the device, for this one.
Status OnHostLayer::SetUp(const Blobs& bottom, const Blobs& top) {
  Mirror(bottom, top);
  for (std::size_t i = 0; i < bottom.size(); ++i) Bring(bottom[i]->data, &host_bottom_[i]->data);
  POSEIDON_RETURN_IF_ERROR(inner_->SetUp(host_bottom_, host_top_));
  param_ = inner_->param();  // with what FreezeParam has written
  for (const Declaration& declared : inner_->declarations_) DeclareParam(declared.shape, declared.filler);
  inner_->blobs_.resize(inner_->declarations_.size());
  for (std::size_t i = 0; i < inner_->declarations_.size(); ++i) {
    const Shape& shape = inner_->declarations_[i].shape;
    const at::TensorOptions on_host = options().device(at::kCPU);
    inner_->blobs_[i] = {at::empty(shape, on_host), at::empty(shape, on_host)};
    inner_->slots_.push_back({.wanted = true, .shared = false, .own = false, .stale = std::make_shared<bool>(true)});
  }
  return OkStatus();
}

Status OnHostLayer::Reshape(const Blobs& bottom, const Blobs& top) {
  for (std::size_t i = 0; i < bottom.size(); ++i) {
    SetShape(host_bottom_[i], bottom[i]->shape(), options().device(at::kCPU));
  }
  BringParams();
  POSEIDON_RETURN_IF_ERROR(inner_->Reshape(host_bottom_, host_top_));
  for (std::size_t i = 0; i < blobs().size(); ++i) {  // a layer in Python writes the first numbers of what it learns
    if (BeginsParam(static_cast<int>(i))) blobs()[i].data.copy_(inner_->blobs_[i].data);
  }
  for (std::size_t i = 0; i < top.size(); ++i) SetShape(top[i], host_top_[i]->shape(), options());
  return OkStatus();
}

void OnHostLayer::BringParams() {
  brought_.clear();
  for (std::size_t i = 0; i < inner_->blobs_.size(); ++i) {
    brought_.push_back(OnHost(blobs()[i].data));
    inner_->blobs_[i].data.copy_(brought_[i]);
    inner_->slots_[i].wanted = wants_param_diff(i);
    inner_->slots_[i].own = BeginsParam(static_cast<int>(i));
    *inner_->slots_[i].stale = true;
  }
}

// A pass changes running statistics, and a layer in Python what it likes.
void OnHostLayer::TakeParams() {
  for (std::size_t i = 0; i < inner_->blobs_.size(); ++i) {
    if (!at::equal(inner_->blobs_[i].data, brought_[i])) blobs()[i].data.copy_(inner_->blobs_[i].data);
  }
}

Status OnHostLayer::Forward(const Blobs& bottom, const Blobs& top) {
  BringParams();
  for (std::size_t i = 0; i < bottom.size(); ++i) Bring(bottom[i]->data, &host_bottom_[i]->data);
  const Status status = inner_->Forward(host_bottom_, host_top_);
  bad_row_ = inner_->bad_row();
  POSEIDON_RETURN_IF_ERROR(status);
  for (std::size_t i = 0; i < top.size(); ++i) {
    SetShape(top[i], host_top_[i]->shape(), options());  // which a batch of another size changes
    top[i]->data.copy_(host_top_[i]->data);
  }
  TakeParams();
  return OkStatus();
}

Status OnHostLayer::Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) {
  // A layer above may have worked in place on a top since Forward, as it may on the host.
  for (std::size_t i = 0; i < top.size(); ++i) {
    Bring(top[i]->data, &host_top_[i]->data);
    Bring(top[i]->diff, &host_top_[i]->diff);
  }
  for (std::size_t i = 0; i < bottom.size(); ++i) {
    if (propagate_down[i] && !host_bottom_[i]->diff.defined()) DiffOf(host_bottom_[i]).zero_();
  }
  for (std::size_t i = 0; i < inner_->slots_.size(); ++i) *inner_->slots_[i].stale = true;
  POSEIDON_RETURN_IF_ERROR(inner_->Backward(host_top_, propagate_down, host_bottom_));
  for (std::size_t i = 0; i < bottom.size(); ++i) {
    if (propagate_down[i]) DiffOf(bottom[i]).copy_(host_bottom_[i]->diff);
  }
  for (std::size_t i = 0; i < inner_->blobs_.size(); ++i) {
    const int index = static_cast<int>(i);
    if (WantsParamDiff(index) && !*inner_->slots_[i].stale) AddParamDiff(index, inner_->blobs_[i].diff.to(context().placement.device()));
  }
  TakeParams();
  return OkStatus();
}

}  // namespace poseidon::caffe
