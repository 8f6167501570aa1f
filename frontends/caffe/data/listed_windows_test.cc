// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/listed_windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <set>
#include <vector>

#include "frontends/caffe/data/test_database.h"
#include "frontends/caffe/data/test_images.h"

namespace poseidon::caffe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Foreground of classes 1 to 3, of 0.5 and more; three windows of background; one that is neither below 0.5 nor above
// 0.25.
constexpr const char* kFile =
    "# 0\na.jpg\n3\n13\n21\n4\n1 0.5 0 0 9 9\n2 0.9 4 2 20 12\n7 0.2 0 0 20 12\n4 0.3 0 0 5 5\n"
    "# 1\nb.png\n3\n5\n9\n3\n3 1 1 1 7 3\n9 0 0 0 3 3\n0 0.1 2 2 8 4\n";

class ListedWindowsTest : public ::testing::Test {
 protected:
  ListedWindowsTest() {
    Write("a.jpg", ColourJpeg());
    Write("b.png", InterlacedPng());
    Write("windows", kFile);
  }

  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }

  ListedWindowsOptions Options() const {
    ListedWindowsOptions options;
    options.file = folder_ / "windows";
    options.root_folder = folder_ / "";
    options.warp = {.crop_size = 12, .context_pad = 2};
    options.mirror = true;
    options.bg_threshold = 0.25F;
    options.batch = 8;
    options.foreground = 3;
    options.draw = [](std::uint64_t sample) {
      std::minstd_rand words(static_cast<unsigned>(sample + 1));
      words.discard(3);
      const auto word = [&] { return static_cast<std::uint32_t>(words() << 1); };
      return RandomWords{word(), static_cast<std::uint32_t>(words() >> 7), 0, 0};
    };
    return options;
  }

  static Result<std::unique_ptr<BatchSource>> Batches(ListedWindowsOptions options, std::int64_t rows,
                                                      std::uint64_t stride, std::size_t threads = 1) {
    POSEIDON_ASSIGN_OR_RETURN(auto samples, OpenListedWindows(std::move(options)));
    POSEIDON_ASSIGN_OR_RETURN(auto nothing, Transformer::Make({}, TRAIN));
    BatchSource::Options reading;
    reading.rows = rows;
    reading.stride = stride;
    reading.threads = threads;
    reading.draw = [](std::uint64_t) { return RandomWords{}; };
    return BatchSource::Open(std::move(samples), std::move(reading), std::move(nothing));
  }

  std::string Refusal(const ListedWindowsOptions& options) { return Batches(options, 8, 8).status().message(); }
  std::string Refusal(const std::string& file) {
    Write("refused", file);
    ListedWindowsOptions options = Options();
    options.file = folder_ / "refused";
    return Refusal(options);
  }

  TestFolder folder_;
};

std::vector<int> LabelsOfBatch(const Batch& batch) {
  std::vector<int> labels;
  for (std::int64_t i = 0; i < batch.labels.numel(); ++i)
    labels.push_back(static_cast<int>(batch.labels.const_data_ptr<float>()[i]));
  return labels;
}

TEST_F(ListedWindowsTest, ABatchIsBackgroundAndThenForeground) {
  auto source = Batches(Options(), 8, 8);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ((*source)->image_shape(), (ImageShape{3, 12, 12}));
  std::set<int> classes;
  std::set<std::string> origins;
  Batch batch;
  for (std::uint64_t k = 0; k < 40; ++k) {
    ASSERT_TRUE((*source)->Take(8 * k, &batch).ok());
    const std::vector<int> labels = LabelsOfBatch(batch);
    for (std::size_t row = 0; row < 8; ++row) {
      if (row < 5)
        EXPECT_EQ(labels[row], 0);
      else
        classes.insert(labels[row]);
      origins.insert((*source)->samples().OriginOf(8 * k + row));
    }
  }
  EXPECT_THAT(classes, ElementsAre(1, 2, 3));
  EXPECT_EQ(origins.size(), 6u);  // all but the window between the thresholds
  EXPECT_EQ(origins.count("the window in line 8 of " + (folder_ / "windows") + ", image " + (folder_ / "a.jpg")), 1u);
}

