// SPDX-License-Identifier: Apache-2.0
// Recurrent layers: RNN and LSTM, written out over time.
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Bottoms: x [T, N, ...] over T steps of N streams; cont [T, N], 0 where a stream begins anew and
// 1 where it goes on; perhaps x_static [N, ...], the same at every step; with expose_hidden the
// states before the first step. Tops: the outputs [T, N, M]; with expose_hidden the states after the
// last step. Without it the states carry over from one pass to the next, wherever cont lets them.
// No gradient passes through states from one pass to another.
class RecurrentLayer : public Layer {
 public:
  RecurrentLayer(const LayerParameter& param, const LayerContext& context, std::size_t states)
      : Layer(param, context), state_count_(states) {}

  Arity arity() const override {
    const int exposed = expose_hidden() ? static_cast<int>(state_count_) : 0;
    return {2 + exposed, 3 + exposed, 1 + exposed, 1 + exposed};
  }
  bool AllowForceBackward(int bottom) const override { return bottom != 1; }

  Status SetUp(const Blobs& bottom, const Blobs& /*top*/) override {
    outputs_ = param().recurrent_param().num_output();
    if (outputs_ == 0) return InvalidArgument("needs num_output above 0");
    has_static_ = bottom.size() > static_cast<std::size_t>(arity().min_bottom);
    POSEIDON_RETURN_IF_ERROR(CheckShapes(bottom));
    const auto width = [](const Blob& blob, std::int64_t from) {
      return CountOf(blob.data.sizes(), from, blob.data.dim());
    };
    DeclareParams(width(*bottom[0], 2), has_static_ ? width(*bottom[2], 1) : 0);
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    POSEIDON_RETURN_IF_ERROR(CheckShapes(bottom));
    steps_ = bottom[0]->data.size(0);
    streams_ = bottom[0]->data.size(1);
    SetShape(top[0], {steps_, streams_, outputs_}, options());
    for (std::size_t i = 1; i < top.size(); ++i) SetShape(top[i], StateShape(), options());
    states_.assign(state_count_, at::zeros({streams_, outputs_}, options()));
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    if (expose_hidden()) {
      for (std::size_t i = 0; i < state_count_; ++i) {
        states_[i] = bottom[bottom.size() - state_count_ + i]->data.view({streams_, outputs_});
      }
    }
    Run(InputPart(bottom), bottom[1]->data, top[0]->data);
    for (std::size_t i = 1; i < top.size(); ++i) {
      top[i]->data.copy_(states_[i - 1].view(StateShape()));
    }
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                  const Blobs& bottom) override {
    if (propagate_down[1]) return InvalidArgument("cannot propagate to cont (bottom 1)");
    // The gradient of what each step adds up, [T, N, gates].
    const at::Tensor gates = RunBack(bottom[1]->data, top[0]->diff);
    const at::Tensor rows = gates.view({steps_ * streams_, -1});
    const at::Tensor x = bottom[0]->data.view({steps_ * streams_, -1});
    if (WantsParamDiff(kInputWeight)) AddParamDiff(kInputWeight, rows.t().mm(x));
    if (WantsParamDiff(kInputBias)) AddParamDiff(kInputBias, rows.sum(at::IntArrayRef{0}));
    if (propagate_down[0]) {
      DiffOf(bottom[0]).view({steps_ * streams_, -1}).copy_(rows.mm(weight(kInputWeight)));
    }
    if (has_static_) {
      const at::Tensor sum = gates.sum(at::IntArrayRef{0});
      const at::Tensor fixed = bottom[2]->data.view({streams_, -1});
      if (WantsParamDiff(kStaticWeight)) AddParamDiff(kStaticWeight, sum.t().mm(fixed));
      if (propagate_down[2]) {
        DiffOf(bottom[2]).view({streams_, -1}).copy_(sum.mm(weight(kStaticWeight)));
      }
    }
    for (std::size_t i = 2 + (has_static_ ? 1 : 0); i < bottom.size(); ++i) {
      if (propagate_down[i]) DiffOf(bottom[i]).zero_();
    }
    return OkStatus();
  }

 protected:
  // Learned blobs in Caffe's order; behind these come those of the hidden states.
  static constexpr int kInputWeight = 0;
  static constexpr int kInputBias = 1;
  static constexpr int kStaticWeight = 2;
  int first_hidden_param() const { return has_static_ ? 3 : 2; }

  virtual void DeclareParams(std::int64_t inputs, std::int64_t static_inputs) = 0;
  // All steps from the states in states_, which it leaves as they are after the last step. `inputs`
  // [T, N, gates] is what the input adds at each step.
  virtual void Run(const at::Tensor& inputs, const at::Tensor& cont, const at::Tensor& out) = 0;
  // All steps backwards, with the gradients of the hidden blobs.
  virtual at::Tensor RunBack(const at::Tensor& cont, const at::Tensor& gradient) = 0;

