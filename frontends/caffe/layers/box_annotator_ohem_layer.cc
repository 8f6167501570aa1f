// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// R-FCN's hard examples: of each image's windows (bottom 0) the roi_per_img with the largest loss (bottom 1) keep their label (bottom
// 2) and the weights of their box (bottom 3); the others get ignore_label and weights of 0. Of equal losses the first wins.
class BoxAnnotatorOhemLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {4, 4, 2, 2}; }
  bool computes_on_device() const override { return false; }
  bool AllowForceBackward(int /*bottom*/) const override { return false; }

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    if (param().box_annotator_ohem_param().roi_per_img() > 0) return OkStatus();
    return InvalidArgument("needs roi_per_img above 0");
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto sizes = bottom[0]->data.sizes();
    const auto axes = static_cast<std::int64_t>(sizes.size());
    const std::int64_t rows = axes > 0 ? sizes[0] : 0;
    places_ = axes > 2 ? CountOf(sizes, 2, axes) : 1;
    const std::int64_t examples = rows * places_;
    const auto boxes = bottom[3]->data.sizes();
    channels_ = boxes.size() > 1 ? boxes[1] : 1;
    if (axes < 2 || sizes[1] != 5 || bottom[1]->count() != examples || bottom[2]->count() != examples || boxes.empty() ||
        boxes[0] != rows || bottom[3]->count() != examples * channels_) {
      return InvalidArgument("has bottoms of shape " + ShapeText(sizes) + ", " + ShapeText(bottom[1]->data.sizes()) + ", " +
                             ShapeText(bottom[2]->data.sizes()) + " and " + ShapeText(boxes) +
                             ", expected windows of five numbers, and a loss, a label and weights for each");
    }
    const std::int64_t height = axes > 2 ? sizes[2] : 1;
    const std::int64_t width = places_ / std::max<std::int64_t>(1, height);
    SetShape(top[0], {rows, 1, height, width}, options());
    SetShape(top[1], {rows, channels_, height, width}, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    return options().dtype() == at::kDouble ? Choose<double>(bottom, top) : Choose<float>(bottom, top);
  }

  // What is chosen does not change with the losses, but for a few points.
  Status Backward(const Blobs& /*top*/, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    for (std::size_t i = 0; i < bottom.size(); ++i) {
      if (propagate_down[i]) DiffOf(bottom[i]).zero_();
    }
    return OkStatus();
  }

 private:
  template <typename T>
  Status Choose(const Blobs& bottom, const Blobs& top) const {
    const auto& given = param().box_annotator_ohem_param();
    const T* windows = bottom[0]->data.const_data_ptr<T>();
    const T* losses = bottom[1]->data.const_data_ptr<T>();
    const T* labels = bottom[2]->data.const_data_ptr<T>();
    const T* weights = bottom[3]->data.const_data_ptr<T>();
    T* kept_labels = top[0]->data.fill_(given.ignore_label()).template mutable_data_ptr<T>();
    T* kept_weights = top[1]->data.zero_().template mutable_data_ptr<T>();
    std::vector<std::int64_t> order(static_cast<std::size_t>(bottom[1]->count()));
    std::iota(order.begin(), order.end(), 0);
    for (const std::int64_t i : order) {
      if (std::isnan(losses[i])) return InvalidArgument("the loss of example " + std::to_string(i) + " is not a number");
    }
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return losses[a] > losses[b]; });
    std::map<T, std::uint32_t> taken;  // by image
    for (const std::int64_t i : order) {
      const std::int64_t row = i / places_;
      const std::int64_t place = i % places_;
      const T image = windows[row * 5 * places_ + place];
      if (!(image >= 0)) return InvalidArgument("window " + std::to_string(i) + " is of image " + std::to_string(image));
      if (taken[std::floor(image)]++ >= given.roi_per_img()) continue;
      kept_labels[i] = labels[i];
      for (std::int64_t c = 0; c < channels_; ++c) {
        const std::int64_t at_weight = (row * channels_ + c) * places_ + place;
        kept_weights[at_weight] = weights[at_weight];
      }
    }
    return OkStatus();
  }

  std::int64_t places_ = 1;    // of a row
  std::int64_t channels_ = 1;  // of the weights
};

}  // namespace

std::unique_ptr<Layer> MakeBoxAnnotatorOhemLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<BoxAnnotatorOhemLayer>(param, context);
}

}  // namespace poseidon::caffe
