// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/last_words.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>

#include "tools/launch/events.h"

namespace poseidon::launch {
namespace {

std::string member_name;  // empty in a process that has no launcher of ours

}  // namespace

void SayLastWords(std::string_view sentence) {
  std::array<char, 1024> text;
  if (!member_name.empty()) {
    static_cast<void>(!write(STDOUT_FILENO, text.data(), EncodeLastWords(text, member_name.c_str(), sentence)));
    return;
  }
  const int length = std::snprintf(text.data(), text.size(), "poseidon: %.*s\n", static_cast<int>(sentence.size()),
                                   sentence.data());
  static_cast<void>(!write(STDERR_FILENO, text.data(), std::min(text.size() - 1, static_cast<std::size_t>(length))));
}

void TellLauncherLastWords(const std::string& name) { member_name = name; }

}  // namespace poseidon::launch
