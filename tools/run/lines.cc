// SPDX-License-Identifier: Apache-2.0
#include "tools/run/lines.h"

#include <utility>

namespace poseidon::tools {
namespace {

constexpr char kEscape = '\x1b';
constexpr std::size_t kLongestEscape = 32;

}  // namespace

// Takes ESC, then `[`, parameters and the letter that ends the sequence, or one other character.
bool Lines::IsOfEscape(char c) {
  if (escape_.empty() && c != kEscape) return false;
  escape_ += c;
  const bool has_parameters = escape_.size() < 2 || escape_[1] == '[';
  const bool ends = !has_parameters || (escape_.size() > 2 && c >= '@' && c <= '~') || escape_.size() >= kLongestEscape;
  if (!ends) return true;
  if (has_parameters && c == 'm') partial_ += escape_;
  escape_.clear();
  return true;
}

void Lines::Add(char c, const OnLine& on_line) {
  if (c == '\r') {
    returned_ = true;
    return;
  }
  if (c == '\n') {
    returned_ = false;
    on_line(std::exchange(partial_, {}), false);
    return;
  }
  if (c == '\b') return;
  if (std::exchange(returned_, false) && !partial_.empty()) on_line(std::exchange(partial_, {}), true);
  if (IsOfEscape(c)) return;
  partial_ += c;
  if (partial_.size() >= kLongest) on_line(std::exchange(partial_, {}), false);
}

void Lines::Take(std::string_view bytes, const OnLine& on_line) {
  for (const char c : bytes) Add(c, on_line);
}

void Lines::Show(const OnLine& on_line) const {
  if (!partial_.empty()) on_line(partial_, true);
}

void Lines::End(const OnLine& on_line) {
  if (!partial_.empty()) on_line(std::exchange(partial_, {}), false);
}

}  // namespace poseidon::tools
