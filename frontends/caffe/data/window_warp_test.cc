// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/window_warp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace poseidon::caffe {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// x, width, left and scaled width; y, height, top and scaled height.
std::vector<std::int64_t> Placed(const WindowBox& box, const ImageShape& image, const WarpOptions& options,
                                 bool mirror = false) {
  const auto place = PlaceOfWindow(box, image, options, mirror);
  if (!place) return {};
  return {place->x, place->width,  place->left, place->scaled_width,
          place->y, place->height, place->top,  place->scaled_height};
}

constexpr ImageShape kImage{3, 20, 30};

TEST(WindowWarp, WithoutContextTheWindowFillsTheCrop) {
  EXPECT_THAT(Placed({3, 4, 10, 5}, kImage, {.crop_size = 8}), ElementsAre(3, 8, 0, 8, 4, 2, 0, 8));
  EXPECT_THAT(Placed({0, 0, 29, 19}, kImage, {.crop_size = 8}), ElementsAre(0, 30, 0, 8, 0, 20, 0, 8));
  for (const WindowBox& outside :
       {WindowBox{-1, 0, 3, 3}, WindowBox{0, -1, 3, 3}, WindowBox{0, 0, 30, 3}, WindowBox{0, 0, 3, 20}}) {
    EXPECT_THAT(Placed(outside, kImage, {.crop_size = 8}), ElementsAre());
  }
}

// Twice as large with a context of a quarter: from -2 to 6 and from 3 to 11, 9 pixels, of which 2 are outside.
TEST(WindowWarp, ContextOutsideOfTheImageIsPadding) {
  const WarpOptions options{.crop_size = 8, .context_pad = 2};
  EXPECT_THAT(Placed({0, 5, 3, 8}, kImage, options), ElementsAre(0, 7, 2, 6, 3, 9, 0, 8));
  EXPECT_THAT(Placed({0, 5, 3, 8}, kImage, options, true),
              ElementsAre(0, 7, 0, 6, 3, 9, 0, 8));  // the padding is on the right
  // From 24 to 32: three outside, 8 / 9 of which are 2.67.
  EXPECT_THAT(Placed({26, 5, 29, 8}, kImage, options), ElementsAre(24, 6, 0, 5, 3, 9, 0, 8));
  EXPECT_THAT(Placed({26, 5, 29, 8}, kImage, options, true), ElementsAre(24, 6, 3, 5, 3, 9, 0, 8));
}

TEST(WindowWarp, ASquareHasTheLongerSide) {
  // 4 wide and 8 high: from x 10 - 4 to 10 + 4.
  EXPECT_THAT(Placed({8, 4, 11, 11}, kImage, {.crop_size = 9, .square = true}), ElementsAre(6, 9, 0, 9, 4, 9, 0, 9));
  EXPECT_THAT(Placed({8, 4, 15, 7}, kImage, {.crop_size = 9, .square = true}), ElementsAre(8, 9, 0, 9, 2, 9, 0, 9));
}

// One of four columns is outside. In a crop of 6 it becomes 1.5 columns and the others 4.5, which both round up.
TEST(WindowWarp, ARegionThatRoundsUpIsCutOff) {
  EXPECT_THAT(Placed({-1, 5, 1, 7}, kImage, {.crop_size = 6, .square = true}), ElementsAre(0, 3, 2, 4, 5, 4, 0, 6));
}

TEST(WindowWarp, EveryPlaceIsInTheImageAndInTheCrop) {
  std::minstd_rand random(4);
  const auto any = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  int placed = 0;
  for (int turn = 0; turn < 20000; ++turn) {
    const WarpOptions options{.crop_size = 1 + any(40), .context_pad = 0, .square = any(2) == 0};
    WarpOptions padded = options;
    padded.context_pad = any(static_cast<int>(options.crop_size + 1) / 2);
    const ImageShape image{3, 1 + any(30), 1 + any(30)};
    WindowBox box{any(40) - 5, any(40) - 5, 0, 0};
    box.x2 = box.x1 + any(30);
    box.y2 = box.y1 + any(30);
    for (const bool mirror : {false, true}) {
      const auto place = PlaceOfWindow(box, image, padded, mirror);
      if (!place) continue;
      EXPECT_TRUE(place->x >= 0 && place->y >= 0 && place->x + place->width <= image.width &&
                  place->y + place->height <= image.height);
      EXPECT_TRUE(place->width > 0 && place->height > 0 && place->scaled_width > 0 && place->scaled_height > 0);
      EXPECT_TRUE(place->left >= 0 && place->top >= 0 && place->left + place->scaled_width <= padded.crop_size &&
                  place->top + place->scaled_height <= padded.crop_size);
      ++placed;
    }
  }
  EXPECT_GT(placed, 1000);
}

