// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_LIST_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_LIST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "poseidon/base/result.h"

namespace poseidon::caffe {

// Caffe's image list: a file with lines "PATH LABEL". The label, a whole number, comes behind the last space, so that a path
// may have some. Entry i is line i + 1; empty lines are allowed at the end alone.
// Thread: any, once read.
class ImageList {
 public:
  // An error names the list and the line.
  static Result<ImageList> Read(const std::string& path);

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return entries_.size(); }  // at least 1
  // As it is in the list. The view holds as long as the list.
  std::string_view file(std::uint64_t entry) const {
    return std::string_view(text_).substr(entries_[entry].begin, entries_[entry].length);
  }
  std::int32_t label(std::uint64_t entry) const { return entries_[entry].label; }
  // "list PATH, line 3".
  std::string Where(std::uint64_t entry) const;

 private:
  struct Entry {
    std::uint32_t begin, length;  // of the path within text_, which is no longer than 1 GiB
    std::int32_t label;
  };

  Status Add(std::string_view line);

  std::string path_;
  std::string text_;
  std::vector<Entry> entries_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_LIST_H_
