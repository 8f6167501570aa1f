// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/image_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>

#include "frontends/caffe/data/npy_file.h"
#include "frontends/caffe/data/test_database.h"

namespace poseidon::caffe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Pixel (y, x) of channel c is 100 c + 10 y + x.
Image Numbered(std::int64_t channels, std::int64_t height, std::int64_t width) {
  Image image;
  EXPECT_TRUE(Allocate({channels, height, width}, &image).ok());
  for (std::int64_t c = 0, i = 0; c < channels; ++c) {
    for (std::int64_t y = 0; y < height; ++y) {
      for (std::int64_t x = 0; x < width; ++x) image.planes[static_cast<std::size_t>(i++)] = static_cast<std::uint8_t>(100 * c + 10 * y + x);
    }
  }
  return image;
}

std::vector<float> Applied(const InputOptions& options, const ImageShape& input, const Image& image) {
  auto made = ImageInput::Make(options, input);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  std::vector<float> out;
  const Status status = made->Apply(image, &out);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return out;
}

TEST(ImageInput, IsTheImageWhereItFits) {
  EXPECT_THAT(Applied({}, {1, 2, 2}, Numbered(1, 2, 2)), ElementsAre(0, 1, 10, 11));
}

TEST(ImageInput, ScalesMeansAndSwaps) {
  InputOptions options;
  options.raw_scale = 510;
  options.input_scale = 0.5;
  options.mean = {.shape = {3, 1, 1}, .values = {1, 2, 3}};
  EXPECT_THAT(Applied(options, {3, 1, 1}, Numbered(3, 1, 1)), ElementsAre(-0.5, 99, 198.5));
  options.channel_swap = {0, 1, 2};  // red first
  EXPECT_THAT(Applied(options, {3, 1, 1}, Numbered(3, 1, 1)), ElementsAre(199.5, 99, -1.5));
  options.channel_swap = {1, 1, 2};
  EXPECT_THAT(Applied(options, {3, 1, 1}, Numbered(3, 1, 1)), ElementsAre(99.5, 99, -1.5));
}

TEST(ImageInput, CropsTheCentre) {
  InputOptions options;
  options.scaled = {5, 4};
  EXPECT_THAT(Applied(options, {1, 2, 2}, Numbered(1, 5, 4)), ElementsAre(11, 12, 21, 22));
}

TEST(ImageInput, ScalesNumbersBeforeItCropsAndElseBytes) {
  const Image image{{1, 1, 3}, {10, 20, 41}};
  EXPECT_THAT(Applied({}, {1, 1, 2}, image), ElementsAre(13, 36));
  InputOptions options;
  options.scaled = {1, 2};
  EXPECT_THAT(Applied(options, {1, 1, 2}, image), ElementsAre(12.5, 35.75));
}

TEST(ImageInput, TenCropsAreCornersCentreAndMirrored) {
  InputOptions options;
  options.scaled = {4, 5};
  options.ten_crops = true;
  options.mean = {.shape = {1, 1, 2}, .values = {0, 1}};
  EXPECT_THAT(Applied(options, {1, 1, 2}, Numbered(1, 4, 5)),
              ElementsAre(0, 0, 3, 3, 30, 30, 33, 33, 11, 11, 1, -1, 4, 2, 31, 29, 34, 32, 12, 10));
}

// Computed by hand: centres at -0.25, 0.25, 0.75, 1.25 of the input.
TEST(ImageInput, AMeanOfAnotherSizeIsScaled) {
  InputOptions options;
  options.mean = {.shape = {1, 1, 2}, .values = {0, 8}};
  Image black = Numbered(1, 2, 4);
  std::fill(black.planes.begin(), black.planes.end(), std::uint8_t{0});
  EXPECT_THAT(Applied(options, {1, 2, 4}, black), ElementsAre(0, -2, -6, -8, 0, -2, -6, -8));
}

TEST(ImageInput, RefusesWhatDoesNotFit) {
  EXPECT_THAT(ImageInput::Make({}, {2, 4, 4}).status().message(), HasSubstr("one or three channels"));
  InputOptions small;
  small.scaled = {3, 9};
  EXPECT_THAT(ImageInput::Make(small, {1, 4, 4}).status().message(), HasSubstr("scaled to 3x9, expected at least the net's input, 4x4"));
  InputOptions swapped;
  swapped.channel_swap = {0, 1, 3};
  EXPECT_THAT(ImageInput::Make(swapped, {3, 4, 4}).status().message(), HasSubstr("3 numbers from 0 to 2"));
  InputOptions mean;
  mean.mean = {.shape = {3, 1, 1}, .values = {1, 2, 3}};
  EXPECT_THAT(ImageInput::Make(mean, {1, 4, 4}).status().message(), HasSubstr("the mean is 3x1x1"));
}

TEST(MeanPixels, AreReadFromBothFormats) {
  TestFolder folder;
  BlobProto blob;
  blob.set_channels(2);
  blob.set_height(1);
  blob.set_width(2);
  for (const float value : {1.0f, 3.0f, 5.0f, 9.0f}) blob.add_data(value);
  std::ofstream(folder / "m.binaryproto", std::ios::binary) << blob.SerializeAsString();
  ASSERT_TRUE(WriteNpy({.shape = {2, 1, 2}, .values = {1, 3, 5, 9}}, folder / "m.npy").ok());
  for (const char* name : {"m.binaryproto", "m.npy"}) {
    const auto mean = ReadMeanPixels(folder / name);
    ASSERT_TRUE(mean.ok()) << mean.status().ToString();
    EXPECT_EQ(mean->shape, (ImageShape{2, 1, 2}));
    EXPECT_THAT(mean->values, ElementsAre(1, 3, 5, 9));
    EXPECT_THAT(ValuePerChannel(*mean).values, ElementsAre(2, 7));
  }
  blob.set_width(1 << 30);
  std::ofstream(folder / "m.binaryproto", std::ios::binary) << blob.SerializeAsString();
  EXPECT_THAT(ReadMeanPixels(folder / "m.binaryproto").status().message(), HasSubstr("4 numbers, which are not"));
}

// Every cut and many flipped bytes: an error or an array that fits, and no crash.
TEST(Npy, SurvivesDamage) {
  TestFolder folder;
  ASSERT_TRUE(WriteNpy({.shape = {2, 3}, .values = {1, 2, 3, 4, 5, 6}}, folder / "a.npy").ok());
  std::ifstream file(folder / "a.npy", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(whole.size(), 128u + 24u);
  const auto read = [&](const std::string& bytes) {
    std::ofstream(folder / "b.npy", std::ios::binary | std::ios::trunc) << bytes;
    return ReadNpy(folder / "b.npy");
  };
  ASSERT_TRUE(read(whole).ok());
  EXPECT_THAT(read(whole)->values, ElementsAre(1, 2, 3, 4, 5, 6));
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(read(whole.substr(0, size)).ok());
  EXPECT_THAT(read(whole + "x").status().message(), HasSubstr("25 bytes behind its header, expected 24"));
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    std::string damaged = whole;
    damaged[random() % 128] = static_cast<char>(random());
    const auto array = read(damaged);
    if (!array.ok()) continue;
    std::int64_t count = 1;
    for (const std::int64_t dim : array->shape) count *= dim;
    EXPECT_EQ(count, static_cast<std::int64_t>(array->values.size()));
  }
}

}  // namespace
}  // namespace poseidon::caffe
