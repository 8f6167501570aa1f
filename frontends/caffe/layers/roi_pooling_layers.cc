// SPDX-License-Identifier: Apache-2.0
// ROIPooling of Fast R-CNN and PSROIPooling of R-FCN: windows of an image, given as rows (image, x1, y1, x2, y2) of the second
// bottom, are pooled to a grid of one size.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// A window in the pixels of the image.
struct Roi {
  std::int64_t image = 0;
  double x1 = 0;
  double y1 = 0;
  double x2 = 0;
  double y2 = 0;
};

// The part of a plane that a cell of the grid covers: [top, bottom) x [left, right).
struct Cell {
  std::int64_t top = 0;
  std::int64_t bottom = 0;
  std::int64_t left = 0;
  std::int64_t right = 0;
  bool empty() const { return bottom <= top || right <= left; }
};

constexpr double kFarthest = 1e9;  // no pixel of an image; beyond it numbers would not fit

// Fails for a window that is of no image of the batch, or whose corners are not numbers.
Status ReadRois(const at::Tensor& rows, std::int64_t images, std::vector<Roi>* rois) {
  const at::Tensor numbers = rows.to(at::kDouble).contiguous();
  const double* row = numbers.const_data_ptr<double>();
  rois->resize(static_cast<std::size_t>(rows.size(0)));
  for (std::size_t i = 0; i < rois->size(); ++i, row += 5) {
    for (int j = 0; j < 5; ++j) {
      if (!(std::fabs(row[j]) <= kFarthest)) {
        return InvalidArgument("window " + std::to_string(i) + " has the number " + std::to_string(row[j]) + ", expected pixels");
      }
    }
    (*rois)[i] = {static_cast<std::int64_t>(row[0]), row[1], row[2], row[3], row[4]};
    if ((*rois)[i].image < 0 || (*rois)[i].image >= images) {
      return InvalidArgument("window " + std::to_string(i) + " is of image " + std::to_string((*rois)[i].image) +
                             ", expected one of the " + std::to_string(images) + " images of the batch");
    }
  }
  return OkStatus();
}

Status CheckShapes(const Blobs& bottom) {
  const auto rois = bottom[1]->data.sizes();
  if (bottom[0]->data.dim() == 4 && !rois.empty() && CountOf(rois, 1, static_cast<std::int64_t>(rois.size())) == 5) return OkStatus();
  return InvalidArgument("has bottoms of shape " + ShapeText(bottom[0]->data.sizes()) + " and " + ShapeText(rois) +
                         ", expected images and windows of five numbers");
}

std::int64_t Clip(double place, std::int64_t extent) {
  return static_cast<std::int64_t>(std::clamp(place, 0.0, static_cast<double>(extent)));
}

// What both have in common. A layer of this kind says which part of which plane a cell pools.
class RoiLayer : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, 2, 1, 1}; }
  bool computes_on_device() const override { return false; }
  bool AllowForceBackward(int bottom) const override { return bottom == 0; }

 protected:
  // Larger ones would leave no window a size.
  Status SetScale(float scale) {
    spatial_scale_ = static_cast<double>(scale);
    if (scale > 0 && scale <= 1e6F) return OkStatus();
    return InvalidArgument("spatial_scale is " + std::to_string(scale) + ", expected above 0 and at most 1000000");
  }

  double spatial_scale_ = 1;
  std::int64_t height_ = 0;  // of the grid
  std::int64_t width_ = 0;
  std::vector<Roi> rois_;
};

