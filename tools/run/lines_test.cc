// SPDX-License-Identifier: Apache-2.0
#include "tools/run/lines.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace poseidon::tools {
namespace {

// Every piece, `~` before one that is passing; `|` shows what has no end.
std::string Told(const std::vector<std::string>& chunks, bool ends = true) {
  Lines lines;
  std::string told;
  const auto note = [&](const std::string& line, bool passing) { told += (passing ? "~" : "") + line + ";"; };
  for (const std::string& chunk : chunks) {
    lines.Take(chunk, note);
    if (!ends) lines.Show([&](const std::string& line, bool) { told += "|" + line; });
  }
  if (ends) lines.End(note);
  return told;
}

TEST(Lines, EndAtNewlines) {
  EXPECT_EQ(Told({"a\nb", "c\n\nd"}), "a;bc;;d;");
  EXPECT_EQ(Told({"a\r\nb\r", "\nc"}), "a;b;c;");
}

TEST(Lines, OfAProgressBarArePassing) {
  EXPECT_EQ(Told({"\r10%\r20%\r", "30%\nnext\n"}), "~10%;~20%;30%;next;");
  EXPECT_EQ(Told({"10%\r20%\r"}), "~10%;20%;");
  EXPECT_EQ(Told({"\r10%", "\r20%", "\n"}, false), "|10%~10%;|20%20%;");
}

TEST(Lines, LeaveOutWhatMovesTheCursor) {
  EXPECT_EQ(Told({"\x1b[1A\x1b[2Kx\x1b[1mb\x1b[0m\x1b", "[3", "1mr\b\b\n"}), "x\x1b[1mb\x1b[0m\x1b[31mr;");
  EXPECT_EQ(Told({"\x1b" "7a\x1b[?25lb\n"}), "ab;");
}

TEST(Lines, WithoutAnEndAreCut) {
  EXPECT_EQ(Told({std::string(Lines::kLongest + 1, 'x')}), std::string(Lines::kLongest, 'x') + ";x;");
}

}  // namespace
}  // namespace poseidon::tools
