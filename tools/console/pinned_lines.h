// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_CONSOLE_PINNED_LINES_H_
#define POSEIDON_TOOLS_CONSOLE_PINNED_LINES_H_

#include <functional>
#include <string>
#include <vector>

#include "tools/console/line_writer.h"
#include "tools/console/width.h"

namespace poseidon::tools {

// Lines that stay below all others on a terminal: what is printed scrolls above them, and stays in the terminal's memory.
//
// The cursor rests where they begin. So all that is drawn is erased from there down, whatever another size of the terminal has
// made of it, and a process that is killed leaves nothing to be set right.
// Thread: one. Never blocks; while the terminal takes nothing, nothing is drawn.
class PinnedLines {
 public:
  struct Line {
    std::string text;              // without control characters
    const char* colour = nullptr;  // console/colour.h; null: none
  };

  // `size` is asked before anything is drawn. Lifetime: `out`'s.
  PinnedLines(LineWriter& out, std::function<TerminalSize()> size) : out_(out), size_(std::move(size)) {}

  // Prints lines above, with their ends.
  void Print(const std::string& text);
  // From here on these lines are shown, as far as they fit.
  void Show(std::vector<Line> lines);
  // One more line below them, as a progress bar draws it; its colours are left out. Empty: none.
  void Note(const std::string& line);
  // Takes them off the terminal until something is shown again.
  void Hide();
  // These lines stay in their place, whole as far as they are no wider than the terminal, and what follows is printed below.
  void Close(const std::vector<Line>& last);

 private:
  std::string Erased();
  std::string Drawn();
  void Draw();

  LineWriter& out_;
  const std::function<TerminalSize()> size_;
  std::vector<Line> lines_;
  std::string note_;
  bool drawn_ = false;
};

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_CONSOLE_PINNED_LINES_H_
