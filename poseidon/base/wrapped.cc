// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/wrapped.h"

#include <algorithm>

namespace poseidon {

std::size_t Columns(std::string_view text) {
  // Every byte but those that continue a character.
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string Padded(const std::string& text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

std::string Wrapped(std::string_view text, std::size_t width, std::size_t indent, std::size_t begin) {
  std::string lines;
  std::size_t column = begin;
  bool at_line_begin = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!at_line_begin && column + 1 + Columns(word) > width) {
      lines += "\n" + std::string(indent, ' ');
      column = indent;
      at_line_begin = true;
    }
    if (!at_line_begin) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += Columns(word);
    at_line_begin = false;
  }
  return lines;
}

}  // namespace poseidon
