// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/detector_crop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "frontends/caffe/data/image_input.h"

namespace poseidon::caffe {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ImageShape kPicture{3, 20, 30};
constexpr ImageShape kInput{3, 8, 8};

// y, height, top and scaled height; x, width, left and scaled width.
std::vector<std::int64_t> Detected(const DetectorWindow& window, const ImageShape& input, std::int64_t context_pad) {
  const auto place = PlaceOfDetection(window, kPicture, input, context_pad);
  if (!place) return {};
  return {place->y, place->height, place->top,  place->scaled_height,
          place->x, place->width,  place->left, place->scaled_width};
}

TEST(DetectorCrop, WithoutContextWhatTheImageHasFillsTheInput) {
  EXPECT_THAT(Detected({2, 3, 6, 13}, {3, 5, 7}, 0), ElementsAre(2, 4, 0, 5, 3, 10, 0, 7));
  EXPECT_THAT(Detected({2, 3, 60, 130}, kInput, 0), ElementsAre(2, 18, 0, 8, 3, 27, 0, 8));
}

// Rows 0 to 4 are 5 high by its count, and 10 with context: from 2.5 - 5 = -2.5, which becomes -2, to 7.5, which
// becomes 8. The input's 8 are 8 / 11 of a pixel each: 2 outside become 1, the 9 that it counts to row 8 become 7.
TEST(DetectorCrop, ContextOutsideIsPadding) {
  EXPECT_THAT(Detected({0, 8, 4, 12}, kInput, 2), ElementsAre(0, 8, 1, 7, 6, 10, 0, 8));
}

TEST(DetectorCrop, WindowsBeginInTheImage) {
  for (const std::int64_t pad : {0, 2}) {
    for (const DetectorWindow& window :
         {DetectorWindow{-1, 0, 5, 5}, {0, -1, 5, 5}, {20, 0, 25, 5}, {0, 30, 5, 35}, {5, 0, 5, 5}, {5, 6, 7, 5}}) {
      EXPECT_THAT(Detected(window, kInput, pad), ElementsAre()) << window.ymin << " " << window.xmin << " " << pad;
    }
  }
  constexpr std::int64_t kFar = 1 << 24;
  EXPECT_THAT(Detected({0, 0, kFar, kFar}, kInput, 3), ElementsAre());  // the image is less than a pixel of it
  EXPECT_THAT(Detected({0, 0, kFar, kFar}, kInput, 0), ElementsAre(0, 20, 0, 8, 0, 30, 0, 8));
}

TEST(DetectorCrop, EveryRegionIsInTheImageAndInTheInput) {
  std::minstd_rand random(4);
  const auto any = [&](int below) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(below)); };
  int placed = 0;
  for (int turn = 0; turn < 20000; ++turn) {
    const std::int64_t size = 1 + any(40);
    const std::int64_t pad = any(static_cast<int>(size + 1) / 2);
    const std::int64_t ymin = any(20), xmin = any(30);
    const auto place = PlaceOfDetection({ymin, xmin, ymin + any(40), xmin + any(40)}, kPicture, {3, size, size}, pad);
    if (!place) continue;
    ++placed;
    EXPECT_TRUE(place->x >= 0 && place->y >= 0 && place->x + place->width <= kPicture.width &&
                place->y + place->height <= kPicture.height);
    EXPECT_TRUE(place->left >= 0 && place->top >= 0 && place->left + place->scaled_width <= size &&
                place->top + place->scaled_height <= size);
  }
  EXPECT_GT(placed, 10000);
}

TEST(ImageInputWindow, PaddingIsZeroAndTheRestIsPrepared) {
  InputOptions options;
  options.mean = {.shape = {3, 1, 1}, .values = {1, 2, 3}};
  options.context_pad = 2;
  options.raw_scale = 510;
  options.input_scale = 0.5;
  options.channel_swap = {0, 1, 2};  // red first
  const auto input = ImageInput::Make(options, kInput);
  ASSERT_TRUE(input.ok()) << input.status().ToString();
  Image image{.shape = kPicture, .planes = {}};
  for (const int level : {10, 20, 30}) image.planes.insert(image.planes.end(), 600, static_cast<std::uint8_t>(level));
  std::vector<float> row;
  ASSERT_TRUE(input->ApplyWindow(image, {0, 8, 4, 12}, &row).ok());
  for (std::size_t c = 0; c < 3; ++c) {
    const auto plane = row.begin() + static_cast<std::ptrdiff_t>(64 * c);
    EXPECT_THAT(std::vector<float>(plane, plane + 8), Each(0));
    const float expected = (2 * static_cast<float>(30 - 10 * c) - static_cast<float>(c + 1)) / 2;
    EXPECT_THAT(std::vector<float>(plane + 8, plane + 64), Each(expected));
  }
  EXPECT_THAT(input->ApplyWindow(image, {20, 0, 25, 5}, &row).message(),
              HasSubstr("the window from row 20 to 25 and column 0 to 5 has nothing of the image, which is 3x20x30"));
}

TEST(ImageInputWindow, ContextMustFitASquareInput) {
  InputOptions options;
  options.context_pad = 4;
  EXPECT_THAT(ImageInput::Make(options, kInput).status().message(),
              HasSubstr("context of 4 pixels does not fit the net's input, 3x8x8"));
  options.context_pad = 1;
  EXPECT_THAT(ImageInput::Make(options, {3, 6, 8}).status().message(),
              HasSubstr("does not fit the net's input, 3x6x8"));
  EXPECT_TRUE(ImageInput::Make(options, kInput).ok());
}

}  // namespace
}  // namespace poseidon::caffe