  void DeclareInputs(std::int64_t gates, std::int64_t inputs, std::int64_t static_inputs) {
    const auto& options = param().recurrent_param();
    DeclareParam({gates, inputs}, options.weight_filler());
    DeclareParam({gates}, options.bias_filler());
    if (has_static_) DeclareParam({gates, static_inputs}, options.weight_filler());
  }
  // cont of one step, as a column that multiplies states.
  at::Tensor Column(const at::Tensor& cont, std::int64_t step) const {
    return cont.select(0, step).view({streams_, 1});
  }

  std::int64_t outputs_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t streams_ = 0;
  std::vector<at::Tensor> states_;

 private:
  bool expose_hidden() const { return param().recurrent_param().expose_hidden(); }
  Shape StateShape() const { return {1, streams_, outputs_}; }

  Status CheckShapes(const Blobs& bottom) const {
    const auto x = bottom[0]->data.sizes();
    const auto cont = bottom[1]->data.sizes();
    if (x.size() < 2 || cont.size() != 2 || x.slice(0, 2) != cont) {
      return InvalidArgument("has x of shape " + ShapeText(x) + " and cont of shape " +
                             ShapeText(cont) + ", expected steps x streams first in both");
    }
    if (has_static_ && (bottom[2]->data.dim() < 1 || bottom[2]->data.size(0) != x[1])) {
      return InvalidArgument("has a static input of shape " +
                             ShapeText(bottom[2]->data.sizes()) + " for " +
                             std::to_string(x[1]) + " streams");
    }
    if (!expose_hidden()) return OkStatus();
    for (std::size_t i = bottom.size() - state_count_; i < bottom.size(); ++i) {
      if (bottom[i]->count() != x[1] * outputs_) {
        return InvalidArgument("bottom " + std::to_string(i) + " has shape " +
                               ShapeText(bottom[i]->data.sizes()) + ", expected a state of shape " +
                               ShapeText(Shape{1, x[1], outputs_}));
      }
    }
    return OkStatus();
  }

  at::Tensor InputPart(const Blobs& bottom) {
    const at::Tensor x = bottom[0]->data.view({steps_ * streams_, -1});
    at::Tensor part = at::addmm(weight(kInputBias), x, weight(kInputWeight).t())
                          .view({steps_, streams_, -1});
    if (has_static_) {
      part.add_(bottom[2]->data.view({streams_, -1}).mm(weight(kStaticWeight).t()));
    }
    return part;
  }

  const std::size_t state_count_;
  bool has_static_ = false;
};

// h = tanh(W_hh (cont h) + what the input adds); out = tanh(W_ho h + b_o).
class RnnLayer final : public RecurrentLayer {
 public:
  RnnLayer(const LayerParameter& param, const LayerContext& context)
      : RecurrentLayer(param, context, 1) {}

 protected:
  void DeclareParams(std::int64_t inputs, std::int64_t static_inputs) override {
    const auto& options = param().recurrent_param();
    DeclareInputs(outputs_, inputs, static_inputs);
    DeclareParam({outputs_, outputs_}, options.weight_filler());
    DeclareParam({outputs_, outputs_}, options.weight_filler());
    DeclareParam({outputs_}, options.bias_filler());
  }

  void Run(const at::Tensor& inputs, const at::Tensor& cont, const at::Tensor& out) override {
    before_.clear();
    after_.clear();
    at::Tensor h = states_[0];
    for (std::int64_t t = 0; t < steps_; ++t) {
      before_.push_back(h.mul(Column(cont, t)));
      h = at::addmm(inputs.select(0, t), before_.back(), weight(hidden()).t()).tanh_();
      after_.push_back(h);
    }
    states_[0] = h;
    const at::Tensor rows = at::cat(after_, 0);
    out_ = at::addmm(weight(hidden() + 2), rows, weight(hidden() + 1).t()).tanh_();
    out.view({-1, outputs_}).copy_(out_);
  }

  at::Tensor RunBack(const at::Tensor& cont, const at::Tensor& gradient) override {
    const at::Tensor inner =
        out_.mul(out_).neg_().add_(1).mul_(gradient.reshape({-1, outputs_}));
    const at::Tensor rows = at::cat(after_, 0);
    if (WantsParamDiff(hidden() + 1)) AddParamDiff(hidden() + 1, inner.t().mm(rows));
    if (WantsParamDiff(hidden() + 2)) AddParamDiff(hidden() + 2, inner.sum(at::IntArrayRef{0}));
    const at::Tensor from_out = inner.mm(weight(hidden() + 1)).view({steps_, streams_, outputs_});
    std::vector<at::Tensor> gates(static_cast<std::size_t>(steps_));
    at::Tensor later;
    for (std::int64_t t = steps_ - 1; t >= 0; --t) {
      const auto at = static_cast<std::size_t>(t);
      const at::Tensor dh = later.defined() ? from_out.select(0, t).add(later) : from_out.select(0, t);
      gates[at] = dh.mul(after_[at].mul(after_[at]).neg_().add_(1));
      later = gates[at].mm(weight(hidden())).mul_(Column(cont, t));
    }
    if (WantsParamDiff(hidden())) {
      AddParamDiff(hidden(), at::cat(gates, 0).t().mm(at::cat(before_, 0)));
    }
    return at::stack(gates);
  }

