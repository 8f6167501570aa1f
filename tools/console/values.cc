// SPDX-License-Identifier: Apache-2.0
#include "tools/console/values.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "poseidon/base/status.h"

namespace poseidon::tools {
namespace {

// The whole of `text` as a number; false where it is none.
template <typename T>
bool Read(const std::string& text, T* value) {
  const char* const end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data(), end, *value);
  return read.ec == std::errc() && read.ptr == end;
}

std::string TextOf(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", number);
  return text;
}

std::string Expected(const std::string& what, const std::string& found) { return "expected " + what + ", not '" + found + "'"; }

// Why the file cannot be opened so (R_OK, W_OK); empty where it can.
std::string Unusable(const std::string& path, int mode) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0 || access(path.c_str(), mode) != 0) {
    return (mode == R_OK ? "cannot open " : "cannot write ") + path + ": " + ErrnoText(errno);
  }
  return S_ISDIR(found.st_mode) ? path + " is a folder, expected a file" : "";
}

}  // namespace

CLI::Validator WholeNumber(std::int64_t least, std::int64_t most) {
  const std::string range = std::to_string(least) + " to " + std::to_string(most);
  return {[=](std::string& text) {
            std::int64_t value = 0;
            if (Read(text, &value) && value >= least && value <= most) return std::string();
            return Expected("a whole number from " + range, text);
          },
          range};
}

CLI::Validator WholeNumber() {
  return {[](std::string& text) {
            int value = 0;
            return Read(text, &value) ? std::string() : Expected("a whole number", text);
          },
          ""};
}

CLI::Validator Number(double least, double most) {
  const std::string range = TextOf(least) + " to " + TextOf(most);
  return {[=](std::string& text) {
            double value = 0;
            if (Read(text, &value) && value >= least && value <= most) return std::string();
            return Expected("a number from " + range, text);
          },
          range};
}

CLI::Validator Quantity(Result<double> (*parse)(const std::string&)) {
  return {[parse](std::string& text) {
            const Result<double> quantity = parse(text);
            return quantity.ok() ? std::string() : quantity.status().message();
          },
          ""};
}

CLI::Validator OneOf(const std::vector<std::string>& words) {
  std::string all, sentence;
  for (std::size_t i = 0; i < words.size(); ++i) {
    all += (i == 0 ? "" : "|") + words[i];
    sentence += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  }
  return {[=](std::string& text) {
            const bool known = std::find(words.begin(), words.end(), text) != words.end();
            return known ? std::string() : Expected(sentence, text);
          },
          all};
}

CLI::Validator InputFile() {
  return {[](const std::string& path) { return Unusable(path, R_OK); }, ""};
}

CLI::Validator OutputFile() {
  return {[](const std::string& path) {
            if (access(path.c_str(), F_OK) == 0) return Unusable(path, W_OK);
            const std::string folder = std::filesystem::path(path).parent_path().string();
            const bool writable = !path.empty() && access(folder.empty() ? "." : folder.c_str(), W_OK) == 0;
            return writable ? std::string() : "cannot write " + path + ": " + ErrnoText(path.empty() ? ENOENT : errno);
          },
          ""};
}

std::vector<std::string> CommaParts(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream each(list);
  for (std::string part; std::getline(each, part, ',');) parts.push_back(part);
  return parts;
}

}  // namespace poseidon::tools
