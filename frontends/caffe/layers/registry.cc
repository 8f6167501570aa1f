// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/layers/registry.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>
#include <utility>

#include "frontends/caffe/net/filler.h"
#include "frontends/caffe/proto/forks.h"

namespace poseidon::caffe {

using LayerMaker = std::unique_ptr<Layer> (*)(const LayerParameter& param,
                                              const LayerContext& context);

#define POSEIDON_LAYER(type, maker) \
  std::unique_ptr<Layer> maker(const LayerParameter& param, const LayerContext& context);
#include "frontends/caffe/layers/layers.inc"
#undef POSEIDON_LAYER

namespace {

struct Entry {
  std::string_view type;
  LayerMaker make;
};

constexpr Entry kLayers[] = {
#define POSEIDON_LAYER(type, maker) {type, maker},
#include "frontends/caffe/layers/layers.inc"
#undef POSEIDON_LAYER
};

// How many letters have to be put in, taken out or replaced, whatever their case.
std::size_t Distance(std::string_view a, std::string_view b) {
  const auto differ = [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) != std::tolower(static_cast<unsigned char>(y));
  };
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (differ(a[i - 1], b[j - 1]) ? 1 : 0);
      diagonal = row[j];
      row[j] = std::min({row[j - 1] + 1, row[j] + 1, replaced});
    }
  }
  return row.back();
}

// The known type that `type` may stand for; empty: none is near.
std::string_view SpelledNearly(std::string_view type) {
  std::string_view nearest;
  std::size_t least = type.size() / 4 + 1;  // letters that may be wrong, and one more
  for (const Entry& entry : kLayers) {
    if (const std::size_t distance = Distance(type, entry.type); distance < least) {
      least = distance;
      nearest = entry.type;
    }
  }
  return nearest;
}

}  // namespace

Result<std::unique_ptr<Layer>> MakeLayer(const LayerParameter& param,
                                         const LayerContext& context) {
  for (const Entry& entry : kLayers) {
    if (entry.type == param.type()) return entry.make(param, context);
  }
  const std::string_view meant = ForkOfType(param.type()).empty() ? SpelledNearly(param.type()) : std::string_view();
  std::string words = UnknownType(param.type());
  if (!meant.empty()) words += " (did you mean '" + std::string(meant) + "'?)";
  return InvalidArgument(std::move(words));
}

LayerRefusals RefusalsOf(const LayerParameter& param) {
  const Result<std::unique_ptr<Layer>> made = MakeLayer(param, {});
  if (!made.ok()) return {.known_type = false, .reasons = {made.status().message()}};
  LayerRefusals refusals;
  std::vector<Status> refused = RefusedFillers(param);
  refused.insert(refused.begin(), CheckArity(**made));
  for (const Status& status : refused) {
    if (!status.ok()) refusals.reasons.push_back(status.message());
  }
  return refusals;
}

std::vector<std::string> LayerTypes() {
  std::vector<std::string> types;
  for (const Entry& entry : kLayers) types.emplace_back(entry.type);
  std::sort(types.begin(), types.end());
  return types;
}

}  // namespace poseidon::caffe
