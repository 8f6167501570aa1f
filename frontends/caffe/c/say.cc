// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/c/say.h"

#include <atomic>
#include <iostream>
#include <sstream>

#include "frontends/caffe/c/failure.h"
#include "frontends/caffe/c/poseidon_caffe.h"

namespace poseidon::caffe {
namespace {

std::atomic<poseidon_caffe_say> said_by{nullptr};

}  // namespace

void Say(LogLevel level, const std::string& line) {
  if (level == LogLevel::kDebug) return;
  const poseidon_caffe_say say = said_by.load();
  std::istringstream lines(line);
  for (std::string each; std::getline(lines, each);) {
    if (say != nullptr) {
      static_cast<void>(WantsOut());  // a signal that has come is not the callback's affair; whoever asks next knows of it
      say(static_cast<int32_t>(level), each.c_str());
    } else {
      std::cerr << each << std::endl;
    }
  }
}

}  // namespace poseidon::caffe

void poseidon_caffe_set_say(poseidon_caffe_say say) { poseidon::caffe::said_by.store(say); }
