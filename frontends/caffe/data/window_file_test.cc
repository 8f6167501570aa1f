// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/window_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <string>

#include "frontends/caffe/data/test_database.h"

namespace poseidon::caffe {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTwoImages =
    "# 0\na/b.jpg\n3\n20\n30\n2\n"
    "5 0.75 1 2 13 14\n0 0.1 0 0 29 19\n"
    "# 1\nc.png\n3\n8\n9\n0\n";

class WindowFileTest : public ::testing::Test {
 protected:
  Result<WindowFile> Read(const std::string& text) {
    std::ofstream(folder_ / "windows", std::ios::binary) << text;
    return ReadWindowFile(folder_ / "windows");
  }
  std::string Refusal(const std::string& text) { return Read(text).status().message(); }

  TestFolder folder_;
};

TEST_F(WindowFileTest, ReadsImagesAndTheirWindows) {
  const auto file = Read(kTwoImages);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_EQ(file->images.size(), 2u);
  EXPECT_EQ(file->images[0].file, "a/b.jpg");
  EXPECT_EQ(file->images[0].shape, (ImageShape{3, 20, 30}));
  EXPECT_EQ(file->images[1].shape, (ImageShape{3, 8, 9}));
  EXPECT_EQ(file->images[1].line, 10u);
  ASSERT_EQ(file->windows.size(), 2u);
  const WindowFile::Window& window = file->windows[0];
  EXPECT_EQ(window.label, 5);
  EXPECT_EQ(window.overlap, 0.75F);
  EXPECT_EQ(window.line, 7u);
  EXPECT_EQ(window.box.x1, 1);
  EXPECT_EQ(window.box.y1, 2);
  EXPECT_EQ(window.box.x2, 13);
  EXPECT_EQ(window.box.y2, 14);
  EXPECT_EQ(file->Where(7), "window file " + (folder_ / "windows") + ", line 7");
}

// Caffe reads words, whatever is between them.
TEST_F(WindowFileTest, LinesNeedNotBeLines) {
  const auto file = Read("# 0 a.jpg 3 20 30\r\n1   5 .5\t-1 0\n\n2 3 ");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_EQ(file->windows.size(), 1u);
  EXPECT_EQ(file->windows[0].box.x1, -1);
  EXPECT_EQ(file->windows[0].line, 2u);
}

TEST_F(WindowFileTest, SaysWhatIsWrongWhere) {
  EXPECT_THAT(Refusal(""), HasSubstr("windows is empty, expected images"));
  EXPECT_THAT(Refusal(" \n\n"), HasSubstr("windows is empty, expected images"));
  EXPECT_THAT(Refusal("0\n"), HasSubstr("windows, line 1 has '0', expected '#' and the index of an image"));
  EXPECT_THAT(Refusal("#\n1 a 3 4 4 0"), HasSubstr("line 2 has '1', expected the image's index, 0 here"));
  EXPECT_THAT(Refusal("# 0\n"), HasSubstr("line 2 ends the file, expected the path of image 0"));
  EXPECT_THAT(Refusal("# 0\na\n1\n4\n4\n0"),
              HasSubstr("line 3 has '1', expected the number of channels of image 0, which is 3"));
  EXPECT_THAT(Refusal("# 0\na\n3\n0\n4\n0"),
              HasSubstr("line 4 has '0', expected the height of image 0, a whole number from 1"));
  EXPECT_THAT(Refusal("# 0\na\n3\n4\n99999999999\n0"),
              HasSubstr("line 5 has '99999999999', expected the width of image 0"));
  EXPECT_THAT(Refusal("# 0\na\n3\n4\n4\n-1"), HasSubstr("line 6 has '-1', expected the number of windows of image 0"));
  EXPECT_THAT(Refusal("# 0\na\n3\n4\n4\n2147483647\n1 1 0 0 3 3\n"),
              HasSubstr("line 8 ends the file, expected a window's class"));
  EXPECT_THAT(Refusal("# 0\na\n3\n4\n4\n1\n-1 1 0 0 3 3\n"), HasSubstr("line 7 has '-1', expected a window's class"));
  EXPECT_THAT(Refusal("# 0\na\n3\n4\n4\n1\n1 nan 0 0 3 3\n"),
              HasSubstr("line 7 has 'nan', expected a window's overlap, a number"));
  EXPECT_THAT(Refusal("# 0\na\n3\n4\n4\n1\n1 1 0 0.5 3 3\n"),
              HasSubstr("line 7 has '0.5', expected a window's y1, a whole number"));
  EXPECT_THAT(Refusal("# 0\na\n3\n4\n4\n1\n1 1 2147483647 0 3 3\n"),
              HasSubstr("expected a window's x1, a whole number from -16777216 to 16777216"));
  EXPECT_THAT(Refusal("# 0\na\n3\n4\n4\n1\n1 1 3 0 2 3\n"),
              HasSubstr("line 7: the window ends before it begins, expected x1 <= x2"));
  EXPECT_THAT(Refusal("# 0\na\n3\n4\n4\n1\n1 1 0 0 3 3\n1 1 0 0 3 3\n"),
              HasSubstr("line 8 has '1', expected '#' and the index"));
  EXPECT_THAT(Refusal("# 0\na b\n3\n4\n4\n0\n"), HasSubstr("line 2 has 'b', expected the number of channels"));
  EXPECT_THAT(ReadWindowFile(folder_ / "none").status().message(), HasSubstr("none cannot be read: No such file"));
}

TEST_F(WindowFileTest, AnyBytesAreAFileOrASentence) {
  std::minstd_rand random(3);
  constexpr const char* kWords[] = {"0",    "-1",  "2147483647", "-2147483648", "99999999999999999999",
                                    "1e39", "nan", "inf",        "#",           ""};
  int read = 0;
  for (int turn = 0; turn < 600; ++turn) {
    std::string bytes = kTwoImages;
    for (auto changes = 1 + random() % 3; changes > 0 && !bytes.empty(); --changes) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          bytes.resize(at);
          break;
        case 2:
          bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 20));
          break;
        default:
          bytes.replace(at, random() % 4, kWords[random() % std::size(kWords)]);
      }
    }
    const auto file = Read(bytes);
    if (!file.ok()) {
      EXPECT_THAT(file.status().message(), HasSubstr("window file "));
      continue;
    }
    ++read;
    for (const WindowFile::Window& window : file->windows) {
      ASSERT_LT(window.image, file->images.size());
      EXPECT_TRUE(window.box.x1 <= window.box.x2 && window.box.y1 <= window.box.y2 && window.label >= 0) << bytes;
    }
    for (std::size_t i = 0; i < file->images.size(); ++i) EXPECT_GT(file->images[i].shape.count(), 0) << bytes;
  }
  EXPECT_GT(read, 15);
}

}  // namespace
}  // namespace poseidon::caffe