 private:
  // W_hh; W_ho and b_o follow.
  int hidden() const { return first_hidden_param(); }

  std::vector<at::Tensor> before_;  // cont h, by step
  std::vector<at::Tensor> after_;   // h, by step
  at::Tensor out_;                  // its own: a layer above may work in place on the top
};

// i, f, o = sigmoid, g = tanh of [W_hc (cont h) + what the input adds];
// c = cont f c + i g; out = h = o tanh(c).
class LstmLayer final : public RecurrentLayer {
 public:
  LstmLayer(const LayerParameter& param, const LayerContext& context)
      : RecurrentLayer(param, context, 2) {}

 protected:
  void DeclareParams(std::int64_t inputs, std::int64_t static_inputs) override {
    DeclareInputs(4 * outputs_, inputs, static_inputs);
    DeclareParam({4 * outputs_, outputs_}, param().recurrent_param().weight_filler());
  }

  void Run(const at::Tensor& inputs, const at::Tensor& cont, const at::Tensor& out) override {
    trace_.clear();
    at::Tensor h = states_[0];
    at::Tensor c = states_[1];
    for (std::int64_t t = 0; t < steps_; ++t) {
      Step step;
      step.h_before = h.mul(Column(cont, t));
      step.c_before = c;
      const at::Tensor sums =
          at::addmm(inputs.select(0, t), step.h_before, weight(hidden()).t());
      const auto part = [&](std::int64_t gate) {
        return sums.narrow(1, gate * outputs_, outputs_);
      };
      step.i = at::sigmoid(part(0));
      step.f = at::sigmoid(part(1)).mul_(Column(cont, t));
      step.o = at::sigmoid(part(2));
      step.g = at::tanh(part(3));
      c = step.f.mul(c).add_(step.i.mul(step.g));
      step.tanh_c = at::tanh(c);
      h = step.o.mul(step.tanh_c);
      out.select(0, t).copy_(h);
      trace_.push_back(step);
    }
    states_ = {h, c};
  }

  at::Tensor RunBack(const at::Tensor& cont, const at::Tensor& gradient) override {
    const auto slope = [](const at::Tensor& s) { return s.mul(s.neg().add_(1)); };
    std::vector<at::Tensor> gates(trace_.size());
    std::vector<at::Tensor> before(trace_.size());
    at::Tensor dh_later;
    at::Tensor dc_later;
    for (std::int64_t t = steps_ - 1; t >= 0; --t) {
      const auto at = static_cast<std::size_t>(t);
      const Step& step = trace_[at];
      at::Tensor dh = gradient.select(0, t);
      if (dh_later.defined()) dh = dh.add(dh_later);
      at::Tensor dc = dh.mul(step.o).mul_(step.tanh_c.mul(step.tanh_c).neg_().add_(1));
      if (dc_later.defined()) dc.add_(dc_later);
      gates[at] = at::cat({dc.mul(step.g).mul_(slope(step.i)),
                           dc.mul(step.c_before).mul_(slope(step.f)),
                           dh.mul(step.tanh_c).mul_(slope(step.o)),
                           dc.mul(step.i).mul_(step.g.mul(step.g).neg_().add_(1))},
                          1);
      before[at] = step.h_before;
      dc_later = dc.mul(step.f);
      dh_later = gates[at].mm(weight(hidden())).mul_(Column(cont, t));
    }
    if (WantsParamDiff(hidden())) {
      AddParamDiff(hidden(), at::cat(gates, 0).t().mm(at::cat(before, 0)));
    }
    return at::stack(gates);
  }

 private:
  struct Step {
    at::Tensor h_before;  // cont h
    at::Tensor c_before;
    at::Tensor i, f, o, g;
    at::Tensor tanh_c;
  };
  // W_hc.
  int hidden() const { return first_hidden_param(); }

  std::vector<Step> trace_;
};

}  // namespace

std::unique_ptr<Layer> MakeRnnLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<RnnLayer>(param, context);
}

std::unique_ptr<Layer> MakeLstmLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<LstmLayer>(param, context);
}

}  // namespace poseidon::caffe