// Both thresholds take what is on them as foreground, and a window above bg_threshold that is foreground is not
// background.
TEST_F(ListedWindowsTest, ForegroundIsAskedFirst) {
  ListedWindowsOptions options = Options();
  options.fg_threshold = 0.2F;
  options.bg_threshold = 0.95F;
  options.batch = 2;
  options.foreground = 1;
  auto samples = OpenListedWindows(options);
  ASSERT_TRUE(samples.ok()) << samples.status().ToString();
  std::set<std::string> background, foreground;
  for (std::uint64_t number = 0; number < 400; ++number)
    (number % 2 == 0 ? background : foreground).insert((*samples)->OriginOf(number));
  EXPECT_EQ(background.size(), 2u);
  EXPECT_EQ(foreground.size(), 5u);
}

TEST_F(ListedWindowsTest, WorkersDrawTogetherWhatOneDraws) {
  auto one = Batches(Options(), 8, 8);
  auto left = Batches(Options(), 4, 8);
  auto right = Batches(Options(), 4, 8);
  ASSERT_TRUE(one.ok() && left.ok() && right.ok());
  Batch all, first, second;
  for (std::uint64_t k = 0; k < 20; ++k) {
    ASSERT_TRUE((*one)->Take(8 * k, &all).ok() && (*left)->Take(8 * k, &first).ok() &&
                (*right)->Take(8 * k + 4, &second).ok());
    EXPECT_TRUE(all.images.narrow(0, 0, 4).equal(first.images) && all.images.narrow(0, 4, 4).equal(second.images));
    EXPECT_TRUE(all.labels.narrow(0, 0, 4).equal(first.labels) && all.labels.narrow(0, 4, 4).equal(second.labels));
  }
}

TEST_F(ListedWindowsTest, AnyNumberOfThreadsAndACacheGiveTheSameBits) {
  ListedWindowsOptions cached = Options();
  cached.cache_images = true;
  auto one = Batches(Options(), 8, 8);
  auto four = Batches(cached, 8, 8, 4);
  ASSERT_TRUE(one.ok() && four.ok());
  std::filesystem::remove(folder_ / "a.jpg");  // the cache has it
  std::filesystem::remove(folder_ / "b.png");
  EXPECT_EQ((*four)->threads(), 4u);
  Batch a, b;
  ASSERT_TRUE((*four)->Take(0, &b).ok());
  EXPECT_THAT((*one)->Take(0, &a).message(), HasSubstr("cannot be read: No such"));
  Write("a.jpg", ColourJpeg());
  Write("b.png", InterlacedPng());
  for (const std::uint64_t first : {0, 8, 16, 24, 32, 400, 408, 8}) {
    ASSERT_TRUE((*one)->Take(first, &a).ok());
    ASSERT_TRUE((*four)->Take(first, &b).ok());
    EXPECT_TRUE(a.images.equal(b.images) && a.labels.equal(b.labels)) << first;
  }
}

// As after a change of the number of workers: the first batch of theirs begins at sample 12.
TEST_F(ListedWindowsTest, BatchesBeginWhereTheyAreSaidTo) {
  ListedWindowsOptions options = Options();
  options.begin = 12;
  auto source = Batches(options, 8, 8);
  ASSERT_TRUE(source.ok());
  Batch batch;
  for (const std::uint64_t first : {12, 20}) {
    ASSERT_TRUE((*source)->Take(first, &batch).ok());
    const std::vector<int> labels = LabelsOfBatch(batch);
    for (std::size_t row = 0; row < 8; ++row) EXPECT_EQ(labels[row] > 0, row >= 5);
  }
}

