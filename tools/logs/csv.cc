// SPDX-License-Identifier: Apache-2.0
#include "tools/logs/csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace poseidon::logs {
namespace {

constexpr const char* kLineEnd = "\r\n";  // of Python's csv

std::string Cell(const std::string& text, char delimiter) {
  if (text.find_first_of(std::string("\"\r\n") + delimiter) == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string PythonNumber(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 40> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::scientific);
  const std::string scientific(text.data(), written.ptr);
  const int exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
  if (exponent < -4 || exponent >= 16) return scientific;
  const auto fixed = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  std::string number(text.data(), fixed.ptr);
  return number.find('.') == std::string::npos ? number + ".0" : number;
}

std::string Csv(const std::vector<Row>& rows, char delimiter) {
  if (rows.empty()) return "";
  std::vector<std::string> names;
  for (const Row& row : rows) {
    for (const auto& [name, value] : row.outputs) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  const std::string between(1, delimiter);
  std::string text = "NumIters" + between + "Seconds" + between + "LearningRate";
  for (const std::string& name : names) text += between + Cell(name, delimiter);
  text += kLineEnd;
  for (const Row& row : rows) {
    text += PythonNumber(row.iteration) + between + PythonNumber(row.seconds) + between + PythonNumber(row.rate);
    for (const std::string& name : names) {
      const auto found = std::find_if(row.outputs.begin(), row.outputs.end(), [&](const auto& one) { return one.first == name; });
      text += between + (found == row.outputs.end() ? "" : PythonNumber(found->second));
    }
    text += kLineEnd;
  }
  return text;
}

}  // namespace poseidon::logs
