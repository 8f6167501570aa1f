// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_C_SAY_H_
#define POSEIDON_FRONTENDS_CAFFE_C_SAY_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "frontends/caffe/train/output.h"
#include "poseidon/base/log.h"

namespace poseidon::caffe {

// Tells the user a line, by poseidon_caffe_set_say's function. Thread: any.
void Say(LogLevel level, const std::string& line);

// A worker's output, each line of it by Say. Thread: any.
class SaidOutput final : public Output {
 public:
  void Print(const std::string& text) override { Say(LogLevel::kNotice, text); }
  void Progress(const std::string& /*line*/) override {}
  void PrintLog(const std::string& line) override { Say(LogLevel::kNotice, line); }
  std::size_t width() const override { return 80; }
  void Log(LogLevel level, std::string_view line) override { Say(level, std::string(line)); }
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_C_SAY_H_
