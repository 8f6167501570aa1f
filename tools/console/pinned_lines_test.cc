// SPDX-License-Identifier: Apache-2.0
#include "tools/console/pinned_lines.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tools/console/colour.h"

namespace poseidon::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// What a terminal shows of the bytes that it gets: it knows what PinnedLines writes, and fails at everything else.
class Screen {
 public:
  explicit Screen(TerminalSize size) : size_(size), rows_(1) {}

  void Take(const std::string& bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == '\r') {
        column_ = 0;
      } else if (bytes[i] == '\n') {
        column_ = 0;  // as a terminal's driver makes of it
        if (++row_ == rows_.size()) rows_.emplace_back();
      } else if (bytes[i] == '\x1b') {
        const std::size_t end = bytes.find_first_not_of("0123456789", i + 2);
        Obey(bytes.substr(i + 2, end - i - 2), bytes.at(end));
        i = end;
      } else {
        ASSERT_LT(column_, size_.columns) << "a line has reached the terminal's edge";
        std::string& row = rows_[row_];
        row.resize(std::max(row.size(), column_ + 1), ' ');
        row[column_++] = bytes[i];
      }
    }
  }
  const std::vector<std::string>& rows() const { return rows_; }
  std::size_t row() const { return row_; }
  std::size_t column() const { return column_; }

 private:
  void Obey(const std::string& number, char order) {
    if (order == 'J') {
      rows_.resize(row_ + 1);
      rows_[row_].resize(column_);
    } else if (order == 'A') {
      const std::size_t up = std::stoul(number);
      ASSERT_LE(up, row_);
      ASSERT_LT(rows_.size() - (row_ - up), size_.rows + 1) << "a terminal does not go up to what has scrolled out of it";
      row_ -= up;
    } else {
      ASSERT_EQ(order, 'm');
    }
  }

  const TerminalSize size_;
  std::vector<std::string> rows_;  // those that have scrolled out too
  std::size_t row_ = 0;
  std::size_t column_ = 0;
};

class PinnedLinesTest : public ::testing::Test {
 protected:
  static std::array<int, 2> Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
    return ends;
  }
  // What was written since.
  std::string Written() {
    EXPECT_TRUE(writer_->Drain(std::chrono::milliseconds(60000)));
    std::string text;
    std::array<char, 65536> bytes;
    for (ssize_t n; (n = read(ends_[0], bytes.data(), bytes.size())) > 0;) text.append(bytes.data(), static_cast<std::size_t>(n));
    return text;
  }
  void See() { screen_.Take(Written()); }

  const std::array<int, 2> ends_ = Pipe();
  LineWriter* const writer_ = new LineWriter(ends_[1]);  // lives as long as its thread
  TerminalSize size_{20, 6};
  Screen screen_{{20, 6}};
  PinnedLines pinned_{*writer_, [this] { return size_; }};
};

TEST_F(PinnedLinesTest, StayBelowWhatIsPrinted) {
  pinned_.Show({{"title"}, {"0 fine"}});
  See();
  EXPECT_THAT(screen_.rows(), ElementsAre("title", "0 fine"));
  EXPECT_EQ(screen_.row(), 0u);
  EXPECT_EQ(screen_.column(), 0u);
  for (int i = 0; i < 10; ++i) pinned_.Print("line " + std::to_string(i) + "\n");
  See();  // what waits for the terminal would keep the next picture from it
  EXPECT_EQ(screen_.rows().at(11), "0 fine");
  pinned_.Show({{"title 2"}, {"0"}, {"1 better"}});
  See();
  EXPECT_THAT(screen_.rows(), ElementsAre("line 0", "line 1", "line 2", "line 3", "line 4", "line 5", "line 6", "line 7", "line 8", "line 9",
                                          "title 2", "0", "1 better"));
  pinned_.Close({{"title 3"}, {"0 has ended"}});
  writer_->Write("rank 0 failed\n");
  See();
  EXPECT_EQ(screen_.rows().at(10), "title 3");
  EXPECT_EQ(screen_.rows().at(11), "0 has ended");
  EXPECT_EQ(screen_.rows().at(12), "rank 0 failed");
  EXPECT_EQ(screen_.row(), 13u);
}

