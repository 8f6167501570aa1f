// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_EXPORT_ONNX_LAYER_H_
#define POSEIDON_FRONTENDS_CAFFE_EXPORT_ONNX_LAYER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "frontends/caffe/export/onnx_graph.h"
#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

struct ExportedBlob {
  std::vector<std::int64_t> shape;
  std::span<const float> numbers;
};

// A layer of a net as whoever exports it sees it: one that the net has built, so its options are right.
struct ExportedLayer {
  const LayerParameter& param;
  Values bottoms;
  std::vector<ExportShape> bottom_shapes;
  std::vector<ExportShape> top_shapes;
  std::vector<ExportedBlob> blobs;  // learned

  // "conv1.0": so a learned blob is called in every exported file.
  std::string Weights(std::size_t index, OnnxGraph& graph) const {
    return graph.Weights(std::to_string(index), blobs[index].shape, blobs[index].numbers);
  }
  // Under another shape of as many numbers.
  std::string Weights(std::size_t index, const std::vector<std::int64_t>& shape, OnnxGraph& graph) const {
    return graph.Weights(std::to_string(index), shape, blobs[index].numbers);
  }
};

// Adds nodes that compute in the TEST phase what the layer does, and returns the values of its tops.
using OnnxConverter = Result<Values> (*)(const ExportedLayer& layer, OnnxGraph& graph);

// Null where layers of that type cannot be exported; onnx_converters.inc lists the others.
OnnxConverter FindOnnxConverter(const std::string& type);
// Why no model can have this layer: words to follow its type in a sentence. nullopt: a model can.
std::optional<std::string> WhyNotOnnx(const LayerParameter& layer);

// An axis of a blob with that many, counted from the end when negative, as the net has checked it.
inline std::int64_t AxisOf(std::int64_t axis, std::int64_t axes) { return axis < 0 ? axis + axes : axis; }
// first, first + 1, ... last - 1
std::vector<std::int64_t> AxesFrom(std::int64_t first, std::int64_t last);
// The extents from an axis on, of which none is kAnyBatch.
std::int64_t ProductFrom(const ExportShape& shape, std::int64_t axis);

// False where the size of planes, the last two of four axes, grows with the batch; the model is then one of a fixed batch.
bool KnowsPlanes(const ExportShape& shape, OnnxGraph& graph);

// The windows of a pooling over two axes, which are the last of four.
struct PoolWindows {
  enum class Kind { kMax, kMean, kMeanOfDraws };  // kMeanOfDraws: what stochastic pooling is in tests
  Kind kind = Kind::kMax;
  std::vector<std::int64_t> kernel, stride, pad;
};
// Returns the value, and with `with_places` also in which element of its plane each maximum is. `from` and `to`: heights and
// widths of bottom and top.
Values AddPooling(const PoolWindows& windows, const std::string& value, const std::vector<std::int64_t>& from,
                  const std::vector<std::int64_t>& to, bool with_places, OnnxGraph& graph);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_EXPORT_ONNX_LAYER_H_
