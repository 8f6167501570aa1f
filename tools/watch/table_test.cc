// SPDX-License-Identifier: Apache-2.0
#include "tools/watch/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/console/colour.h"
#include "poseidon/plan/units.h"
#include "tools/watch/texts.h"

namespace poseidon::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Standing One(std::size_t rank) {
  return {.seat = {std::to_string(rank), "machine-" + std::to_string(rank / 4)},
          .told = true,
          .up = true,
          .figures = {.steps = 1201, .measured = 1200, .seconds = 120, .hidden = 0.94, .link = 1.25e8},
          .steps_per_second = 10,
          .sent_per_second = 1.1e8,
          .received_per_second = 1.05e8,
          .step_seconds = 0.1,
          .computing_seconds = 0.08 + 0.0001 * static_cast<double>(rank),
          .communication_share = 0.03,
          .slower_share = 0.12};
}

std::vector<Standing> Job(std::size_t ranks, std::size_t slow) {
  std::vector<Standing> members;
  for (std::size_t rank = 0; rank < ranks; ++rank) members.push_back(One(rank));
  if (slow < ranks) {
    members[slow].slow = true;
    members[slow].remark = "slow: computes 120 ms a step, median 80 ms";
  }
  return members;
}

std::vector<std::string> Texts(const std::vector<PinnedLines::Line>& lines) {
  std::vector<std::string> texts;
  for (const PinnedLines::Line& line : lines) texts.push_back(line.text);
  return texts;
}

TEST(TableTest, HasARowForEveryRank) {
  EXPECT_THAT(Texts(Table(Job(8, 5), {140, 24}, false)),
              ElementsAre("poseidon: 8 of 8 up, step 1201, 10.0 steps/s, 880 MB/s in all",
                          "rank host      step steps/s sent/s received/s link hidden for bytes for slower",
                          "   0 machine-0 1201    10.0 110 MB     105 MB 88 %   94 %       3 %       12 %",
                          "   1 machine-0 1201    10.0 110 MB     105 MB 88 %   94 %       3 %       12 %",
                          "   2 machine-0 1201    10.0 110 MB     105 MB 88 %   94 %       3 %       12 %",
                          "   3 machine-0 1201    10.0 110 MB     105 MB 88 %   94 %       3 %       12 %",
                          "   4 machine-1 1201    10.0 110 MB     105 MB 88 %   94 %       3 %       12 %",
                          "   5 machine-1 1201    10.0 110 MB     105 MB 88 %   94 %       3 %       12 % slow: computes 120 ms a step, median 80 ms",
                          "   6 machine-1 1201    10.0 110 MB     105 MB 88 %   94 %       3 %       12 %",
                          "   7 machine-1 1201    10.0 110 MB     105 MB 88 %   94 %       3 %       12 %"));
}

TEST(TableTest, FitsEveryTerminalAndSaysWhoIsSlow) {
  for (std::size_t ranks : {1, 2, 8, 300}) {
    for (std::size_t columns = 1; columns <= 170; columns += 1 + columns / 20) {
      for (std::size_t rows : {1, 2, 3, 4, 5, 10, 24, 60, 1000}) {
        const std::vector<std::string> lines = Texts(Table(Job(ranks, ranks / 2), {columns, rows}, false));
        ASSERT_LE(lines.size(), std::max<std::size_t>(1, 2 * rows / 3)) << ranks << " ranks, " << columns << " columns, " << rows << " rows";
        std::size_t slow = 0;
        // The title is cut where it is drawn.
        for (std::size_t i = 1; i < lines.size(); ++i) {
          if (!lines[i].starts_with("and ") && columns >= 6) {
            ASSERT_LT(ColumnsOf(lines[i]), columns) << lines[i];
          }
          slow += lines[i].find("slow:") != std::string::npos ? 1 : 0;
        }
        if (columns >= 40 && lines.size() > 3) {
          ASSERT_EQ(slow, 1u) << testing::PrintToString(lines);
        }
      }
    }
  }
}

TEST(TableTest, OfManyRanksTheSlowestAreShownAndTheOthersCounted) {
  std::vector<Standing> members = Job(100, 50);
  members[70].up = false;
  members[70].remark = "has said nothing for 12 s";
  const std::vector<std::string> lines = Texts(Table(members, {100, 15}, false));
  ASSERT_EQ(lines.size(), 10u);
  EXPECT_THAT(lines[2], StartsWith("  50 "));
  EXPECT_THAT(lines[3], StartsWith("  70 "));
  EXPECT_THAT(lines[4], StartsWith("  95 "));
  EXPECT_THAT(lines[8], StartsWith("  99 "));
  EXPECT_EQ(lines[9], "and 93 more; these are the slowest");
}

TEST(TableTest, InANarrowTerminalLessIsShown) {
  const std::vector<std::string> eighty = Texts(Table(Job(8, 5), {80, 24}, false));
  EXPECT_EQ(eighty[1], "rank host      step steps/s link hidden for slower");
  EXPECT_THAT(eighty[7], EndsWith("12 % slow: computes 120 ms a step"));
  const std::vector<std::string> forty = Texts(Table(Job(8, 5), {40, 24}, false));
  EXPECT_EQ(forty[1], "rank step steps/s");
  EXPECT_THAT(forty[7], EndsWith("10.0 slow: computes 120 ms"));
}

TEST(TableTest, TheSlowHaveAColourBesideTheirWord) {
  for (const bool colours : {false, true}) {
    const std::vector<PinnedLines::Line> lines = Table(Job(2, 1), {100, 24}, colours);
    EXPECT_STREQ(lines[2].colour, nullptr);
    EXPECT_STREQ(lines[3].colour, colours ? kYellow : nullptr);
  }
}

TEST(TableTest, BeforeARankHasJoinedItsRowSaysSo) {
  std::vector<Standing> members = {{.seat = {"0", "a"}, .remark = "has not joined a job so far"}};
  EXPECT_THAT(Texts(Table(members, {110, 24}, false)),
              ElementsAre("poseidon: 0 of 1 up", "rank host step steps/s sent/s received/s link hidden for bytes for slower",
                          "   0 a       -       -      -          -    -      -         -          - has not joined a job so far"));
  EXPECT_EQ(SummaryLine(members), "");
}

TEST(TableTest, OneLineForALog) {
  EXPECT_EQ(SummaryLine(Job(2, 1)),
            "step 1201, 10.0 steps/s, 220 MB/s sent in all, at least 94 % of the communication hidden; "
            "rank 1 slow: computes 120 ms a step, median 80 ms");
}

TEST(TextsTest, HaveThreeDigits) {
  using plan::PercentText;
  using plan::SecondsText;
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(999.4), "999 B");
  EXPECT_EQ(BytesText(999.6), "1.00 kB");
  EXPECT_EQ(BytesText(1234), "1.23 kB");
  EXPECT_EQ(BytesText(99950), "100 kB");
  EXPECT_EQ(BytesText(1.25e9), "1.25 GB");
  EXPECT_EQ(BytesText(1e30), "1000000000000000 PB");
  EXPECT_EQ(SecondsText(0.0821), "82.1 ms");
  EXPECT_EQ(SecondsText(12.34), "12.3 s");
  EXPECT_EQ(SecondsText(0.00005), "50.0 us");
  EXPECT_EQ(PercentText(0.944), "94 %");
}

}  // namespace
}  // namespace poseidon::tools
