// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_RUN_RUN_LOG_H_
#define POSEIDON_TOOLS_RUN_RUN_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "poseidon/base/new_file.h"
#include "poseidon/base/status.h"
#include "tools/console/pinned_lines.h"

namespace poseidon::tools {

// Writes the output of the ranks of `poseidon run`: on this process's own two streams with the rank before each line,
// coloured on a terminal, or in a file a rank. Never blocks; TakesLines says when the streams are behind.
// Thread: one.
class RunLog {
 public:
  // How many of a rank's last lines are kept.
  static constexpr std::size_t kLastLines = 20;

  // How many columns stand before each line, of so many ranks.
  static std::size_t PrefixWidth(std::size_t ranks);

  explicit RunLog(std::size_t ranks);
  // From here on lines go to FOLDER/rank-0.log and so on, anew; makes the folder. kUnavailable naming the path.
  Status WriteInto(const std::string& folder);

  // From here on what goes to the terminal of standard output goes above these lines; null: no longer.
  void Pin(PinnedLines* pinned) { pinned_ = pinned; }

  bool TakesLines() const;
  // `error`: of the rank's standard error.
  void Line(std::size_t rank, bool error, const std::string& line);
  // A line that the next of this stream replaces; on a terminal, else it is not shown.
  void Passing(std::size_t rank, bool error, const std::string& line);
  // What a passing line shows stays; what follows begins a line of its own.
  void EndPassing();
  // A line of nobody's, on standard error.
  void Say(const std::string& line);
  // Prints the last lines of a rank below all others, unless few came below them. `name` is the rank's.
  void ShowLast(std::size_t rank, const std::string& name);

 private:
  struct Rank {
    std::deque<std::string> last;
    std::uint64_t printed_at = 0;  // the number of its last line among those of all
    std::string path;
    std::unique_ptr<File> file;
    bool lost = false;  // a line has said that its file takes no more
  };
  std::string Prefix(std::size_t rank, bool error) const;
  bool IsPassingOn(bool error) const;
  bool IsPinned(bool error) const;
  void NotePassing();
  void Write(bool error, bool over_passing, const std::string& line);

  std::vector<Rank> ranks_;
  std::uint64_t printed_ = 0;
  bool into_files_ = false;
  PinnedLines* pinned_ = nullptr;
  struct {
    std::string line;  // empty: none is shown
    std::size_t rank = 0;
    bool error = false;
  } passing_;
  bool colours_[2];  // of standard output, standard error
};

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_RUN_RUN_LOG_H_
