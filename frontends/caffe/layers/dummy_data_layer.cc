// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include "frontends/caffe/net/filler.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// Tops made by fillers: a constant once, anything random anew in every pass.
class DummyDataLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {0, 0, 1, Arity::kAny}; }
  bool differentiable() const override { return false; }

  Status SetUp(const Blobs& /*bottom*/, const Blobs& top) override {
    const auto& dummy = param().dummy_data_param();
    const auto tops = static_cast<int>(top.size());
    const auto fits = [tops](int given) { return given == 0 || given == 1 || given == tops; };
    const int shapes = dummy.shape_size();
    const int old = dummy.num_size();
    const std::string one_or_each =
        ", expected one or one for each of the " + std::to_string(tops) + " tops";
    if (!fits(dummy.data_filler_size())) {
      return InvalidArgument("has " + std::to_string(dummy.data_filler_size()) + " data_filler" +
                             one_or_each);
    }
    if (shapes > 0 && old > 0) return InvalidArgument("has both shape and num, expected one");
    if (shapes == 0 && old == 0) return InvalidArgument("has no shape");
    if (!fits(shapes) || !fits(old)) {
      return InvalidArgument("has " + std::to_string(shapes + old) + " shapes" + one_or_each);
    }
    if (old > 0 && (dummy.channels_size() != old || dummy.height_size() != old ||
                    dummy.width_size() != old)) {
      return InvalidArgument("needs as many channels, height and width as num");
    }
    return OkStatus();
  }

  Status Reshape(const Blobs& /*bottom*/, const Blobs& top) override {
    for (std::size_t i = 0; i < top.size(); ++i) {
      SetShape(top[i], ShapeOf(static_cast<int>(i)), options());
      POSEIDON_RETURN_IF_ERROR(FillTop(top, i));
    }
    return OkStatus();
  }

  Status Forward(const Blobs& /*bottom*/, const Blobs& top) override {
    for (std::size_t i = 0; i < top.size(); ++i) {
      if (FillerOf(static_cast<int>(i)).type() == "constant") continue;
      POSEIDON_RETURN_IF_ERROR(FillTop(top, i));
    }
    return OkStatus();
  }

 private:
  Status FillTop(const Blobs& top, std::size_t i) {
    // Every top of every worker in every batch has its own numbers.
    const std::uint64_t batch = context().pass->batch;
    const auto world = static_cast<std::uint64_t>(context().share.world);
    const auto rank = static_cast<std::uint64_t>(context().share.rank);
    const std::uint64_t turn = (batch * world + rank) * top.size() + i;
    return Fill(FillerOf(static_cast<int>(i)),
                RandomStream(context().seed, RandomPurpose::kDummy, unique_name(), turn), top[i]->data);
  }

  const FillerParameter& FillerOf(int top) const {
    const auto& fillers = param().dummy_data_param().data_filler();
    if (fillers.empty()) return FillerParameter::default_instance();
    return fillers.Get(fillers.size() == 1 ? 0 : top);
  }

  Shape ShapeOf(int top) const {
    const auto& dummy = param().dummy_data_param();
    if (dummy.shape_size() > 0) {
      const auto& dims = dummy.shape(dummy.shape_size() == 1 ? 0 : top).dim();
      return {dims.begin(), dims.end()};
    }
    const int at = dummy.num_size() == 1 ? 0 : top;
    return {dummy.num(at), dummy.channels(at), dummy.height(at), dummy.width(at)};
  }
};

}  // namespace

std::unique_ptr<Layer> MakeDummyDataLayer(const LayerParameter& param,
                                          const LayerContext& context) {
  return std::make_unique<DummyDataLayer>(param, context);
}

}  // namespace poseidon::caffe
