// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/listed_images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <vector>

#include "frontends/caffe/data/batch_source.h"
#include "frontends/caffe/data/image_list.h"
#include "frontends/caffe/data/test_database.h"
#include "frontends/caffe/data/test_images.h"

namespace poseidon::caffe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kImages = 7;

// JPEGs and PNGs with their number as label.
class ListedImagesTest : public ::testing::Test {
 protected:
  ListedImagesTest() {
    std::string list;
    for (std::uint64_t i = 0; i < kImages; ++i) {
      const std::string name = "image " + std::to_string(i);
      Write(name, i % 3 == 0 ? GreyJpeg() : i % 3 == 1 ? ColourJpeg() : InterlacedPng());
      list += name + " " + std::to_string(i) + "\n";
    }
    Write("list", list);
  }

  void Write(const std::string& name, const std::string& bytes) { std::ofstream(folder_ / name, std::ios::binary) << bytes; }

  Result<std::unique_ptr<BatchSource>> Open(const std::string& list, std::size_t threads, EpochDraw shuffle = nullptr,
                                            ImageSize size = {13, 21}, const TransformationParameter& transform = {}) {
    POSEIDON_ASSIGN_OR_RETURN(auto samples, OpenListedImages({.list = folder_ / list, .root_folder = folder_ / "", .size = size,
                                                              .shuffle = std::move(shuffle)}));
    POSEIDON_ASSIGN_OR_RETURN(auto transformer, Transformer::Make(transform, TRAIN));
    BatchSource::Options options;
    options.rows = 4;
    options.stride = 4;
    options.threads = threads;
    options.draw = [](std::uint64_t sample) {
      const auto word = static_cast<std::uint32_t>(sample * 0x9E3779B9u);
      return RandomWords{word, word << 7, word << 3, 0};
    };
    return BatchSource::Open(std::move(samples), std::move(options), std::move(transformer));
  }

  TestFolder folder_;
};

std::vector<int> Labels(BatchSource& source, std::uint64_t first) {
  Batch batch;
  const Status status = source.Take(first, &batch);
  EXPECT_TRUE(status.ok()) << status.ToString();
  std::vector<int> labels;
  for (std::int64_t i = 0; status.ok() && i < 4; ++i) labels.push_back(static_cast<int>(batch.labels.const_data_ptr<float>()[i]));
  return labels;
}

EpochDraw SomeShuffle() {
  return [](std::uint64_t epoch) -> EpochBits {
    return [epoch](std::uint64_t number) {
      std::minstd_rand words(static_cast<unsigned>(epoch * 1000 + number + 1));
      words();
      return static_cast<std::uint32_t>(words() << 1);
    };
  };
}