TEST(WindowWarp, PlacesOfHugeWindowsAreNothingOrInTheImage) {
  constexpr std::int32_t kFar = 1 << 24;
  const WarpOptions options{.crop_size = 8191, .context_pad = 4095};
  EXPECT_THAT(Placed({-kFar, -kFar, kFar, kFar}, kImage, options), ElementsAre());
  EXPECT_THAT(Placed({kFar, kFar, kFar, kFar}, kImage, {.crop_size = 9, .context_pad = 1}), ElementsAre());
  EXPECT_THAT(Placed({-kFar, -kFar, -kFar, -kFar}, kImage, {.crop_size = 9, .square = true}), ElementsAre());
}

// Pixels of column x are 10 x, the same in all channels and rows.
Image Ramp() {
  Image image{.shape = {3, 4, 6}, .planes = {}};
  for (int i = 0; i < 3 * 4; ++i) {
    for (int x = 0; x < 6; ++x) image.planes.push_back(static_cast<std::uint8_t>(10 * x));
  }
  return image;
}

std::vector<float> Row(const std::vector<float>& crop, int channel, int y, int size) {
  const auto first = crop.begin() + (channel * size + y) * size;
  return {first, first + size};
}

TEST(WindowWarp, TheMeanIsSubtractedWithinThePaddingAlone) {
  std::vector<float> crop(3 * 4 * 4);
  const WarpPlace place{
      .x = 1, .y = 0, .width = 2, .height = 3, .left = 2, .top = 1, .scaled_width = 2, .scaled_height = 3};
  ASSERT_TRUE(WarpWindow(Ramp(), place, 4, false, {.mean = {{3, 1, 1}, {1, 2, 3}}, .scale = 0.5F}, crop.data()).ok());
  for (int c = 0; c < 3; ++c) EXPECT_THAT(Row(crop, c, 0, 4), Each(0));
  for (int c = 0; c < 3; ++c) {
    const float minus = static_cast<float>(1 + c);
    EXPECT_THAT(Row(crop, c, 3, 4), ElementsAre(0, 0, (10 - minus) / 2, (20 - minus) / 2));
  }
  // Mirrored pixels, at the place that they are given.
  ASSERT_TRUE(WarpWindow(Ramp(), place, 4, true, {}, crop.data()).ok());
  EXPECT_THAT(Row(crop, 2, 1, 4), ElementsAre(0, 0, 20, 10));
}

// Of a mean of 6 x 8 the crop of 4 begins at (8 - 4) / 2 in both directions, so that its last row is the mean's last;
// it is not mirrored.
TEST(WindowWarp, AMeanImageIsCutByItsWidth) {
  MeanPixels mean{.shape = {3, 6, 8}, .values = {}};
  for (int i = 0; i < 3 * 6 * 8; ++i) mean.values.push_back(static_cast<float>(i));
  std::vector<float> crop(3 * 4 * 4);
  const WarpPlace place{
      .x = 1, .y = 1, .width = 3, .height = 3, .left = 1, .top = 1, .scaled_width = 3, .scaled_height = 3};
  for (const bool mirror : {false, true}) {
    ASSERT_TRUE(WarpWindow(Ramp(), place, 4, mirror, {.mean = mean}, crop.data()).ok());
    const float first = mirror ? 30 : 10;
    const float last = 40 - first;
    const auto at = [](int c, int y, int x) { return static_cast<float>((c * 6 + y + 2) * 8 + x + 2); };
    EXPECT_THAT(Row(crop, 1, 3, 4), ElementsAre(0, first - at(1, 3, 1), 20 - at(1, 3, 2), last - at(1, 3, 3)));
  }
}

}  // namespace
}  // namespace poseidon::caffe
