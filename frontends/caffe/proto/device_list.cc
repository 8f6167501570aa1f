// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/proto/device_list.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include "frontends/caffe/proto/text_words.h"

namespace poseidon::caffe {
namespace {

constexpr std::string_view kName = "device_id";
constexpr std::size_t kMostBytes = std::size_t{64} << 20;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Where the quoted text that begins at `begin` ends, behind its quote; the end of the text where it does not.
std::size_t EndOfString(const std::string& text, std::size_t begin) {
  const char quote = text[begin];
  std::size_t i = begin + 1;
  while (i < text.size() && text[i] != quote && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
  return std::min(text.size(), i + 1);
}

std::size_t EndOfComment(const std::string& text, std::size_t begin) { return std::min(text.size(), text.find('\n', begin)); }

// Writes the first number over the quoted list that begins at `begin`; false where it is no list of whole numbers.
bool KeepFirst(std::string* text, std::size_t begin) {
  const std::size_t end = EndOfString(*text, begin);
  if (end < begin + 2 || (*text)[end - 1] != (*text)[begin]) return false;  // it has no end
  const std::string_view list = std::string_view(*text).substr(begin + 1, end - begin - 2);
  const bool numbers = std::all_of(list.begin(), list.end(), [](char c) { return IsDigit(c) || c == ',' || c == ' '; });
  const std::size_t digits = static_cast<std::size_t>(std::find_if_not(list.begin(), list.end(), IsDigit) - list.begin());
  if (!numbers || digits == 0) return false;
  const std::string number(list.substr(0, digits));
  text->replace(begin, end - begin, number + std::string(end - begin - digits, ' '));
  return true;
}

}  // namespace

std::optional<std::string> WithFirstDevice(std::string text) {
  bool found = false;
  int depth = 0;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '#') {
      i = EndOfComment(text, i);
    } else if (c == '"' || c == '\'') {
      i = EndOfString(text, i);
    } else if (depth == 0 && text.compare(i, kName.size(), kName) == 0 && (i == 0 || !IsOfName(text[i - 1]))) {
      i = BehindBlanks(text, i + kName.size());
      if (i >= text.size() || text[i] != ':') continue;
      i = BehindBlanks(text, i + 1);
      if (i < text.size() && (text[i] == '"' || text[i] == '\'')) found |= KeepFirst(&text, i);
    } else {
      depth += c == '{' || c == '<' ? 1 : c == '}' || c == '>' ? -1 : 0;
      ++i;
    }
  }
  return found ? std::optional(std::move(text)) : std::nullopt;
}

std::optional<std::string> TextWithFirstDevice(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;  // of a pipe there is no more
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() < 0 || file.tellg() > static_cast<std::streamoff>(kMostBytes)) return std::nullopt;
  file.seekg(0);
  std::ostringstream text;
  text << file.rdbuf();
  return WithFirstDevice(text.str());
}

}  // namespace poseidon::caffe
