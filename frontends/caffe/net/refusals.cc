// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/refusals.h"

#include <algorithm>
#include <utility>

#include "frontends/caffe/proto/missing.h"

namespace poseidon::caffe {

void Refusals::Add(const LayerParameter& layer, const Status& why) {
  if (why.ok()) return;
  const auto same = std::find_if(entries_.begin(), entries_.end(),
                                 [&](const Entry& entry) { return entry.type == layer.type() && entry.why == why; });
  if (same != entries_.end()) {
    ++same->others;
  } else {
    entries_.push_back({.layer = layer.name(), .type = layer.type(), .why = why});
  }
}

Status Refusals::InOneSentence() const {
  if (entries_.empty()) return OkStatus();
  std::string text;
  for (std::size_t i = 0; i < std::min(entries_.size(), kMostReasons); ++i) {
    const Entry& entry = entries_[i];
    text += (i == 0 ? "layer '" : "; layer '") + entry.layer + "'";
    if (entry.why.message().find('\'' + entry.type + '\'') == std::string::npos) text += " (" + entry.type + ")";
    text += AndOthers(entry.others) + ": " + entry.why.message();
  }
  if (entries_.size() > kMostReasons) text += "; and " + std::to_string(entries_.size() - kMostReasons) + " more";
  return {entries_.front().why.code(), std::move(text)};
}

}  // namespace poseidon::caffe
