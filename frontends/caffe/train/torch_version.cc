// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/torch_version.h"

#include <caffe2/core/common.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace poseidon::caffe {
namespace {

// What the library says of its build; empty where it does not say its version. at::show_config says it too, but settles for good that
// the engine has no CUDA: it is asked before Placement loads that.
std::string LoadedVersion() {
  const auto& options = caffe2::GetBuildOptions();
  const auto found = options.find("TORCH_VERSION");
  return found == options.end() ? "" : found->second;
}

// "2.13" of "2.13.0+cpu".
constexpr std::string_view MinorOf(std::string_view version) {
  const std::size_t first = version.find('.');
  return first == std::string_view::npos ? version : version.substr(0, std::min(version.find('.', first + 1), version.size()));
}

constexpr std::string_view kExpected = MinorOf(POSEIDON_TORCH_VERSION);
static_assert(!kExpected.empty());

}  // namespace

Status TorchFits() {
  const std::string loaded = LoadedVersion();
  const std::string expected(kExpected);
  if (MinorOf(loaded) == kExpected) return OkStatus();
  return Unavailable("the trainer is built for PyTorch " + expected + " and has loaded " +
                            (loaded.empty() ? "one that does not say its version" : loaded) + ", expected torch==" + expected + ".*");
}

}  // namespace poseidon::caffe