TEST_F(ListedWindowsTest, FilesThatCannotBeDrawnFromAreRefused) {
  const std::string image = "# 0\nb.png\n3\n5\n9\n";
  EXPECT_THAT(Refusal(image + "1\n1 0.1 0 0 3 3\n"),
              HasSubstr("refused has no foreground window, expected some with an overlap of fg_threshold, 0.5"));
  EXPECT_THAT(
      Refusal(image + "1\n1 0.9 0 0 3 3\n"),
      HasSubstr("refused has no background window, expected some with an overlap of less than bg_threshold, 0.25"));
  EXPECT_THAT(Refusal(image + "2\n1 0.1 0 0 3 3\n0 0.9 0 0 3 3\n"),
              HasSubstr("refused, line 8: the window is of class 0"));
  EXPECT_THAT(Refusal(image + "2\n1 0.1 0 0 3 3\n1 0.9 90 0 91 3\n"),
              HasSubstr("refused, line 8: the window from (90, 0) to (91, 3) is outside of its image, expected x from "
                        "0 to 8 and y from 0 to 4"));
  // What is not needed need not be there.
  ListedWindowsOptions options = Options();
  Write("foreground", image + "1\n1 0.9 0 0 3 3\n");
  options.file = folder_ / "foreground";
  options.foreground = options.batch;
  EXPECT_EQ(Refusal(options), "");
  // Without context a window must lie in the image.
  Write("edge", image + "2\n1 0.1 0 0 3 3\n1 0.9 5 0 9 3\n");
  options = Options();
  options.file = folder_ / "edge";
  EXPECT_EQ(Refusal(options), "");
  options.warp.context_pad = 0;
  EXPECT_THAT(Refusal(options), HasSubstr("edge, line 8: the window from (5, 0) to (9, 3) is outside"));
}

TEST_F(ListedWindowsTest, NamesTheLineOfABadImage) {
  const std::string windows = "\n2\n1 0.1 0 0 3 3\n1 0.9 0 0 3 3\n";
  EXPECT_THAT(Refusal("# 0\nnone.png\n3\n5\n9" + windows),
              AllOf(HasSubstr("refused, line 2: "), HasSubstr("none.png cannot be read: No such")));
  EXPECT_THAT(Refusal("# 0\nb.png\n3\n6\n9" + windows),
              HasSubstr("b.png is 3x5x9, expected 3x6x9 as the window file says"));
  Write("cut.png", InterlacedPng().substr(0, 60));
  EXPECT_THAT(Refusal("# 0\ncut.png\n3\n5\n9" + windows),
              AllOf(HasSubstr("refused, line 2: image "), HasSubstr("cut.png cannot be decoded")));
  ListedWindowsOptions cached = Options();
  cached.cache_images = true;
  std::filesystem::remove(folder_ / "b.png");
  EXPECT_THAT(Refusal(cached), AllOf(HasSubstr("windows, line 12: "), HasSubstr("b.png cannot be read: No such")));
}

TEST_F(ListedWindowsTest, AMeanMustFitTheCrop) {
  ListedWindowsOptions options = Options();
  options.pixels.mean = {.shape = {1, 20, 20}, .values = std::vector<float>(400)};
  EXPECT_THAT(Refusal(options), HasSubstr("the mean is 1x20x20, expected the 3 channels of window file"));
  options.pixels.mean = {.shape = {3, 12, 11}, .values = std::vector<float>(396)};
  EXPECT_THAT(Refusal(options), HasSubstr("the mean is 3x12x11, expected one that has crops of 12x12"));
  options.pixels.mean = {.shape = {3, 15, 20}, .values = std::vector<float>(900)};
  EXPECT_THAT(Refusal(options), HasSubstr("expected one that has crops of 12x12"));
  options.pixels.mean = {.shape = {3, 16, 20}, .values = std::vector<float>(960)};
  EXPECT_EQ(Refusal(options), "");
}

// Whatever is in the file, it is drawn from or a sentence says why not.
TEST_F(ListedWindowsTest, DamagedFilesEndInASentence) {
  std::minstd_rand random(5);
  constexpr const char* kWords[] = {"0", "-1", "16777216", "-16777216", "8", "21", "nan", "#"};
  int drawn = 0;
  for (int turn = 0; turn < 500; ++turn) {
    std::string bytes = kFile;
    for (auto changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % bytes.size();
      if (random() % 2 == 0)
        bytes[at] = static_cast<char>('0' + random() % 10);
      else
        bytes.replace(at, random() % 3, kWords[random() % std::size(kWords)]);
    }
    Write("damaged", bytes);
    ListedWindowsOptions options = Options();
    options.file = folder_ / "damaged";
    options.warp.square = turn % 2 == 0;
    options.warp.context_pad = turn % 3 == 0 ? 5 : 0;
    auto source = Batches(options, 8, 8);
    Batch batch;
    const Status status = source.ok() ? (*source)->Take(0, &batch) : source.status();
    drawn += status.ok() ? 1 : 0;
    EXPECT_EQ(status.ok(), status.message().empty());
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  }
  EXPECT_GT(drawn, 30);
}

}  // namespace
}  // namespace poseidon::caffe
