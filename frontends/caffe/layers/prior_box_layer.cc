// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// The boxes that SSD predicts relative to: at every place of the first bottom a set of sizes and aspect ratios, in parts of
// the image, the second bottom. The top, 1 x 2 x 4P, has their corners, then their variances. It depends on the shapes alone.
class PriorBoxLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, 2, 1, 1}; }
  bool computes_on_device() const override { return false; }
  bool AllowForceBackward(int /*bottom*/) const override { return false; }

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    POSEIDON_RETURN_IF_ERROR(CheckSizes());
    POSEIDON_RETURN_IF_ERROR(CheckPairs());
    const auto& options = param().prior_box_param();
    std::vector<float> ratios = {1};
    for (const float ratio : options.aspect_ratio()) {
      if (!(ratio > 0)) return InvalidArgument("aspect_ratio is " + std::to_string(ratio) + ", expected above 0");
      const bool known = std::any_of(ratios.begin(), ratios.end(), [&](float other) { return std::fabs(ratio - other) < 1e-6F; });
      if (known) continue;
      ratios.push_back(ratio);
      if (options.flip()) ratios.push_back(1.F / ratio);
    }
    if (options.variance_size() != 0 && options.variance_size() != 1 && options.variance_size() != 4) {
      return InvalidArgument("has " + std::to_string(options.variance_size()) + " variance, expected none, one or four");
    }
    for (const float variance : options.variance()) {
      if (!(variance > 0)) return InvalidArgument("variance is " + std::to_string(variance) + ", expected above 0");
    }
    for (int i = 0; i < options.min_size_size(); ++i) AddShapes(i, ratios);
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    if (bottom[0]->data.dim() != 4 || bottom[1]->data.dim() != 4) {
      return InvalidArgument("has bottoms of shape " + ShapeText(bottom[0]->data.sizes()) + " and " +
                             ShapeText(bottom[1]->data.sizes()) + ", expected four axes");
    }
    const std::int64_t places = bottom[0]->data.size(2) * bottom[0]->data.size(3);
    SetShape(top[0], {1, 2, places * static_cast<std::int64_t>(boxes_.size()) * 4}, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    if (options().dtype() == at::kDouble) {
      Write<double>(bottom, top[0]->data);
    } else {
      Write<float>(bottom, top[0]->data);
    }
    return OkStatus();
  }

  // Nothing of what the bottoms hold goes into the top.
  Status Backward(const Blobs& /*top*/, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    for (std::size_t i = 0; i < 2; ++i) {
      if (propagate_down[i]) DiffOf(bottom[i]).zero_();
    }
    return OkStatus();
  }

 private:
  Status CheckSizes() const {
    const auto& options = param().prior_box_param();
    if (options.min_size_size() == 0) return InvalidArgument("needs a min_size");
    if (options.max_size_size() != 0 && options.max_size_size() != options.min_size_size()) {
      return InvalidArgument("has " + std::to_string(options.max_size_size()) + " max_size for " +
                             std::to_string(options.min_size_size()) + " min_size, expected one for each");
    }
    for (int i = 0; i < options.min_size_size(); ++i) {
      if (!(options.min_size(i) > 0 && options.min_size(i) <= 1e6F)) {
        return InvalidArgument("min_size is " + std::to_string(options.min_size(i)) + ", expected pixels");
      }
      if (options.max_size_size() > 0 && !(options.max_size(i) > options.min_size(i) && options.max_size(i) <= 1e6F)) {
        return InvalidArgument("max_size is " + std::to_string(options.max_size(i)) + ", expected above min_size");
      }
    }
    return OkStatus();
  }

  // Image and step are given for both directions at once, or for each.
  Status CheckPairs() const {
    const auto& options = param().prior_box_param();
    const auto check = [](const char* name, bool both, bool h, bool w, double value_h, double value_w) -> Status {
      if (h != w || (both && h)) {
        return InvalidArgument(std::string("needs either ") + name + ", or one for each of h and w");
      }
      if ((both || h) && !(value_h > 0 && value_w > 0)) return InvalidArgument(std::string(name) + " is not above 0");
      return OkStatus();
    };
    POSEIDON_RETURN_IF_ERROR(check("img_size", options.has_img_size(), options.has_img_h(), options.has_img_w(),
                                   options.has_img_h() ? options.img_h() : options.img_size(),
                                   options.has_img_w() ? options.img_w() : options.img_size()));
    return check("step", options.has_step(), options.has_step_h(), options.has_step_w(),
                 static_cast<double>(options.has_step_h() ? options.step_h() : options.step()),
                 static_cast<double>(options.has_step_w() ? options.step_w() : options.step()));
  }

  // The boxes of min_size `i`: a square, with max_size a larger one, then the other ratios. SSD keeps whole pixels of the
  // sizes: 35.84 is 35.
  void AddShapes(int i, const std::vector<float>& ratios) {
    const auto& options = param().prior_box_param();
    const auto least = static_cast<float>(static_cast<int>(options.min_size(i)));
    boxes_.push_back({least, least});
    if (options.max_size_size() > 0) {
      const auto most = static_cast<float>(static_cast<int>(options.max_size(i)));
      const auto middle = static_cast<float>(std::sqrt(static_cast<double>(least) * static_cast<double>(most)));
      boxes_.push_back({middle, middle});
    }
    for (const float ratio : ratios) {
      if (std::fabs(ratio - 1) < 1e-6F) continue;
      boxes_.push_back({least * std::sqrt(ratio), least / std::sqrt(ratio)});
    }
  }

  template <typename T>
  void Write(const Blobs& bottom, const at::Tensor& top) const {
    const auto& options = param().prior_box_param();
    const std::int64_t rows = bottom[0]->data.size(2);
    const std::int64_t columns = bottom[0]->data.size(3);
    std::array<double, 2> image = {static_cast<double>(bottom[1]->data.size(3)), static_cast<double>(bottom[1]->data.size(2))};
    if (options.has_img_size()) image = {static_cast<double>(options.img_size()), static_cast<double>(options.img_size())};
    if (options.has_img_w()) image = {static_cast<double>(options.img_w()), static_cast<double>(options.img_h())};
    std::array<float, 2> step = {static_cast<float>(image[0]) / static_cast<float>(columns),
                                 static_cast<float>(image[1]) / static_cast<float>(rows)};
    if (options.has_step()) step = {options.step(), options.step()};
    if (options.has_step_w()) step = {options.step_w(), options.step_h()};
    T* out = top.mutable_data_ptr<T>();
    for (std::int64_t place = 0; place < rows * columns; ++place) {
      const float x = (static_cast<float>(place % columns) + options.offset()) * step[0];
      const float y = (static_cast<float>(place / columns) + options.offset()) * step[1];
      for (const auto& [width, height] : boxes_) {
        const double half_width = static_cast<double>(width) / 2;
        const double half_height = static_cast<double>(height) / 2;
        for (const double edge : {(static_cast<double>(x) - half_width) / image[0], (static_cast<double>(y) - half_height) / image[1],
                                  (static_cast<double>(x) + half_width) / image[0], (static_cast<double>(y) + half_height) / image[1]}) {
          *out++ = static_cast<T>(options.clip() ? std::clamp(edge, 0.0, 1.0) : edge);
        }
      }
    }
    for (std::int64_t i = 0; i < top.size(2); ++i) {
      const int variances = options.variance_size();
      *out++ = variances == 0 ? static_cast<T>(0.1F) : static_cast<T>(options.variance(variances == 1 ? 0 : static_cast<int>(i % 4)));
    }
  }

  std::vector<std::array<float, 2>> boxes_;  // at every place: width and height in pixels
};

}  // namespace

std::unique_ptr<Layer> MakePriorBoxLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<PriorBoxLayer>(param, context);
}

}  // namespace poseidon::caffe
