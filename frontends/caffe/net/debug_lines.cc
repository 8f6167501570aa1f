// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/debug_lines.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/sum.h>

#include <cmath>
#include <sstream>

#include "frontends/caffe/engine/engine.h"

namespace poseidon::caffe {
namespace {

double AbsoluteSum(const at::Tensor& numbers) { return at::sum(at::abs(numbers)).item<double>(); }

double SquareSum(const at::Tensor& numbers) { return at::sum(numbers.mul(numbers)).item<double>(); }

double AbsoluteMean(const at::Tensor& numbers) {
  return AbsoluteSum(numbers) / static_cast<double>(numbers.numel());
}

// Caffe shows a learned blob by its name, else by its number.
std::string NameOf(const Layer& layer, std::size_t blob) {
  const auto index = static_cast<int>(blob);
  const bool named = index < layer.param().param_size() && !layer.param().param(index).name().empty();
  return named ? layer.param().param(index).name() : std::to_string(blob);
}

template <typename... Parts>
void Say(const DebugSink& sink, const Parts&... parts) {
  std::ostringstream line;
  (line << ... << parts);
  sink(line.str());
}

}  // namespace

void DebugForward(const Net& net, int index, const DebugSink& sink) {
  const EngineGuard guard;
  const Layer& layer = net.layer(index);
  const Blobs& tops = net.tops(index);
  for (std::size_t i = 0; i < tops.size(); ++i) {
    Say(sink, "    [Forward] Layer ", layer.name(), ", top blob ", net.top_name(index, i),
        " data: ", AbsoluteMean(tops[i]->data));
  }
  for (std::size_t i = 0; i < layer.blobs().size(); ++i) {
    Say(sink, "    [Forward] Layer ", layer.name(), ", param blob ", NameOf(layer, i),
        " data: ", AbsoluteMean(layer.blobs()[i].data));
  }
}

void DebugBackward(const Net& net, int index, bool by_factors, const DebugSink& sink) {
  if (!net.needs_backward(index)) return;
  const EngineGuard guard;
  const Layer& layer = net.layer(index);
  const Blobs& bottoms = net.bottoms(index);
  for (std::size_t i = 0; i < bottoms.size(); ++i) {
    if (!net.propagates_down(index, i) || !bottoms[i]->diff.defined()) continue;
    Say(sink, "    [Backward] Layer ", layer.name(), ", bottom blob ", net.bottom_name(index, i),
        " diff: ", AbsoluteMean(bottoms[i]->diff));
  }
  for (std::size_t i = 0; i < layer.blobs().size() && !by_factors; ++i) {
    if (!layer.wants_param_diff(i)) continue;
    Say(sink, "    [Backward] Layer ", layer.name(), ", param blob ", NameOf(layer, i),
        " diff: ", AbsoluteMean(layer.blobs()[i].diff));
  }
}

void DebugAllParams(const Net& net, const DebugSink& sink) {
  const EngineGuard guard;
  double sum_data = 0, sum_diff = 0, squares_data = 0, squares_diff = 0;
  for (const LearnableParam& param : net.learnable_params()) {
    sum_data += AbsoluteSum(param.blob.data);
    sum_diff += AbsoluteSum(param.blob.diff);
    squares_data += SquareSum(param.blob.data);
    squares_diff += SquareSum(param.blob.diff);
  }
  Say(sink, "    [Backward] All net params (data, diff): L1 norm = (", sum_data, ", ", sum_diff, "); L2 norm = (",
      std::sqrt(squares_data), ", ", std::sqrt(squares_diff), ")");
}

void DebugUpdate(const Net& net, const LearnableParam& param, const at::Tensor& before, const at::Tensor& update,
                 const DebugSink& sink) {
  const EngineGuard guard;
  const Layer& layer = net.layer(param.layer);
  Say(sink, "    [Update] Layer ", layer.name(), ", param ", NameOf(layer, static_cast<std::size_t>(param.index)),
      " data: ", AbsoluteMean(before), "; diff: ", AbsoluteMean(update));
}

}  // namespace poseidon::caffe
