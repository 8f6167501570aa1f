// SPDX-License-Identifier: Apache-2.0
#include "tools/console/pinned_lines.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "tools/console/colour.h"

namespace poseidon::tools {
namespace {

// Without escape sequences, of which progress bars have colours.
std::string Plain(const std::string& line) {
  std::string plain;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b' && i + 1 < line.size() && line[i + 1] == '[') {
      for (i += 2; i < line.size() && (line[i] < '@' || line[i] > '~');) ++i;
    } else if (static_cast<unsigned char>(line[i]) >= 0x20 && line[i] != 0x7f) {
      plain += line[i];
    }
  }
  return plain;
}

}  // namespace

std::string PinnedLines::Erased() { return std::exchange(drawn_, false) ? "\r\x1b[J" : ""; }

// Leaves the last column free, behind which some terminals begin a row at once, and the last row.
std::string PinnedLines::Drawn() {
  const TerminalSize size = size_();
  std::vector<Line> all = lines_;
  if (!note_.empty()) all.push_back({note_, nullptr});
  if (size.rows > 0 && all.size() >= size.rows) all.resize(size.rows - 1);
  if (all.empty()) return "";
  std::string text;
  for (const Line& line : all) {
    text += (text.empty() ? "" : "\r\n") + InColour(line.colour, Clipped(line.text, std::max<std::size_t>(size.columns, 1) - 1));
  }
  text += "\r";
  if (all.size() > 1) text += "\x1b[" + std::to_string(all.size() - 1) + "A";
  drawn_ = true;
  return text;
}

void PinnedLines::Draw() {
  const bool was_drawn = drawn_;
  std::string text = Erased();
  text += Drawn();
  if (!text.empty() && !out_.WriteOrDrop(std::move(text))) drawn_ = was_drawn;  // the terminal is as it was
}

// Where the terminal is behind, what waits for it is lines alone: of these some may be dropped, and a picture must not be cut.
void PinnedLines::Print(const std::string& text) {
  std::string all = Erased() + text;
  if (text.find('\x1b') != std::string::npos) all += "\x1b[m";  // a colour that has no end stays above
  if (out_.HasRoom()) all += Drawn();
  out_.Write(std::move(all));
}

void PinnedLines::Show(std::vector<Line> lines) {
  lines_ = std::move(lines);
  Draw();
}

void PinnedLines::Note(const std::string& line) {
  std::string plain = Plain(line);
  if (plain == note_) return;
  note_ = std::move(plain);
  Draw();
}

void PinnedLines::Hide() {
  if (drawn_) out_.Write(Erased());
}

void PinnedLines::Close(const std::vector<Line>& last) {
  std::string text = Erased();
  const std::size_t columns = std::max<std::size_t>(size_().columns, 1) - 1;
  for (const Line& line : last) text += InColour(line.colour, Clipped(line.text, columns)) + "\n";
  lines_.clear();
  note_.clear();
  if (!text.empty()) out_.Write(std::move(text));
}

}  // namespace poseidon::tools
