// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/numbers.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace poseidon::caffe {

std::string NumberText(const char* format, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

nlohmann::json NumbersJson(const std::vector<double>& numbers) {
  return numbers.size() == 1 ? nlohmann::json(numbers.front()) : nlohmann::json(numbers);
}

}  // namespace poseidon::caffe
