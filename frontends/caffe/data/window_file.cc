// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/window_file.h"

#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "frontends/caffe/data/image_file.h"

namespace poseidon::caffe {
namespace {

constexpr std::int32_t kMostWindows = (std::int64_t{1} << 31) - 1;
constexpr std::int32_t kFarthest = 1 << 24;  // a pixel's place is exact as a float

// The words of a window file, one after another, each with its line.
class WindowWords {
 public:
  explicit WindowWords(std::string_view text) : left_(text) {}

  // Empty at the end of the text.
  std::string_view Next() {
    std::size_t begin = 0;
    for (; begin < left_.size() && IsSpace(left_[begin]); ++begin) line_ += left_[begin] == '\n' ? 1 : 0;
    std::size_t end = begin;
    while (end < left_.size() && !IsSpace(left_[end])) ++end;
    const std::string_view word = left_.substr(begin, end - begin);
    left_.remove_prefix(end);
    return word;
  }
  // Of the last word.
  std::uint32_t line() const { return line_; }

 private:
  static bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

  std::string_view left_;
  std::uint32_t line_ = 1;
};

class WindowFileParser {
 public:
  WindowFileParser(std::string_view text, WindowFile* file) : words_(text), file_(file) {}

  Status Parse() {
    std::string_view word = words_.Next();
    if (word.empty())
      return InvalidArgument("window file " + file_->path + " is empty, expected images with their windows");
    for (; !word.empty(); word = words_.Next()) {
      if (word != "#") return Expected("'#' and the index of an image", word);
      POSEIDON_RETURN_IF_ERROR(ParseImage());
    }
    return OkStatus();
  }

 private:
  Status ParseImage() {
    const std::string of_image = " of image " + std::to_string(file_->images.size());
    const auto number = static_cast<std::int32_t>(file_->images.size());
    std::int32_t index = 0, channels = 0, height = 0, width = 0, windows = 0;
    POSEIDON_RETURN_IF_ERROR(Whole("the image's index, " + std::to_string(number) + " here", {number, number}, &index));
    WindowFile::Image image;
    const std::string_view path = words_.Next();
    if (path.empty()) return Expected("the path" + of_image, path);
    image.file = std::string(path);
    image.line = words_.line();
    POSEIDON_RETURN_IF_ERROR(
        Whole("the number of channels" + of_image + ", which is 3: images are read as colour", {3, 3}, &channels));
    POSEIDON_RETURN_IF_ERROR(Whole("the height" + of_image, {1, kFarthest}, &height));
    POSEIDON_RETURN_IF_ERROR(Whole("the width" + of_image, {1, kFarthest}, &width));
    POSEIDON_RETURN_IF_ERROR(Whole("the number of windows" + of_image, {0, kMostWindows}, &windows));
    image.shape = {channels, height, width};
    file_->images.push_back(std::move(image));
    for (; windows > 0; --windows) POSEIDON_RETURN_IF_ERROR(ParseWindow());
    return OkStatus();
  }

  Status ParseWindow() {
    WindowFile::Window window;
    window.image = static_cast<std::uint32_t>(file_->images.size() - 1);
    POSEIDON_RETURN_IF_ERROR(Whole("a window's class", {0, kMostWindows}, &window.label));
    window.line = words_.line();
    const std::string_view overlap = words_.Next();
    const auto read = std::from_chars(overlap.data(), overlap.data() + overlap.size(), window.overlap);
    if (read.ec != std::errc() || read.ptr != overlap.data() + overlap.size() || !std::isfinite(window.overlap)) {
      return Expected("a window's overlap, a number", overlap);
    }
    WindowBox& box = window.box;
    const std::pair<const char*, std::int32_t*> edges[] = {
        {"x1", &box.x1}, {"y1", &box.y1}, {"x2", &box.x2}, {"y2", &box.y2}};
    for (const auto& [name, edge] : edges)
      POSEIDON_RETURN_IF_ERROR(Whole(std::string("a window's ") + name, {-kFarthest, kFarthest}, edge));
    if (box.x1 > box.x2 || box.y1 > box.y2) {
      return InvalidArgument(file_->Where(window.line) +
                             ": the window ends before it begins, expected x1 <= x2 and y1 <= y2");
    }
    file_->windows.push_back(window);
    return OkStatus();
  }

  struct Bounds {
    std::int32_t least, most;
  };
  Status Whole(const std::string& what, Bounds bounds, std::int32_t* number) {
    const std::string_view word = words_.Next();
    const auto read = std::from_chars(word.data(), word.data() + word.size(), *number);
    if (read.ec == std::errc() && read.ptr == word.data() + word.size() && *number >= bounds.least &&
        *number <= bounds.most)
      return OkStatus();
    if (bounds.least == bounds.most) return Expected(what, word);
    return Expected(
        what + ", a whole number from " + std::to_string(bounds.least) + " to " + std::to_string(bounds.most), word);
  }

  Status Expected(const std::string& what, std::string_view word) const {
    const std::string found = word.empty() ? " ends the file" : " has '" + std::string(word.substr(0, 100)) + "'";
    return InvalidArgument(file_->Where(words_.line()) + found + ", expected " + what);
  }

  WindowWords words_;
  WindowFile* const file_;
};

}  // namespace

std::string WindowFile::Where(std::uint32_t line) const {
  return "window file " + path + ", line " + std::to_string(line);
}

Result<WindowFile> ReadWindowFile(const std::string& path) {
  WindowFile file;
  file.path = path;
  std::string text;
  const Status read = ReadFileBytes(path, &text);
  if (!read.ok()) return Status(read.code(), "window file " + read.message());
  POSEIDON_RETURN_IF_ERROR(WindowFileParser(text, &file).Parse());
  return file;
}

}  // namespace poseidon::caffe
