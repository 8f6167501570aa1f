// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/not_finite.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "frontends/caffe/engine/engine.h"

namespace poseidon::caffe {
namespace {

// The kinds of losses, as they travel.
constexpr double kFiniteLoss = 1, kNan = 2, kInfinite = 3, kMinusInfinite = 4;

// A maximum passes NaN on.
bool IsBroken(const at::Tensor& numbers) {
  if (!numbers.defined() || numbers.numel() == 0) return false;
  return !std::isfinite(at::max(at::abs(numbers)).item<double>());
}

bool AnyBroken(const std::vector<Blob>& blobs) {
  return std::any_of(blobs.begin(), blobs.end(), [](const Blob& blob) { return IsBroken(blob.data); });
}

bool AnyBroken(const Blobs& blobs) {
  return std::any_of(blobs.begin(), blobs.end(), [](const Blob* blob) { return IsBroken(blob->data); });
}

std::string Quoted(const Net& net, int layer) {
  return "layer '" + net.UniqueName(layer) + "' (" + net.layer(layer).type() + ")";
}

// Whether a layer behind `layer` writes over its output, so that it no longer shows which of them broke it.
bool IsOverwritten(const Net& net, int layer) {
  const Blobs& tops = net.tops(layer);
  for (int later = layer + 1; later < net.layer_count(); ++later) {
    const Blobs& theirs = net.tops(later);
    if (std::find_first_of(tops.begin(), tops.end(), theirs.begin(), theirs.end()) != tops.end()) return true;
  }
  return false;
}

}  // namespace

std::array<double, NotFinite::kNumbers> NotFinite::ToNumbers() const {
  const double kind = std::isfinite(loss) ? kFiniteLoss
                      : std::isnan(loss)  ? kNan
                      : loss > 0          ? kInfinite
                                          : kMinusInfinite;
  return {1, static_cast<double>(iteration), kind, loss_layer + 1.0, layer + 1.0, weights ? 1.0 : 0.0};
}

std::optional<NotFinite> NotFinite::FromNumbers(std::span<const double> numbers, int worker) {
  if (numbers[0] == 0) return std::nullopt;
  NotFinite found{.iteration = static_cast<std::uint64_t>(numbers[1]), .worker = worker};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (numbers[2] == kNan) found.loss = std::numeric_limits<double>::quiet_NaN();
  if (numbers[2] == kInfinite) found.loss = kInfinity;
  if (numbers[2] == kMinusInfinite) found.loss = -kInfinity;
  found.loss_layer = static_cast<int>(numbers[3]) - 1;
  found.layer = static_cast<int>(numbers[4]) - 1;
  found.weights = numbers[5] != 0;
  return found;
}

bool IsBefore(const NotFinite& one, const NotFinite& other) {
  if (one.iteration != other.iteration) return one.iteration < other.iteration;
  return !std::isfinite(one.loss) && std::isfinite(other.loss);
}

NotFinite FindNotFinite(const Net& net, std::uint64_t iteration, double loss) {
  const EngineGuard guard;
  NotFinite found{.iteration = iteration, .loss = loss};
  for (int i = 0; i < net.layer_count(); ++i) {
    if (found.layer < 0 && AnyBroken(net.layer(i).blobs())) {
      found.layer = i;
      found.weights = true;
    }
    if (found.layer < 0 && AnyBroken(net.tops(i))) found.layer = i;
    if (found.loss_layer < 0 && net.loss_is_weighted(i) && AnyBroken(net.tops(i))) found.loss_layer = i;
  }
  return found;
}

int LayerWithBrokenWeights(const Net& net) {
  const EngineGuard guard;
  for (int i = 0; i < net.layer_count(); ++i) {
    if (AnyBroken(net.layer(i).blobs())) return i;
  }
  return -1;
}

std::string InWords(const NotFinite& found, const Net& net, int workers) {
  std::string words;
  const std::string when = " at iteration " + std::to_string(found.iteration) +
                           (workers > 1 ? " on worker " + std::to_string(found.worker) : "");
  if (std::isfinite(found.loss)) {
    words = "weights are not finite" + when;
    if (found.layer >= 0) words += ": the first are those of " + Quoted(net, found.layer);
    return words;
  }
  words = std::string("the loss is ") +
          (std::isnan(found.loss) ? "nan" : found.loss > 0 ? "infinite" : "minus infinite") + when;
  if (found.loss_layer >= 0) words += " in " + Quoted(net, found.loss_layer);
  if (found.layer >= 0 && found.weights) {
    words += "; the first numbers that are not finite are weights of " + Quoted(net, found.layer);
  } else if (found.layer >= 0 && found.layer != found.loss_layer) {
    words += "; the first numbers that are not finite are in the output of " + Quoted(net, found.layer);
    if (IsOverwritten(net, found.layer)) words += " or of a layer that works on it in place";
  }
  return words;
}

}  // namespace poseidon::caffe
