// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_LIST_LINES_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_LIST_LINES_H_

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "frontends/caffe/data/image_file.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// What the sentences about a list say.
struct ListWords {
  std::string list;      // "list of videos"
  std::string entry;     // "video"; more of them have an s
  std::string expected;  // of a line: "a folder, how many frames it has, and a label"
  std::string lines;     // that a list without entries should have: "lines with a folder, ..."
};

// Reads a text file whose lines are entries of words: `take(words, &entry)` reads all of a line's words and says whether they are an
// entry. Lines of spaces are left out. An error names the list, and the entry with its line where one is refused; a list without
// entries is refused too, and one that EpochOrder has no numbers for.
template <typename Entry, typename Take>
Result<std::vector<Entry>> ReadListLines(const std::string& path, const ListWords& words, const Take& take) {
  std::string text;
  if (const Status read = ReadFileBytes(path, &text); !read.ok()) return Status(read.code(), words.list + " " + read.message());
  const std::string list = words.list + " " + path;
  std::vector<Entry> entries;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream of_line(line);
    if ((of_line >> std::ws).eof()) continue;
    Entry entry;
    if (!take(of_line, &entry)) {
      return InvalidArgument(list + ", " + words.entry + " " + std::to_string(entries.size() + 1) + " is '" + line.substr(0, 100) +
                             "', expected " + words.expected);
    }
    entries.push_back(std::move(entry));
  }
  if (entries.empty()) return InvalidArgument(list + " is empty, expected " + words.lines);
  if (entries.size() >> 32 != 0) return InvalidArgument(list + " has 2^32 " + words.entry + "s or more");
  return entries;
}

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_LIST_LINES_H_
