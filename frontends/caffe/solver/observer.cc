// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/observer.h"

#include "poseidon/base/listed.h"

namespace poseidon::caffe {
namespace {

std::string Listed(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) AddListed(name, &list);
  return list;
}

}  // namespace

std::string InWords(const WeightsReport& report) {
  std::string words;
  if (!report.unused.empty()) words += "; not in the net: " + Listed(report.unused);
  if (!report.untouched.empty()) words += "; not in the file, left as they were: " + Listed(report.untouched);
  if (!report.repeated.empty()) {
    words += "; several layers of one name, of which the net's first took the last one's: " + Listed(report.repeated);
  }
  return words.empty() ? "" : "weights of " + report.model + words;
}

}  // namespace poseidon::caffe
