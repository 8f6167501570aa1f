// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/image_list.h"

#include <algorithm>
#include <charconv>

#include "frontends/caffe/data/image_file.h"

namespace poseidon::caffe {

Result<ImageList> ImageList::Read(const std::string& path) {
  ImageList list;
  list.path_ = path;
  const Status read = ReadFileBytes(path, &list.text_);
  if (!read.ok()) return Status(read.code(), "image list " + read.message());
  std::string_view left = list.text_;
  while (!left.empty() && (left.back() == '\n' || left.back() == '\r' || left.back() == ' ')) left.remove_suffix(1);
  if (left.empty()) return InvalidArgument("image list " + path + " is empty, expected lines with a path and a label");
  while (!left.empty()) {
    const std::string_view line = left.substr(0, left.find('\n'));
    POSEIDON_RETURN_IF_ERROR(list.Add(line));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
  }
  return list;
}

Status ImageList::Add(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  const std::size_t space = line.rfind(' ');
  const bool has_both = space != std::string_view::npos && space > 0;
  std::int32_t label = 0;
  const char* const end = line.data() + line.size();
  const auto parsed = std::from_chars(has_both ? line.data() + space + 1 : end, end, label);
  if (!has_both || parsed.ec != std::errc() || parsed.ptr != end) {
    return InvalidArgument("image " + Where(size()) + " is '" + std::string(line.substr(0, 100)) +
                           "', expected a path, a space and a label, which is a whole number");
  }
  entries_.push_back({static_cast<std::uint32_t>(line.data() - text_.data()), static_cast<std::uint32_t>(space), label});
  return OkStatus();
}

std::string ImageList::Where(std::uint64_t entry) const { return "list " + path_ + ", line " + std::to_string(entry + 1); }

}  // namespace poseidon::caffe
