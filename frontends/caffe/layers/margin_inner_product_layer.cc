// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "frontends/caffe/layers/labels.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// psi(theta) as a function of c = cos(theta), and its derivative: cos(m theta), made to fall over all of [0, pi].
struct Margin {
  double value;
  double slope;
};
Margin MarginAt(MarginInnerProductParameter::MarginType type, double c) {
  const auto sign = [](double x) { return static_cast<double>((x > 0) - (x < 0)); };
  const double half = sign(c);  // of [0, pi]
  switch (type) {
    case MarginInnerProductParameter::DOUBLE:
      return {2 * half * c * c - 1, 4 * half * c};
    case MarginInnerProductParameter::TRIPLE: {
      const double outside = sign(std::fabs(c) - 0.5);
      return {outside * (4 * c * c * c - 3 * c) + half * (1 + outside) - 2, outside * (12 * c * c - 3)};
    }
    case MarginInnerProductParameter::QUADRUPLE: {
      const double part = half * sign(2 * c * c - 1);
      return {part * (8 * c * c * c * c - 8 * c * c + 1) + 2 * half + part - 3, part * (32 * c * c * c - 16 * c)};
    }
    default:
      return {c, 1};
  }
}

// Scores x w_j, and for the row's own label (|x| |w| psi(theta) + lambda x w) / (1 + lambda), where lambda = max(base (1 + gamma n)^-power,
// lambda_min) in pass n. The second top is lambda. Without a margin (SINGLE) all are x w_j.
//
// L-Softmax (LargeMarginInnerProduct) is that. SphereFace (MarginInnerProduct) is it on weights of norm 1, and two of its rules are
// no gradients. Weights learn by that of the scores x w without a margin, and are scaled back to norm 1 before each pass that
// trains. What the margin sends to x has the gradient's direction, made a step of length 1 in (w, x).
class MarginLayer final : public Layer {
 public:
  MarginLayer(const LayerParameter& param, const LayerContext& context, const MarginInnerProductParameter& given, bool on_sphere)
      : Layer(param, context), given_(given), on_sphere_(on_sphere) {}
  Arity arity() const override { return {2, 2, 1, 2}; }
  bool computes_on_device() const override { return false; }
  bool AllowForceBackward(int bottom) const override { return bottom == 0; }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    if (given_.num_output() == 0) return InvalidArgument("needs num_output, the number of classes");
    const std::int64_t axes = bottom[0]->data.dim();
    POSEIDON_RETURN_IF_ERROR(CanonicalAxis("axis", given_.axis(), axes, &axis_));
    DeclareParam({given_.num_output(), CountOf(bottom[0]->data.sizes(), axis_, axes)}, given_.weight_filler());
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    POSEIDON_ASSIGN_OR_RETURN(view_, ViewRows(*bottom[0], *bottom[1], axis_, weight(0)));
    const auto sizes = bottom[0]->data.sizes();
    Shape shape(sizes.begin(), sizes.begin() + axis_);
    shape.push_back(view_.classes);
    SetShape(top[0], shape, options());
    if (top.size() > 1) SetShape(top[1], {1}, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    POSEIDON_ASSIGN_OR_RETURN(labels_, ReadLabels(bottom[1]->data, view_, std::nullopt, &bad_row_));
    const double passes = static_cast<double>(given_.iteration()) + static_cast<double>(context().pass->batch) + 1;
    lambda_ = std::max(given_.base() * std::pow(1 + given_.gamma() * passes, -given_.power()), double{given_.lambda_min()});
    if (top.size() > 1) top[1]->data.fill_(lambda_);
    options().dtype() == at::kDouble ? Score<double>(*bottom[0], *top[0]) : Score<float>(*bottom[0], *top[0]);
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    if (propagate_down[1]) return InvalidArgument("cannot propagate to labels (bottom 1)");
    const at::Tensor slopes = top[0]->diff.view({view_.outer, view_.classes});
    const at::Tensor x = bottom[0]->data.view({view_.outer, -1});
    const bool f64 = options().dtype() == at::kDouble;
    if (WantsParamDiff(0)) {
      const at::Tensor diff = at::mm(slopes.t(), x);
      if (has_margin() && !on_sphere_) f64 ? AddToWeights<double>(slopes, x, diff) : AddToWeights<float>(slopes, x, diff);
      AddParamDiff(0, diff);
    }
    if (!propagate_down[0]) return OkStatus();
    at::Tensor diff = DiffOf(bottom[0]).view(x.sizes());
    at::mm_out(diff, slopes, used_);
    if (has_margin()) f64 ? AddToRows<double>(slopes, x, diff) : AddToRows<float>(slopes, x, diff);
    return OkStatus();
  }

 private:
  bool has_margin() const { return given_.type() != MarginInnerProductParameter::SINGLE; }

  template <typename T>
  static double NormOf(const T* row, std::int64_t numbers) {
    double sum = 0;  // in one order, whatever the processor: the weights of all workers stay equal
    for (std::int64_t i = 0; i < numbers; ++i) sum += double{row[i]} * double{row[i]};
    return std::sqrt(sum);
  }

