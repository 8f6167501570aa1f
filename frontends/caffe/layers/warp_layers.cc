// SPDX-License-Identifier: Apache-2.0
// Images that are looked up where a flow points: FlowWarp (FlowNet) and Warping (temporal segment networks).
#include <algorithm>
#include <cmath>
#include <limits>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// A place between two pixels of an axis, first * (1 - share) + second * share.
struct Between {
  std::int64_t first = 0;
  std::int64_t second = 0;
  double share = 0;
};

// The top at pixel (y, x) is the bottom at (y + dy, x + dx), bilinear between four pixels. The second bottom is the flow,
// N x 2 x H x W, dx before dy. Outside of the image Warping goes on with the border, FlowWarp has 0 (or NaN, which
// is asked for). FlowNet's backward pass takes 0 for the slope to the last pixel from it; here it is the gradient.
class WarpLayer final : public Layer {
 public:
  WarpLayer(const LayerParameter& param, const LayerContext& context, bool goes_on) : Layer(param, context), goes_on_(goes_on) {}
  Arity arity() const override { return {2, 2, 1, 1}; }
  bool computes_on_device() const override { return false; }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto image = bottom[0]->data.sizes();
    const auto flow = bottom[1]->data.sizes();
    if (image.size() != 4 || flow.size() != 4 || flow[0] != image[0] || flow[1] != 2 || flow[2] != image[2] || flow[3] != image[3]) {
      return InvalidArgument("has bottoms of shape " + ShapeText(image) + " and " + ShapeText(flow) +
                             ", expected images and a flow of two channels for them");
    }
    SetShape(top[0], image.vec(), options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    options().dtype() == at::kDouble ? Look<double>(bottom, top[0]) : Look<float>(bottom, top[0]);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    options().dtype() == at::kDouble ? LookBack<double>(top[0], propagate_down, bottom) : LookBack<float>(top[0], propagate_down, bottom);
    return OkStatus();
  }

 private:
  // Two rows, two columns, and how long a row of the plane is.
  struct Corners {
    Between y, x;
    std::int64_t width;
    template <typename T>
    T Mix(const T* plane) const {
      const auto row = [&](std::int64_t at) {
        const T* const pixels = plane + at * width;
        return pixels[x.first] * (1 - static_cast<T>(x.share)) + pixels[x.second] * static_cast<T>(x.share);
      };
      return row(y.first) * (1 - static_cast<T>(y.share)) + row(y.second) * static_cast<T>(y.share);
    }
  };

  // Whether there is something at `place` of an axis, and between which pixels. What is no number lies outside.
  bool Find(double place, std::int64_t extent, Between* between) const {
    const auto last = static_cast<double>(extent - 1);
    if (!goes_on_ && !(place >= 0 && place < static_cast<double>(extent))) return false;
    const double within = place >= 0 ? std::min(place, last) : 0;
    const double before = std::floor(within);
    between->first = static_cast<std::int64_t>(before);
    between->second = place >= 0 ? std::min(between->first + 1, extent - 1) : 0;  // before the border nothing slopes
    between->share = within - before;
    return true;
  }

  // Calls visit(pixel, corners) for every pixel of every image, with null where nothing is looked up.
  template <typename T, typename Visit>
  void ForEach(const Blobs& bottom, const Visit& visit) const {
    const auto sizes = bottom[0]->data.sizes();
    const std::int64_t height = sizes[2], width = sizes[3], area = height * width;
    const T* flow = bottom[1]->data.const_data_ptr<T>();
    for (std::int64_t image = 0; image < sizes[0]; ++image, flow += 2 * area) {
      for (std::int64_t pixel = 0; pixel < area; ++pixel) {
        Corners corners{{}, {}, width};
        const bool found = Find(static_cast<double>(pixel / width) + static_cast<double>(flow[area + pixel]), height, &corners.y) &&
                           Find(static_cast<double>(pixel % width) + static_cast<double>(flow[pixel]), width, &corners.x);
        visit(image, pixel, found ? &corners : nullptr);
      }
    }
  }

  template <typename T>
  void Look(const Blobs& bottom, Blob* top) const {
    const std::int64_t channels = top->data.size(1), area = top->data.size(2) * top->data.size(3);
    const T* const from = bottom[0]->data.const_data_ptr<T>();
    T* const to = top->data.mutable_data_ptr<T>();
    const bool zero = param().flow_warp_param().fill_value() == FlowWarpParameter::ZERO;
    const T outside = zero ? 0 : std::numeric_limits<T>::quiet_NaN();
    ForEach<T>(bottom, [&](std::int64_t image, std::int64_t pixel, const Corners* corners) {
      for (std::int64_t plane = image * channels; plane < (image + 1) * channels; ++plane) {
        to[plane * area + pixel] = corners == nullptr ? outside : corners->Mix(from + plane * area);
      }
    });
  }

  template <typename T>
  void LookBack(Blob* top, const std::vector<bool>& propagate_down, const Blobs& bottom) const {
    const std::int64_t channels = top->data.size(1), area = top->data.size(2) * top->data.size(3);
    const T* const from = bottom[0]->data.const_data_ptr<T>();
    const T* const gradient = top->diff.const_data_ptr<T>();
    T* const image_diff = propagate_down[0] ? DiffOf(bottom[0]).zero_().mutable_data_ptr<T>() : nullptr;
    T* const flow_diff = propagate_down[1] ? DiffOf(bottom[1]).zero_().mutable_data_ptr<T>() : nullptr;
    ForEach<T>(bottom, [&](std::int64_t image, std::int64_t pixel, const Corners* corners) {
      if (corners == nullptr) return;
      const auto& [y, x, width] = *corners;
      const T down = static_cast<T>(y.share), right = static_cast<T>(x.share);
      for (std::int64_t plane = image * channels; plane < (image + 1) * channels; ++plane) {
        const T slope = gradient[plane * area + pixel];
        if (image_diff != nullptr) {
          T* const diff = image_diff + plane * area;
          diff[y.first * width + x.first] += slope * (1 - down) * (1 - right);
          diff[y.first * width + x.second] += slope * (1 - down) * right;
          diff[y.second * width + x.first] += slope * down * (1 - right);
          diff[y.second * width + x.second] += slope * down * right;
        }
        if (flow_diff != nullptr) {
          const T* const upper = from + plane * area + y.first * width;
          const T* const lower = from + plane * area + y.second * width;
          T* const diff = flow_diff + 2 * image * area + pixel;
          diff[0] += slope * ((1 - down) * (upper[x.second] - upper[x.first]) + down * (lower[x.second] - lower[x.first]));
          diff[area] += slope * ((1 - right) * (lower[x.first] - upper[x.first]) + right * (lower[x.second] - upper[x.second]));
        }
      }
    });
  }

  const bool goes_on_;
};

}  // namespace

std::unique_ptr<Layer> MakeFlowWarpLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<WarpLayer>(param, context, /*goes_on=*/false);
}

std::unique_ptr<Layer> MakeWarpingLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<WarpLayer>(param, context, /*goes_on=*/true);
}

}  // namespace poseidon::caffe
