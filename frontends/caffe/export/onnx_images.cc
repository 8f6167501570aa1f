// SPDX-License-Identifier: Apache-2.0
// Layers that enlarge images, and PriorBox, which knows their sizes alone.
#include <ATen/ops/zeros.h>

#include <memory>

#include "frontends/caffe/engine/engine.h"
#include "frontends/caffe/export/onnx_layer.h"
#include "frontends/caffe/layers/registry.h"

namespace poseidon::caffe {
namespace {

// Images and channels of `images` as they are, then `rest`: a shape as ONNX computes it, for any batch.
std::string ShapeBefore(const std::string& images, const std::vector<std::int64_t>& rest, OnnxGraph& graph) {
  const std::string shape = graph.Node("Slice", {graph.Node("Shape", {images}), graph.Ints("start", {0}), graph.Ints("end", {2})});
  return graph.Node("Concat", {shape, graph.Ints("rest", rest)}, {Attribute("axis", std::int64_t{0})});
}

// The top of a layer that depends on its bottoms' shapes alone: the layer itself computes it, once.
Status ComputeOnce(const LayerParameter& param, const std::vector<Shape>& shapes, Blob* top) {
  const PassContext pass;
  return RunOnEngine([&]() -> Status {
    POSEIDON_ASSIGN_OR_RETURN(const std::unique_ptr<Layer> layer, MakeLayer(param, {.phase = TEST, .pass = &pass}));
    std::vector<Blob> bottoms(shapes.size());
    Blobs handles;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      bottoms[i].data = at::zeros(shapes[i]);
      handles.push_back(&bottoms[i]);
    }
    POSEIDON_RETURN_IF_ERROR(layer->SetUp(handles, {top}));
    POSEIDON_RETURN_IF_ERROR(layer->Reshape(handles, {top}));
    return layer->Forward(handles, {top});
  });
}

}  // namespace

// Bilinear, the corners of bottom and top on each other; pad_beg and pad_end, below 0, cut the bottom first.
Result<Values> ConvertInterp(const ExportedLayer& layer, OnnxGraph& graph) {
  const auto& options = layer.param.interp_param();
  const ExportShape& from = layer.bottom_shapes[0];
  const ExportShape& to = layer.top_shapes[0];
  if (!KnowsPlanes(from, graph)) return layer.bottoms;
  std::string value = layer.bottoms[0];
  if (options.pad_beg() != 0 || options.pad_end() != 0) {
    const std::int64_t first = -std::int64_t{options.pad_beg()};
    value = graph.Node("Slice", {value, graph.Ints("starts", {first, first}),
                                 graph.Ints("ends", {from.extents[2] + options.pad_end(), from.extents[3] + options.pad_end()}),
                                 graph.Ints("axes", {2, 3})});
  }
  // By its size: a factor would be rounded.
  return Values{graph.Node("Resize", {value, "", "", ShapeBefore(value, {to.extents[2], to.extents[3]}, graph)},
                           {Attribute("mode", "linear"), Attribute("coordinate_transformation_mode", "align_corners")})};
}

// With one bottom every number is repeated. With two, each is put where the second, places in a plane, says that it came from, and
// others are 0; of several for one place the last one stays, here as there.
Result<Values> ConvertUpsample(const ExportedLayer& layer, OnnxGraph& graph) {
  const ExportShape& from = layer.bottom_shapes[0];
  const ExportShape& to = layer.top_shapes[0];
  if (!KnowsPlanes(from, graph)) return Values{layer.bottoms[0]};
  if (layer.bottoms.size() == 1) {
    const std::vector<float> factors = {1, 1, static_cast<float>(to.extents[2] / from.extents[2]),
                                        static_cast<float>(to.extents[3] / from.extents[3])};
    return Values{graph.Node("Resize", {layer.bottoms[0], "", graph.Floats("factors", {4}, factors)},
                             {Attribute("mode", "nearest"), Attribute("coordinate_transformation_mode", "asymmetric"),
                              Attribute("nearest_mode", "floor")})};
  }
  const auto flat = [&](const std::string& value, const ExportShape& shape) {
    ExportShape planes = shape;
    planes.extents = {shape.extents[0], shape.extents[1], shape.extents[2] * shape.extents[3]};
    return graph.Reshape(value, shape, planes);
  };
  const std::string zeros =
      graph.Node("ConstantOfShape", {ShapeBefore(layer.bottoms[0], {to.extents[2] * to.extents[3]}, graph)});
  const std::string scattered =
      graph.Node("ScatterElements", {zeros, graph.ToInt(flat(layer.bottoms[1], from)), flat(layer.bottoms[0], from)},
                 {Attribute("axis", std::int64_t{2})});
  return Values{graph.Node("Reshape", {scattered, graph.Ints("shape", to.extents)})};
}

// A constant: boxes depend on the sizes of the planes and of the image, not on numbers, nor on how many images there are.
Result<Values> ConvertPriorBox(const ExportedLayer& layer, OnnxGraph& graph) {
  std::vector<Shape> shapes;
  for (const ExportShape& bottom : layer.bottom_shapes) {
    if (!KnowsPlanes(bottom, graph)) return Values{layer.bottoms[0]};
    shapes.push_back({1, 1, bottom.extents[2], bottom.extents[3]});
  }
  Blob top;
  POSEIDON_RETURN_IF_ERROR(ComputeOnce(layer.param, shapes, &top));
  return Values{graph.Floats("boxes", top.shape(), NumbersOf(top.data))};
}

}  // namespace poseidon::caffe