// The maximum of each cell. A window covers whole places of the bottom, at least one.
class RoiPoolingLayer final : public RoiLayer {
 public:
  using RoiLayer::RoiLayer;

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const auto& options = param().roi_pooling_param();
    if (options.pooled_h() == 0 || options.pooled_w() == 0) return InvalidArgument("needs pooled_h and pooled_w above 0");
    height_ = options.pooled_h();
    width_ = options.pooled_w();
    return SetScale(options.spatial_scale());
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    POSEIDON_RETURN_IF_ERROR(CheckShapes(bottom));
    const Shape shape = {bottom[1]->data.size(0), bottom[0]->data.size(1), height_, width_};
    SetShape(top[0], shape, options());
    winner_ = at::empty(shape, options().dtype(at::kLong));
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    POSEIDON_RETURN_IF_ERROR(ReadRois(bottom[1]->data, bottom[0]->data.size(0), &rois_));
    if (options().dtype() == at::kDouble) {
      Pool<double>(bottom[0]->data, top[0]->data);
    } else {
      Pool<float>(bottom[0]->data, top[0]->data);
    }
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    if (propagate_down[1]) return InvalidArgument("cannot propagate to windows (bottom 1)");
    if (!propagate_down[0]) return OkStatus();
    if (options().dtype() == at::kDouble) {
      Spread<double>(top[0]->diff, DiffOf(bottom[0]).zero_());
    } else {
      Spread<float>(top[0]->diff, DiffOf(bottom[0]).zero_());
    }
    return OkStatus();
  }

 private:
  // Corners are rounded to places; the edges of a cell are rounded outwards, in the net's own precision as in Fast R-CNN.
  template <typename T>
  Cell CellOf(const Roi& roi, std::int64_t row, std::int64_t column, std::int64_t height, std::int64_t width) const {
    const auto place = [this](double pixel) {
      return std::round(static_cast<double>(static_cast<T>(pixel) * static_cast<T>(spatial_scale_)));
    };
    const double x1 = place(roi.x1);
    const double y1 = place(roi.y1);
    const T cell_height = static_cast<T>(std::max(place(roi.y2) - y1 + 1, 1.0)) / static_cast<T>(height_);
    const T cell_width = static_cast<T>(std::max(place(roi.x2) - x1 + 1, 1.0)) / static_cast<T>(width_);
    const auto low = [](std::int64_t index, T size) { return static_cast<double>(std::floor(static_cast<T>(index) * size)); };
    const auto high = [](std::int64_t index, T size) { return static_cast<double>(std::ceil(static_cast<T>(index + 1) * size)); };
    return {Clip(low(row, cell_height) + y1, height), Clip(high(row, cell_height) + y1, height),
            Clip(low(column, cell_width) + x1, width), Clip(high(column, cell_width) + x1, width)};
  }

  template <typename T>
  void Pool(const at::Tensor& images, const at::Tensor& top) {
    const std::int64_t channels = images.size(1);
    const std::int64_t height = images.size(2);
    const std::int64_t width = images.size(3);
    const T* in = images.const_data_ptr<T>();
    T* out = top.mutable_data_ptr<T>();
    std::int64_t* won = winner_.mutable_data_ptr<std::int64_t>();
    at::parallel_for(0, static_cast<std::int64_t>(rois_.size()) * height_ * width_, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t n = i / (height_ * width_);
        const std::int64_t at_cell = i % (height_ * width_);
        const Roi& roi = At(rois_, n);
        const Cell cell = CellOf<T>(roi, at_cell / width_, at_cell % width_, height, width);
        for (std::int64_t c = 0; c < channels; ++c) {
          const T* plane = in + (roi.image * channels + c) * height * width;
          const std::int64_t to = (n * channels + c) * height_ * width_ + at_cell;
          won[to] = Largest(plane, cell, width);
          out[to] = won[to] < 0 ? T{0} : plane[won[to]];
        }
      }
    });
  }

  // The first place with the largest number; -1: the cell holds none, or nothing but NaN.
  template <typename T>
  static std::int64_t Largest(const T* plane, const Cell& cell, std::int64_t width) {
    T best = -std::numeric_limits<T>::infinity();
    std::int64_t winner = -1;
    for (std::int64_t y = cell.top; y < cell.bottom; ++y) {
      for (std::int64_t x = cell.left; x < cell.right; ++x) {
        if (plane[y * width + x] > best) {
          best = plane[y * width + x];
          winner = y * width + x;
        }
      }
    }
    return winner;
  }

  // Windows overlap: threads share the channels.
  template <typename T>
  void Spread(const at::Tensor& gradient, const at::Tensor& diff) const {
    const std::int64_t channels = diff.size(1);
    const std::int64_t plane = diff.size(2) * diff.size(3);
    const std::int64_t cells = height_ * width_;
    const T* from = gradient.const_data_ptr<T>();
    const std::int64_t* won = winner_.const_data_ptr<std::int64_t>();
    T* out = diff.mutable_data_ptr<T>();
    at::parallel_for(0, channels, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::size_t n = 0; n < rois_.size(); ++n) {
        for (std::int64_t c = begin; c < end; ++c) {
          const std::int64_t first = (static_cast<std::int64_t>(n) * channels + c) * cells;
          T* to = out + (rois_[n].image * channels + c) * plane;
          for (std::int64_t i = first; i < first + cells; ++i) {
            if (won[i] >= 0) to[won[i]] += from[i];
          }
        }
      }
    });
  }

  at::Tensor winner_;  // place in the plane; -1: none
};

