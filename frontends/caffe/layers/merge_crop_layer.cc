// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// The first bottom and, cut to its size from the middle, the second: channels behind one another (STACK) or added up (ADD).
// `forward` and `backward` say for each bottom whether its numbers, its gradient pass; by default the second has no gradient (Greentea).
class MergeCropLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, 2, 1, 1}; }

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const MergeCropParameter& options = param().mergecrop_param();
    if (options.forward_size() <= 2 && options.backward_size() <= 2) return OkStatus();
    return InvalidArgument("has more than two forward or backward, expected one for each bottom");
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto first = bottom[0]->data.sizes(), second = bottom[1]->data.sizes();
    bool fits = first.size() > 2 && first.size() == second.size() && first[0] == second[0] && (stacks() || first[1] == second[1]);
    for (std::size_t axis = 2; fits && axis < first.size(); ++axis) fits = first[axis] <= second[axis];
    if (!fits) {
      return InvalidArgument("has bottoms of shape " + ShapeText(first) + " and " + ShapeText(second) +
                             ", expected as many images" + (stacks() ? "" : " and channels") + ", and the second to be no smaller");
    }
    Shape shape = first.vec();
    if (stacks()) shape[1] += second[1];
    SetShape(top[0], shape, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    for (int i = 0; i < 2; ++i) {
      const at::Tensor part = Part(top[0]->data, bottom, i);
      const at::Tensor from = i == 0 ? bottom[0]->data : Middle(bottom[1]->data, bottom[0]->data.sizes());
      const bool adds = i == 1 && !stacks();
      if (!Passes(param().mergecrop_param().forward(), i, true)) {
        if (!adds) part.zero_();
      } else {
        adds ? part.add_(from) : part.copy_(from);
      }
    }
    return OkStatus();
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    for (int i = 0; i < 2; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (!propagate_down[at]) continue;
      at::Tensor& diff = DiffOf(bottom[at]).zero_();
      if (!Passes(param().mergecrop_param().backward(), i, i == 0)) continue;
      (i == 0 ? diff : Middle(diff, bottom[0]->data.sizes())).copy_(Part(top[0]->diff, bottom, i));
    }
    return OkStatus();
  }

 private:
  bool stacks() const { return param().mergecrop_param().operation() == MergeCropParameter::STACK; }

  static bool Passes(const google::protobuf::RepeatedField<bool>& given, int bottom, bool otherwise) {
    return bottom < given.size() ? given.Get(bottom) : otherwise;
  }

  // The channels of the top that are bottom `i`'s.
  at::Tensor Part(const at::Tensor& top, const Blobs& bottom, int i) const {
    if (!stacks()) return top;
    const std::int64_t first = bottom[0]->data.size(1);
    return i == 0 ? top.narrow(1, 0, first) : top.narrow(1, first, bottom[1]->data.size(1));
  }

  static at::Tensor Middle(at::Tensor whole, at::IntArrayRef like) {
    for (std::int64_t axis = 2; axis < whole.dim(); ++axis) {
      const std::int64_t extent = like[static_cast<std::size_t>(axis)];
      whole = whole.narrow(axis, (whole.size(axis) - extent) / 2, extent);
    }
    return whole;
  }
};

}  // namespace

std::unique_ptr<Layer> MakeMergeCropLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<MergeCropLayer>(param, context);
}

}  // namespace poseidon::caffe
