// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/torch_version.h"

#include <ATen/Version.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace poseidon::caffe {
namespace {

// The version in what the library says of its build; empty where it says none.
std::string LoadedVersion() {
  constexpr std::string_view kBefore = "TORCH_VERSION=";
  const std::string said = at::show_config();
  const std::size_t found = said.find(kBefore);
  if (found == std::string::npos) return "";
  const std::size_t begin = found + kBefore.size();
  return said.substr(begin, said.find_first_of(", \n", begin) - begin);
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