// The mean of each cell, taken from a channel of the cell's own: channel (d * group_size + row) * group_size + column for
// output d. A window ends between places.
class PsRoiPoolingLayer final : public RoiLayer {
 public:
  using RoiLayer::RoiLayer;

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const auto& options = param().psroi_pooling_param();
    if (options.output_dim() <= 0 || options.group_size() <= 0 || !options.has_spatial_scale()) {
      return InvalidArgument("needs spatial_scale, and output_dim and group_size above 0");
    }
    height_ = width_ = options.group_size();
    outputs_ = options.output_dim();
    return SetScale(options.spatial_scale());
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    POSEIDON_RETURN_IF_ERROR(CheckShapes(bottom));
    // Divided, not multiplied: the options may be as large as they like.
    const std::int64_t channels = bottom[0]->data.size(1);
    if (channels % (height_ * width_) != 0 || channels / (height_ * width_) != outputs_) {
      return InvalidArgument("bottom has shape " + ShapeText(bottom[0]->data.sizes()) + ", expected output_dim " +
                             std::to_string(outputs_) + " times group_size " + std::to_string(height_) + " squared channels");
    }
    SetShape(top[0], {bottom[1]->data.size(0), outputs_, height_, width_}, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    POSEIDON_RETURN_IF_ERROR(ReadRois(bottom[1]->data, bottom[0]->data.size(0), &rois_));
    if (options().dtype() == at::kDouble) {
      Run<double, false>(bottom[0]->data, top[0]->data);
    } else {
      Run<float, false>(bottom[0]->data, top[0]->data);
    }
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    if (propagate_down[1]) return InvalidArgument("cannot propagate to windows (bottom 1)");
    if (!propagate_down[0]) return OkStatus();
    if (options().dtype() == at::kDouble) {
      Run<double, true>(DiffOf(bottom[0]).zero_(), top[0]->diff);
    } else {
      Run<float, true>(DiffOf(bottom[0]).zero_(), top[0]->diff);
    }
    return OkStatus();
  }

 private:
  template <typename T>
  Cell CellOf(const Roi& roi, std::int64_t row, std::int64_t column, std::int64_t height, std::int64_t width) const {
    const T scale = static_cast<T>(spatial_scale_);
    const T x1 = static_cast<T>(std::round(roi.x1)) * scale;
    const T y1 = static_cast<T>(std::round(roi.y1)) * scale;
    const T x2 = static_cast<T>(std::round(roi.x2) + 1) * scale;
    const T y2 = static_cast<T>(std::round(roi.y2) + 1) * scale;
    const T cell_height = std::max(y2 - y1, static_cast<T>(0.1)) / static_cast<T>(height_);
    const T cell_width = std::max(x2 - x1, static_cast<T>(0.1)) / static_cast<T>(width_);
    return {Clip(static_cast<double>(std::floor(static_cast<T>(row) * cell_height + y1)), height),
            Clip(static_cast<double>(std::ceil(static_cast<T>(row + 1) * cell_height + y1)), height),
            Clip(static_cast<double>(std::floor(static_cast<T>(column) * cell_width + x1)), width),
            Clip(static_cast<double>(std::ceil(static_cast<T>(column + 1) * cell_width + x1)), width)};
  }

  // Forward: top = mean of the cell. Backward: adds top / places to every place of the cell. Each channel of the images is
  // one cell's of one output, so threads share the channels.
  template <typename T, bool kBackward>
  void Run(const at::Tensor& images, const at::Tensor& top) const {
    const std::int64_t channels = images.size(1);
    const std::int64_t height = images.size(2);
    const std::int64_t width = images.size(3);
    T* in = images.mutable_data_ptr<T>();
    T* out = top.mutable_data_ptr<T>();
    at::parallel_for(0, channels, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) {
        const std::int64_t at_cell = c % (height_ * width_);
        for (std::size_t n = 0; n < rois_.size(); ++n) {
          const Cell cell = CellOf<T>(rois_[n], at_cell / width_, at_cell % width_, height, width);
          T& pooled = out[static_cast<std::int64_t>(n) * channels + c];
          Visit<T, kBackward>(in + (rois_[n].image * channels + c) * height * width, cell, width, pooled);
        }
      }
    });
  }

  template <typename T, bool kBackward>
  static void Visit(T* plane, const Cell& cell, std::int64_t width, T& pooled) {
    if (cell.empty()) {
      if (!kBackward) pooled = 0;
      return;
    }
    const T places = static_cast<T>((cell.bottom - cell.top) * (cell.right - cell.left));
    T sum = 0;
    for (std::int64_t y = cell.top; y < cell.bottom; ++y) {
      for (std::int64_t x = cell.left; x < cell.right; ++x) {
        if (kBackward) {
          plane[y * width + x] += pooled / places;
        } else {
          sum += plane[y * width + x];
        }
      }
    }
    if (!kBackward) pooled = sum / places;
  }

  std::int64_t outputs_ = 0;
};

}  // namespace

std::unique_ptr<Layer> MakeRoiPoolingLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<RoiPoolingLayer>(param, context);
}

std::unique_ptr<Layer> MakePsRoiPoolingLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<PsRoiPoolingLayer>(param, context);
}

}  // namespace poseidon::caffe
