// SPDX-License-Identifier: Apache-2.0
#include "poseidon/place/figures.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <unistd.h>

#include <array>
#include <limits>
#include <string>

namespace poseidon::place {
namespace {

Figures Some() {
  return {.at = 12.5, .steps = 1201, .measured = 1198, .seconds = 100.25, .communication = 3.5, .slower_workers = 0.125, .hidden = 0.94,
          .sent = 18446744073709551615u, .received = 5, .link = 1.25e9, .blocked = true, .waits_on = {2, 11},
          .waits_for = "the gradient of layer 'ip 1' in step 17", .busy_with = "evaluates"};
}

std::string LineOf(const Figures& figures) {
  std::string line = EncodeFigures(figures);
  EXPECT_EQ(line.back(), '\n');
  EXPECT_LE(line.size(), static_cast<std::size_t>(PIPE_BUF));
  line.pop_back();
  return line;
}

TEST(Figures, ComeBackFromTheirLine) {
  EXPECT_EQ(DecodeFigures(LineOf(Some())), Some());
  EXPECT_EQ(DecodeFigures(LineOf({})), Figures{});
}

TEST(Figures, LongTextsAndListsAreCutAndControlCharactersReplaced) {
  Figures figures = Some();
  figures.waits_on.assign(5000, 65535);
  figures.waits_for = std::string(199, 'x') + "é" + std::string(100000, 'y');  // is cut in the middle of a character
  figures.busy_with = "a\tb\nc\x1b[31m";
  const std::optional<Figures> read = DecodeFigures(LineOf(figures));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->waits_on, std::vector<std::uint16_t>(32, 65535));
  EXPECT_EQ(read->waits_for, std::string(199, 'x'));
  EXPECT_EQ(read->busy_with, "a?b?c?[31m");
}

TEST(Figures, ALineOfAnotherFormIsNone) {
  const std::string good = LineOf(Some());
  std::size_t refused = 0;
  for (std::size_t length = 0; length < good.find('\t'); ++length) refused += !DecodeFigures(good.substr(0, length));
  // Of the last number, a bit, nothing can be missing; a list and texts may be empty.
  EXPECT_EQ(refused, good.find('\t'));
  for (const char* line : {"", "figures", "figures 2 1 2 3", "figures 1 1 1 1 1 1 1 2 1 1 1 1", "figures 1 -1 1 1 1 1 1 1 1 1 1 1",
                           "figures 1 nan 1 1 1 1 1 1 1 1 1 1", "figures 1 1 1.5 1 1 1 1 1 1 1 1 1", "figures 1 1 1 1 1 1 1 1 1 1 1 2",
                           "figures 1 1 1 1 1 1 1 1 1 1 1 1 1", "figures 1 1 1 1 1 1 1 1 1 1 1 1\t65536", "figures 1 1 1 1 1 1 1 1 1 1 1 1\tx"}) {
    EXPECT_FALSE(DecodeFigures(line)) << line;
  }
  EXPECT_TRUE(DecodeFigures("figures 1 1 1 1 1 1 1 1 1 1 1 1"));
}

TEST(Figures, GoIntoAPipeWithoutEverBlocking) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_NONBLOCK | O_CLOEXEC), 0);
  const TellFigures tell = FiguresInto("/proc/self/fd/" + std::to_string(ends[1]));
  ASSERT_TRUE(tell);
  tell(Some());
  std::array<char, 4096> text{};
  ASSERT_GT(read(ends[0], text.data(), text.size()), 0);
  EXPECT_EQ(DecodeFigures(std::string(text.data()).substr(0, std::string(text.data()).find('\n'))), Some());
  for (int i = 0; i < 10000; ++i) tell(Some());  // far more than it holds
  // The launcher is gone, and no signal comes.
  close(ends[0]);
  close(ends[1]);
  for (int i = 0; i < 10000; ++i) tell(Some());
}

TEST(Figures, NeedAFileThatIsThere) { EXPECT_FALSE(FiguresInto("/nowhere/at/all")); }

}  // namespace
}  // namespace poseidon::place
