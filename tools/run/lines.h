// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_RUN_LINES_H_
#define POSEIDON_TOOLS_RUN_LINES_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace poseidon::tools {

// Lines of a byte stream, as a terminal of one line shows them: a carriage return begins the line again, as progress bars
// do, so that what it had is passing; backspaces and escape sequences other than colours have no effect.
// Thread: one.
class Lines {
 public:
  // A line that never ends is cut here.
  static constexpr std::size_t kLongest = 64 << 10;

  // `passing`: the next piece takes its place.
  using OnLine = std::function<void(const std::string& line, bool passing)>;

  // Tells the pieces that these bytes end.
  void Take(std::string_view bytes, const OnLine& on_line);
  // Tells what has no end yet, as passing: it is what a terminal shows now.
  void Show(const OnLine& on_line) const;
  // The stream has ended: what has no end is a line.
  void End(const OnLine& on_line);

 private:
  void Add(char c, const OnLine& on_line);
  bool IsOfEscape(char c);

  std::string partial_;
  std::string escape_;      // a sequence that has begun
  bool returned_ = false;   // a carriage return came last: of "\r\n", or the line begins again
};

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_RUN_LINES_H_