TEST_F(ListedImagesTest, GoesRoundTheList) {
  auto source = Open("list", 1);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ((*source)->image_shape(), (ImageShape{3, 13, 21}));
  EXPECT_THAT(Labels(**source, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Labels(**source, 4), ElementsAre(4, 5, 6, 0));
  EXPECT_EQ((*source)->samples().OriginOf(8), "image " + (folder_ / "image 1") + " of list " + (folder_ / "list") + ", line 2");
}

// Crops and mirrors too: they belong to the sample.
TEST_F(ListedImagesTest, AnyNumberOfThreadsGivesTheSameBits) {
  TransformationParameter transform;
  transform.set_crop_size(9);
  transform.set_mirror(true);
  auto one = Open("list", 1, SomeShuffle(), {13, 21}, transform);
  auto four = Open("list", 4, SomeShuffle(), {13, 21}, transform);
  ASSERT_TRUE(one.ok() && four.ok());
  EXPECT_EQ((*one)->threads(), 1u);
  EXPECT_EQ((*four)->threads(), 4u);
  Batch a, b;
  for (const std::uint64_t first : {0, 4, 8, 12, 16, 20, 24, 28, 300, 304, 8, 12}) {
    ASSERT_TRUE((*one)->Take(first, &a).ok());
    ASSERT_TRUE((*four)->Take(first, &b).ok());
    EXPECT_TRUE(a.images.equal(b.images) && a.labels.equal(b.labels)) << first;
  }
}

TEST_F(ListedImagesTest, ShufflesEveryEpochAnew) {
  EpochOrder order(1000, SomeShuffle());
  std::vector<std::uint64_t> first, second, again;
  for (std::uint64_t i = 0; i < 1000; ++i) first.push_back(order.At(i));
  for (std::uint64_t i = 0; i < 1000; ++i) second.push_back(order.At(1000 + i));
  for (std::uint64_t i = 0; i < 1000; ++i) again.push_back(order.At(i));
  EXPECT_EQ(first, again);
  EXPECT_NE(first, second);
  std::sort(first.begin(), first.end());
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(first[i], i);
}

TEST_F(ListedImagesTest, ImagesOfSeveralSizesAreFineWhereTheyAreCroppedToOne) {
  Write("sizes", "image 0 0\nimage 2 2\n");
  auto source = Open("sizes", 2, nullptr, {});
  ASSERT_TRUE(source.ok());
  Batch batch;
  EXPECT_THAT((*source)->Take(0, &batch).message(),
              AllOf(HasSubstr("sizes, line 2: image "), HasSubstr("image 2 is 3x5x9, expected 3x13x21 like the first")));
  TransformationParameter transform;
  transform.set_crop_size(5);
  source = Open("sizes", 2, nullptr, {}, transform);
  ASSERT_TRUE(source.ok());
  EXPECT_THAT(Labels(**source, 0), ElementsAre(0, 2, 0, 2));
}

// Whichever thread is first: the error is that of the first bad line.
TEST_F(ListedImagesTest, NamesTheFirstBadFile) {
  Write("bad", ColourJpeg().substr(0, 300));
  Write("some", "image 0 0\nimage 1 1\nbad 2\nabsent 3\nimage 4 4\nimage 5 5\nimage 1 6\nimage 0 7\n");
  auto source = Open("some", 3);
  ASSERT_TRUE(source.ok());
  Batch batch;
  for (int turn = 0; turn < 50; ++turn) {
    EXPECT_THAT((*source)->Take(0, &batch).message(), AllOf(HasSubstr("some, line 3: image "), HasSubstr("bad cannot be decoded: ")));
    EXPECT_THAT(Labels(**source, 4), ElementsAre(4, 5, 6, 7));
  }
  Write("bad", ColourJpeg());
  EXPECT_THAT((*source)->Take(0, &batch).message(), HasSubstr("some, line 4: " + (folder_ / "absent") + " cannot be read: No such"));
}

TEST_F(ListedImagesTest, ReadsListsAsCaffeDoes) {
  Write("spaces", "a b c.jpg 3\r\nd  -4\n e 5\n\n\n");
  auto list = ImageList::Read(folder_ / "spaces");
  ASSERT_TRUE(list.ok()) << list.status().ToString();
  ASSERT_EQ(list->size(), 3u);
  EXPECT_EQ(list->file(0), "a b c.jpg");
  EXPECT_EQ(list->file(1), "d ");
  EXPECT_EQ(list->file(2), " e");
  EXPECT_EQ(list->label(1), -4);
  const auto refusal = [&](const std::string& text) {
    Write("refused", text);
    return ImageList::Read(folder_ / "refused").status().message();
  };
  EXPECT_THAT(refusal(""), HasSubstr("refused is empty"));
  EXPECT_THAT(refusal("\n \n"), HasSubstr("refused is empty"));
  EXPECT_THAT(refusal("a 1\nb\n"), HasSubstr("refused, line 2 is 'b', expected a path"));
  EXPECT_THAT(refusal("a 1\n\nb 1\n"), HasSubstr("refused, line 2 is ''"));
  EXPECT_THAT(refusal("a 1.5\n"), HasSubstr("line 1 is 'a 1.5', expected"));
  EXPECT_THAT(refusal("a 99999999999\n"), HasSubstr("line 1"));
  EXPECT_THAT(refusal(" 1\n"), HasSubstr("line 1"));
  EXPECT_THAT(ImageList::Read(folder_ / "none").status().message(), HasSubstr("none cannot be read"));
}

TEST_F(ListedImagesTest, AnyBytesAreAListOrASentence) {
  std::minstd_rand random(2);
  for (int turn = 0; turn < 300; ++turn) {
    std::string bytes = "image 0 0\nimage 1 1\n";
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes) bytes[random() % bytes.size()] = static_cast<char>(random() % 64);
    Write("mutated", bytes.substr(0, random() % 20));
    const auto list = ImageList::Read(folder_ / "mutated");
    EXPECT_EQ(list.ok(), list.status().message().empty());
  }
}

}  // namespace
}  // namespace poseidon::caffe