TEST_F(PinnedLinesTest, AProgressBarIsTheLastOfThem) {
  pinned_.Show({{"title"}});
  See();
  pinned_.Note("\x1b[31m10%\x1b[0m\x07");
  See();
  EXPECT_THAT(screen_.rows(), ElementsAre("title", "10%"));
  pinned_.Note("20%");
  See();
  EXPECT_THAT(screen_.rows(), ElementsAre("title", "20%"));
  pinned_.Print("between\n");
  See();
  EXPECT_THAT(screen_.rows(), ElementsAre("between", "title", "20%"));
  pinned_.Note("");
  See();
  EXPECT_THAT(screen_.rows(), ElementsAre("between", "title"));
  pinned_.Hide();
  See();
  EXPECT_THAT(screen_.rows(), ElementsAre("between", ""));
}

TEST_F(PinnedLinesTest, AreCutToTheTerminal) {
  std::vector<PinnedLines::Line> many;
  for (int i = 0; i < 50; ++i) many.push_back({"äöü " + std::string(100, 'x')});
  pinned_.Show(many);
  const std::string written = Written();
  EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), 4);  // five lines of the terminal's six
  EXPECT_THAT(written, HasSubstr("äöü " + std::string(15, 'x') + "\r"));
  size_ = {1, 1};
  pinned_.Show(many);
  EXPECT_EQ(Written(), "\r\x1b[J");
}

TEST_F(PinnedLinesTest, AColourThatWasNotEndedStaysAbove) {
  pinned_.Show({{"plain"}, {"slow", kYellow}});
  EXPECT_THAT(Written(), HasSubstr("plain\r\n\x1b[33mslow\x1b[0m\r"));
  pinned_.Print("\x1b[31mred\n");
  EXPECT_THAT(Written(), HasSubstr("red\n\x1b[mplain"));
  pinned_.Print("none\n");
  EXPECT_THAT(Written(), HasSubstr("none\nplain"));
}

// A pipe that nobody reads is a terminal that is paused.
TEST_F(PinnedLinesTest, ATerminalThatTakesNothingGetsLinesAndNoPicture) {
  pinned_.Show({{"title"}});
  ASSERT_THAT(Written(), HasSubstr("title"));
  writer_->Write(std::string(2 << 20, 'f') + "\n");  // fills the pipe and what the writer holds
  for (int i = 0; i < 100; ++i) {
    pinned_.Show({{"later"}});
    pinned_.Print("line\n");
  }
  std::string text;
  std::array<char, 65536> bytes;
  while (!writer_->Drain(std::chrono::milliseconds(1))) {
    const ssize_t n = read(ends_[0], bytes.data(), bytes.size());
    if (n > 0) text.append(bytes.data(), static_cast<std::size_t>(n));
  }
  text += Written();
  EXPECT_THAT(text, Not(HasSubstr("later")));
  pinned_.Show({{"now"}});
  EXPECT_EQ(Written(), "now\r");
}

TEST(WidthTest, LinesAreCutBetweenCharacters) {
  EXPECT_EQ(Clipped("abc", 3), "abc");
  EXPECT_EQ(Clipped("abc", 2), "ab");
  EXPECT_EQ(Clipped("aéb", 2), "aé");
  EXPECT_EQ(Clipped("a東京", 2), "a");  // two columns each
  EXPECT_EQ(ColumnsOf("a東é"), 4u);
  EXPECT_EQ(Clipped("abc", 0), "");
  EXPECT_EQ(ColumnsOf("10%|██▌  | 3/30 [00:01<00:10, 2.6it/s]"), 38u);
  EXPECT_EQ(ColumnsOf("✅한ㅏ🚀"), 8u);
}

}  // namespace
}  // namespace poseidon::tools