  // Leaves the weights of this pass in used_ and their norms in lengths_. A test must not change the learned weights: another worker may
  // test less.
  template <typename T>
  void PrepareWeights() {
    used_ = on_sphere_ && phase() == TEST ? weight(0).clone() : weight(0);
    lengths_.assign(static_cast<std::size_t>(view_.classes), 1);
    const std::int64_t numbers = used_.size(1);
    for (std::int64_t j = 0; j < view_.classes; ++j) {
      T* const row = used_.mutable_data_ptr<T>() + j * numbers;
      const double norm = NormOf(row, numbers);
      if (!on_sphere_) At(lengths_, j) = norm;
      if (!on_sphere_ || norm == 0) continue;  // 0: no direction
      for (std::int64_t i = 0; i < numbers; ++i) row[i] = static_cast<T>(row[i] / norm);
    }
  }

  template <typename T>
  void Score(const Blob& bottom, const Blob& top) {
    PrepareWeights<T>();
    const at::Tensor x = bottom.data.view({view_.outer, -1});
    at::Tensor scores = top.data.view({view_.outer, view_.classes});
    at::mm_out(scores, x, used_.t());
    if (!has_margin()) return;
    norms_.resize(static_cast<std::size_t>(view_.outer));
    cosines_.resize(norms_.size());
    for (std::int64_t row = 0; row < view_.outer; ++row) {
      T& score = scores.mutable_data_ptr<T>()[row * view_.classes + LabelOf(row)];
      At(norms_, row) = NormOf(x.const_data_ptr<T>() + row * x.size(1), x.size(1));
      const double norm = At(norms_, row) * LengthOf(row);
      const double cosine = At(cosines_, row) = norm > 0 ? double{score} / norm : 0;
      score = static_cast<T>((norm * MarginAt(given_.type(), cosine).value + lambda_ * double{score}) / (1 + lambda_));
    }
  }

  // To what x w sends to x: the margin's part instead of w, for the row's own label.
  template <typename T>
  void AddToRows(const at::Tensor& slopes, const at::Tensor& x, const at::Tensor& diff) const {
    for (std::int64_t row = 0; row < view_.outer; ++row) {
      const Margin margin = MarginAt(given_.type(), At(cosines_, row));
      // d(|x| |w| psi) / dx = psi' w + (psi - c psi') |w| / |x| x
      double of_w = margin.slope;
      double of_x = At(norms_, row) > 0 ? Rest(margin, row) * LengthOf(row) / At(norms_, row) : 0;
      if (const double length = std::hypot(of_w, of_x); on_sphere_ && length > 0) {
        of_w /= length;
        of_x /= length;
      }
      AddSum(row, SlopeOf<T>(slopes, row), of_w - 1, of_x, x, diff.mutable_data_ptr<T>() + row * x.size(1));
    }
  }

  // The same for what it sends to the label's weights.
  template <typename T>
  void AddToWeights(const at::Tensor& slopes, const at::Tensor& x, const at::Tensor& diff) const {
    for (std::int64_t row = 0; row < view_.outer; ++row) {
      const Margin margin = MarginAt(given_.type(), At(cosines_, row));
      // d(|x| |w| psi) / dw = psi' x + (psi - c psi') |x| / |w| w
      const double of_w = LengthOf(row) > 0 ? Rest(margin, row) * At(norms_, row) / LengthOf(row) : 0;
      AddSum(row, SlopeOf<T>(slopes, row), of_w, margin.slope - 1, x, diff.mutable_data_ptr<T>() + LabelOf(row) * x.size(1));
    }
  }

  // Adds slope (of_w w + of_x x) to `to`, w being the weights of the row's label.
  template <typename T>
  void AddSum(std::int64_t row, double slope, double of_w, double of_x, const at::Tensor& x, T* to) const {
    const std::int64_t numbers = x.size(1);
    const T* const w = used_.const_data_ptr<T>() + LabelOf(row) * numbers;
    const T* const from = x.const_data_ptr<T>() + row * numbers;
    for (std::int64_t i = 0; i < numbers; ++i) to[i] = static_cast<T>(to[i] + slope * (of_w * double{w[i]} + of_x * double{from[i]}));
  }
  template <typename T>
  double SlopeOf(const at::Tensor& slopes, std::int64_t row) const {
    return double{slopes.const_data_ptr<T>()[row * view_.classes + LabelOf(row)]} / (1 + lambda_);
  }
  double Rest(const Margin& margin, std::int64_t row) const { return margin.value - At(cosines_, row) * margin.slope; }
  double LengthOf(std::int64_t row) const { return At(lengths_, LabelOf(row)); }
  std::int64_t LabelOf(std::int64_t row) const { return labels_.index.const_data_ptr<std::int64_t>()[row]; }

  const MarginInnerProductParameter given_;
  const bool on_sphere_;
  std::int64_t axis_ = 1;
  ClassView view_;
  Labels labels_;
  double lambda_ = 0;
  at::Tensor used_;              // the weights of the last pass, on the sphere with norm 1
  std::vector<double> lengths_;  // their norms, by class
  std::vector<double> norms_;    // of x, by row
  std::vector<double> cosines_;  // between x and its label's weights
};

}  // namespace

std::unique_ptr<Layer> MakeMarginInnerProductLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<MarginLayer>(param, context, param.margin_inner_product_param(), true);
}

std::unique_ptr<Layer> MakeLargeMarginInnerProductLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<MarginLayer>(param, context, param.largemargin_inner_product_param(), false);
}

}  // namespace poseidon::caffe
