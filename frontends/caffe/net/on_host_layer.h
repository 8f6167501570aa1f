// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_NET_ON_HOST_LAYER_H_
#define POSEIDON_FRONTENDS_CAFFE_NET_ON_HOST_LAYER_H_

#include <memory>
#include <string>
#include <vector>

#include "frontends/caffe/net/layer.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// In a net whose blobs are on a device: a layer that computes on the host (Layer::computes_on_device), around which its blobs are
// copied. Each pass waits for what it reads. What the layer makes is copied back behind it.
class OnHostLayer final : public Layer {
 public:
  // `inner` was made for the host; `context` is this layer's, of the device.
  OnHostLayer(std::unique_ptr<Layer> inner, const LayerContext& context);

  Arity arity() const override { return inner_->arity(); }
  Status SetUp(const Blobs& bottom, const Blobs& top) override;
  Status Reshape(const Blobs& bottom, const Blobs& top) override;
  Status Forward(const Blobs& bottom, const Blobs& top) override;
  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override;

  bool works_in_place() const override { return inner_->works_in_place(); }
  bool differentiable() const override { return inner_->differentiable(); }
  bool AllowForceBackward(int bottom) const override { return inner_->AllowForceBackward(bottom); }
  bool is_loss() const override { return inner_->is_loss(); }
  bool is_masked_mean() const override { return inner_->is_masked_mean(); }
  std::int64_t counted() const override { return inner_->counted(); }
  bool is_statistic(int index) const override { return inner_->is_statistic(index); }
  std::string RecordAt(std::int64_t row) const override { return inner_->RecordAt(row); }
  bool computes_on_device() const override { return false; }

 private:
  void Mirror(const Blobs& bottom, const Blobs& top);
  void BringParams();
  void TakeParams();

  const std::unique_ptr<Layer> inner_;
  std::vector<std::unique_ptr<Blob>> mirrors_;  // on the host, of bottoms and then of tops that are not bottoms
  std::vector<at::Tensor> brought_;  // learned blobs as they were before the pass, on the host
  Blobs host_bottom_;
  Blobs host_top_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_NET_ON_HOST_LAYER_H_
