// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/observer.h"

namespace poseidon::caffe {
namespace {

std::string Listed(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

}  // namespace

std::string InWords(const WeightsReport& report) {
  std::string words;
  if (!report.unused.empty()) words += "; not in the net: " + Listed(report.unused);
  if (!report.as_filled.empty()) words += "; not in the file, left as filled: " + Listed(report.as_filled);
  return words.empty() ? "" : "weights of " + report.model + words;
}

}  // namespace poseidon::caffe
