// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_IMAGE_FLAGS_H_
#define POSEIDON_TOOLS_TRAIN_IMAGE_FLAGS_H_

#include <CLI/CLI.hpp>
#include <charconv>
#include <string>
#include <system_error>
#include <vector>

#include "frontends/caffe/data/image_input.h"
#include "tools/console/fail.h"
#include "tools/console/values.h"
#include "tools/train/net_flags.h"

namespace poseidon::tools {

// The flags of commands that show images to a net for deployment, by the names of ours and of Caffe's programs in
// Python.
struct ImageFlags {
  std::string model, weights, mean, mean_value, channel_swap;
  double raw_scale = 255, input_scale = 1;
  bool gpu = false;
  int threads = 0;
};
void AddImageFlags(CLI::App& command, ImageFlags& flags);

// The net that they name, in phase TEST. Fails with a sentence where one of its two files is not given.
NetFlags NetOf(const ImageFlags& flags, const std::string& command);

// How the net takes images: scales, channels, and the mean, which is read. Fails with a sentence.
caffe::InputOptions InputOf(const ImageFlags& flags);

// The numbers of a list with commas; fails with a sentence that names the flag.
template <typename T>
std::vector<T> NumbersIn(const std::string& list, const char* flag) {
  std::vector<T> numbers;
  for (const std::string& part : CommaParts(list)) {
    T number{};
    const auto read = std::from_chars(part.data(), part.data() + part.size(), number);
    if (read.ec != std::errc() || read.ptr != part.data() + part.size()) {
      FailUsage(std::string(flag) + " is '" + list + "', expected numbers with commas between them");
    }
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_IMAGE_FLAGS_H_
