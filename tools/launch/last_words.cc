// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/last_words.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace poseidon::launch {
namespace {

std::string member_name;  // empty in a process that has no launcher of ours

}  // namespace

void SayLastWords(std::string_view sentence) {
  std::array<char, 1024> text;
  const int length = std::min<int>(
      text.size() - 1,
      member_name.empty()
          ? std::snprintf(text.data(), text.size(), "poseidon: %.*s\n", static_cast<int>(sentence.size()),
                          sentence.data())
          : std::snprintf(text.data(), text.size(),
                          R"({"event":"failed","message":"%s: %.*s","culprit":-1})"
                          "\n",
                          member_name.c_str(), static_cast<int>(sentence.size()), sentence.data()));
  static_cast<void>(
      !write(member_name.empty() ? STDERR_FILENO : STDOUT_FILENO, text.data(), static_cast<std::size_t>(length)));
}

void TellLauncherLastWords(const std::string& name) { member_name = name; }

}  // namespace poseidon::launch
