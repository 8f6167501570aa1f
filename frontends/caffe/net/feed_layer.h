// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_NET_FEED_LAYER_H_
#define POSEIDON_FRONTENDS_CAFFE_NET_FEED_LAYER_H_

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frontends/caffe/net/layer.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// In a net whose blobs are on a device: a layer that reads data (Layer::reads_ahead), whose tops are copied there. While a pass of
// training is computed, a thread of this layer's reads the batch of the next one and copies it, on a stream of its own.
class FeedLayer final : public Layer {
 public:
  // `inner` was made for the host, and for `pass`, which this layer sets; `context` is this layer's, of the device.
  FeedLayer(std::unique_ptr<Layer> inner, std::unique_ptr<PassContext> pass, const LayerContext& context);
  ~FeedLayer() override;

  Arity arity() const override { return inner_->arity(); }
  Status SetUp(const Blobs& bottom, const Blobs& top) override;
  Status Reshape(const Blobs& bottom, const Blobs& top) override;
  Status Forward(const Blobs& bottom, const Blobs& top) override;

  bool differentiable() const override { return false; }
  std::string RecordAt(std::int64_t row) const override;
  bool computes_on_device() const override { return false; }

 private:
  // Reads a batch and launches its copy into spare_.
  Status Bring(std::uint64_t batch);
  Status TakeAhead(std::uint64_t batch, bool* taken);

  const std::unique_ptr<PassContext> pass_;
  const std::unique_ptr<Layer> inner_;
  const at::Stream copies_;
  std::vector<std::unique_ptr<Blob>> host_;
  Blobs host_top_;
  std::vector<at::Tensor> spare_;       // by top, on the device: of the next batch
  std::optional<c10::Event> copied_;    // spare_ holds its batch, and nobody reads the batch on the host any more
  std::optional<c10::Event> unused_;    // what was launched before it alone may read spare_
  mutable std::future<Status> ahead_;   // of the batch after the last one that was asked for
  std::uint64_t ahead_batch_ = 0;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_NET_FEED_LAYER_H_
