// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/object_transform.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "frontends/caffe/data/box_sampler.h"
#include "frontends/caffe/data/distort.h"

namespace poseidon::caffe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SampleBlocks SomeWords() {
  return [](std::uint64_t sample, std::uint64_t block) {
    std::mt19937 words(static_cast<unsigned>(sample * 1000 + block + 1));
    return RandomWords{static_cast<std::uint32_t>(words()), static_cast<std::uint32_t>(words()), static_cast<std::uint32_t>(words()),
                       static_cast<std::uint32_t>(words())};
  };
}

template <typename Message>
Message Parsed(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

Result<ObjectTransform> Made(const std::string& transform, const std::string& annotated = "", Phase phase = TRAIN) {
  return ObjectTransform::Make(Parsed<TransformationParameter>(transform), Parsed<AnnotatedDataParameter>(annotated), phase);
}
std::string WhyNoTransform(const std::string& transform, const std::string& annotated = "") { return Made(transform, annotated).status().message(); }

// A grey image of 0 with a rectangle of 255, and the box of it.
ObjectImage Rectangle(std::int64_t height, std::int64_t width, std::int64_t top, std::int64_t left, std::int64_t rows, std::int64_t columns) {
  ObjectImage image;
  EXPECT_TRUE(Allocate({1, height, width}, &image.image).ok());
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      image.image.planes[static_cast<std::size_t>(y * width + x)] = y >= top && y < top + rows && x >= left && x < left + columns ? 255 : 0;
    }
  }
  const auto part = [](std::int64_t at, std::int64_t size) { return static_cast<float>(at) / static_cast<float>(size); };
  image.objects = {{.box = {part(left, width), part(top, height), part(left + columns, width), part(top + rows, height)}, .label = 3, .instance = 7,
                    .difficult = true}};
  return image;
}

struct Transformed {
  ImageShape shape;
  std::vector<float> pixels;
  std::vector<LabelledBox> objects;
};
Transformed Applied(const ObjectTransform& transform, ObjectImage image, std::uint64_t sample = 0) {
  Transformed made;
  const auto shape = transform.Apply("here", SomeWords(), sample, &image, &made.pixels);
  EXPECT_TRUE(shape.ok()) << shape.status().message();
  if (shape.ok()) made.shape = *shape;
  made.objects = image.objects;
  return made;
}
std::vector<float> Corners(const LabelledBox& object) { return {object.box.x1, object.box.y1, object.box.x2, object.box.y2}; }

// The sides of what is brighter than half, which are those of the box to a pixel and a half; a window that was cut out is of whole
// pixels, and its box is not: to `cut` of a side.
void ExpectBoxAroundTheBright(const Transformed& made, float cut) {
  const auto height = made.shape.height, width = made.shape.width;
  std::int64_t top = height, left = width, bottom = 0, right = 0;
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      if (made.pixels[static_cast<std::size_t>(y * width + x)] <= 127) continue;
      top = std::min(top, y);
      left = std::min(left, x);
      bottom = std::max(bottom, y + 1);
      right = std::max(right, x + 1);
    }
  }
  const float down = 1.6F + cut * static_cast<float>(height), across = 1.6F + cut * static_cast<float>(width);
  if (made.objects.empty()) {
    EXPECT_TRUE(static_cast<float>(bottom - top) <= down || static_cast<float>(right - left) <= across);
    return;
  }
  ASSERT_EQ(made.objects.size(), 1U);
  const LabelledBox& object = made.objects[0];
  const float columns = (object.box.x2 - object.box.x1) * static_cast<float>(width), rows = (object.box.y2 - object.box.y1) * static_cast<float>(height);
  if (columns < across || rows < down) return;
  EXPECT_NEAR(object.box.x1 * static_cast<float>(width), static_cast<float>(left), across);
  EXPECT_NEAR(object.box.y1 * static_cast<float>(height), static_cast<float>(top), down);
  EXPECT_NEAR(object.box.x2 * static_cast<float>(width), static_cast<float>(right), across);
  EXPECT_NEAR(object.box.y2 * static_cast<float>(height), static_cast<float>(bottom), down);
  EXPECT_EQ(object.label, 3);
  EXPECT_EQ(object.instance, 7);
  EXPECT_TRUE(object.difficult);
}

constexpr char kSampler[] =
    "batch_sampler { max_sample: 1 max_trials: 1 }"
    "batch_sampler { sampler { min_scale: 0.6 max_scale: 1 min_aspect_ratio: 0.5 max_aspect_ratio: 2 } "
    "sample_constraint { min_jaccard_overlap: 0.1 } max_sample: 1 max_trials: 50 }"
    "batch_sampler { sampler { min_scale: 0.6 max_scale: 1 min_aspect_ratio: 0.5 max_aspect_ratio: 2 } max_sample: 1 max_trials: 50 }";

TEST(ObjectTransform, BoxesFollowTheirPixels) {
  const std::string steps[] = {
      "", "mirror: true", "crop_size: 40", "crop_size: 33 mirror: true", "expand_param { max_expand_ratio: 3 }",
      "resize_param { height: 60 width: 90 }", "resize_param { height: 50 width: 50 resize_mode: FIT_LARGE_SIZE_AND_PAD }",
      "resize_param { height: 100 width: 40 resize_mode: FIT_LARGE_SIZE_AND_PAD interp_mode: AREA interp_mode: NEAREST }",
      "resize_param { height: 50 width: 44 resize_mode: FIT_SMALL_SIZE } crop_size: 40 mirror: true",
      "expand_param { max_expand_ratio: 2 prob: 0.5 } mirror: true resize_param { height: 80 width: 70 interp_mode: CUBIC interp_mode: LANCZOS4 }"};
  for (const std::string& step : steps) {
    for (const char* const sampler : {"", kSampler}) {
      if (*sampler != 0 && step.find("crop_size") == 0) continue;  // a window may be smaller than the crop
      const auto transform = Made(step, sampler);
      ASSERT_TRUE(transform.ok()) << transform.status().message();
      int objects = 0;
      for (std::uint64_t sample = 0; sample < 40; ++sample) {
        SCOPED_TRACE(step + " " + sampler + " sample " + std::to_string(sample));
        const Transformed made = Applied(*transform, Rectangle(96, 128, 18, 34, 40, 50), sample);
        ExpectBoxAroundTheBright(made, *sampler != 0 ? 0.04F : 0);
        objects += static_cast<int>(made.objects.size());
      }
      EXPECT_GT(objects, 20);
    }
  }
}

TEST(ObjectTransform, SizesAndBars) {
  const ObjectImage image = Rectangle(20, 40, 0, 0, 20, 40);
  const auto of = [&](const std::string& resize) { return Applied(*Made("resize_param { " + resize + " }"), image); };
  EXPECT_EQ(of("height: 30 width: 30").shape, (ImageShape{1, 30, 30}));
  EXPECT_EQ(of("height: 30 width: 30 resize_mode: FIT_SMALL_SIZE").shape, (ImageShape{1, 30, 60}));
  const Transformed padded = of("height: 30 width: 30 resize_mode: FIT_LARGE_SIZE_AND_PAD pad_value: 77");
  EXPECT_EQ(padded.shape, (ImageShape{1, 30, 30}));
  EXPECT_EQ(padded.pixels[0], 77);
  EXPECT_EQ(padded.pixels[7 * 30], 255);
  EXPECT_EQ(padded.pixels[22 * 30], 77);
  EXPECT_THAT(Corners(padded.objects.at(0)), ElementsAre(0, 0.25F, 1, 0.75F));
  EXPECT_EQ(of("height: 30 width: 30 resize_mode: FIT_LARGE_SIZE_AND_PAD pad_mode: REPEAT_NEAREST").pixels[0], 255);
}

TEST(ObjectTransform, BarsMayMirrorTheImage) {
  ObjectImage image;
  image.image = {.shape = {1, 3, 4}, .planes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};
  const Transformed made =
      Applied(*Made("resize_param { height: 9 width: 4 resize_mode: FIT_LARGE_SIZE_AND_PAD pad_mode: MIRRORED }", "", TEST), image);
  std::vector<float> column;
  for (std::size_t y = 0; y < 9; ++y) column.push_back(made.pixels[4 * y]);
  EXPECT_THAT(column, ElementsAre(5, 9, 5, 1, 5, 9, 5, 1, 5));
}

TEST(ObjectTransform, ExpandsWithTheMeansColour) {
  const auto transform = Made("expand_param { max_expand_ratio: 4 } mean_value: 100");
  for (std::uint64_t sample = 0; sample < 20; ++sample) {
    const Transformed made = Applied(*transform, Rectangle(10, 10, 0, 0, 10, 10), sample);
    EXPECT_GE(made.shape.height, 10);
    EXPECT_LE(made.shape.height, 40);
    EXPECT_EQ(std::count(made.pixels.begin(), made.pixels.end(), 155.0F), 100);
    EXPECT_EQ(std::count(made.pixels.begin(), made.pixels.end(), 0.0F), made.shape.count() - 100);
  }
}

// The left half of an image: of one box the centre is in it, of the other a third of the area.
TEST(ObjectTransform, EmitsWhatTheConstraintAsksFor) {
  ObjectImage image;
  image.image = {.shape = {1, 2, 4}, .planes = std::vector<std::uint8_t>(8)};
  image.objects = {{.box = {0.2F, 0, 0.7F, 1}, .label = 1}, {.box = {0.4F, 0, 0.7F, 1}, .label = 2}, {.box = {0.6F, 0, 0.7F, 1}, .label = 3}};
  const std::string left = "resize_param { height: 2 width: 4 } crop_size: 2";
  const auto labels = [&](const std::string& emit) {
    std::vector<int> found;
    // Places of the crop are drawn; the first sample whose crop begins at the left.
    for (std::uint64_t sample = 0; found.empty() && sample < 100; ++sample) {
      ObjectImage numbered = image;
      for (std::size_t i = 0; i < 8; ++i) numbered.image.planes[i] = static_cast<std::uint8_t>(i);
      const Transformed made = Applied(*Made(left + emit), numbered, sample);
      if (made.pixels[0] != 0) continue;
      for (const LabelledBox& object : made.objects) found.push_back(object.label);
    }
    return found;
  };
  EXPECT_THAT(labels(""), ElementsAre(1, 2));
  EXPECT_THAT(labels(" emit_constraint { }"), ElementsAre(1));
  EXPECT_THAT(labels(" emit_constraint { emit_type: MIN_OVERLAP emit_overlap: 0.3 }"), ElementsAre(1, 2));
  EXPECT_THAT(labels(" emit_constraint { emit_type: MIN_OVERLAP emit_overlap: 0.5 }"), ElementsAre(1));
}

// Boxes in parts of 20 x 10 pixels instead of the crop's 30 x 30.
TEST(ObjectTransform, ScalesBoxesOfSmallSizes) {
  const auto transform = Made("resize_param { height: 30 width: 30 resize_mode: FIT_SMALL_SIZE height_scale: 10 width_scale: 20 } crop_size: 30", "", TEST);
  EXPECT_THAT(Corners(Applied(*transform, Rectangle(60, 60, 0, 15, 60, 30)).objects.at(0)), ElementsAre(0.375F, 0, 1.125F, 3));
  ObjectImage image = Rectangle(60, 60, 0, 0, 60, 30);
  std::vector<float> pixels;
  const auto small = Made("resize_param { height: 30 width: 30 resize_mode: FIT_SMALL_SIZE height_scale: 40 width_scale: 20 }");
  EXPECT_THAT(small->Apply("here", SomeWords(), 0, &image, &pixels).status().message(), HasSubstr("here: resize_param has height_scale 40"));
}

TEST(BoxSampler, WindowsMeetTheirConstraint) {
  const std::vector<LabelledBox> objects = {{.box = {0.1F, 0.1F, 0.4F, 0.5F}}, {.box = {0.6F, 0.6F, 0.9F, 0.9F}}};
  const SampleBlocks words = SomeWords();
  const auto windows = [&](const std::string& text, std::uint64_t sample = 0) {
    RandomSequence random(words, sample, 0);
    std::vector<Box<float>> found;
    DrawWindows(Parsed<BatchSampler>(text), objects, &random, &found);
    return found;
  };
  const std::string sampler = "sampler { min_scale: 0.2 max_scale: 0.9 min_aspect_ratio: 0.5 max_aspect_ratio: 2 } max_trials: 500 ";
  const auto free = windows(sampler);
  EXPECT_EQ(free.size(), 500U);
  for (const Box<float>& window : free) {
    EXPECT_GE(window.x1, 0);
    EXPECT_GE(window.y1, 0);
    EXPECT_LE(window.x2, 1.00001F);
    EXPECT_LE(window.y2, 1.00001F);
    const float width = window.x2 - window.x1, height = window.y2 - window.y1;
    EXPECT_GE(width * height, 0.039F);
    EXPECT_LE(width * height, 0.811F);
    EXPECT_GE(width / height, 0.499F);
    EXPECT_LE(width / height, 2.001F);
  }
  const auto overlapping = windows(sampler + "sample_constraint { min_jaccard_overlap: 0.3 max_jaccard_overlap: 0.6 }");
  EXPECT_GT(overlapping.size(), 5U);
  EXPECT_LT(overlapping.size(), 400U);
  for (const Box<float>& window : overlapping) {
    const auto within = [&](const LabelledBox& object) {
      const float overlap = Overlap(window, object.box);
      return overlap >= 0.3F && overlap <= 0.6F;
    };
    EXPECT_TRUE(std::any_of(objects.begin(), objects.end(), within));
  }
  const auto covering = windows(sampler + "sample_constraint { min_object_coverage: 1 } max_sample: 3");
  ASSERT_EQ(covering.size(), 3U);
  for (const Box<float>& window : covering) {
    EXPECT_TRUE((window.x1 <= 0.1F && window.x2 >= 0.4F && window.y1 <= 0.1F && window.y2 >= 0.5F) ||
                (window.x1 <= 0.6F && window.x2 >= 0.9F && window.y1 <= 0.6F && window.y2 >= 0.9F));
  }
  for (const Box<float>& window : windows(sampler + "sample_constraint { min_sample_coverage: 0.99 }")) {
    EXPECT_TRUE(SharedArea(window, objects[0].box) >= 0.98F * AreaOf(window) || SharedArea(window, objects[1].box) >= 0.98F * AreaOf(window));
  }
  EXPECT_TRUE(windows("use_original_image: false").empty());
}

// OpenCV 5.0, as it computes them with vectors: to hue, saturation and value and back.
TEST(Distort, ChangesColoursAsOpenCv) {
  struct Case {
    float saturation, hue;
    std::vector<std::uint8_t> planes;
  };
  const std::vector<Case> cases = {
      {0.5F, 0, {105, 255, 77, 0, 250, 101, 200, 126, 77, 0, 250, 144, 114, 191, 77, 0, 251, 200}},
      {1.4F, 0, {0, 255, 77, 0, 249, 0, 200, 0, 77, 0, 248, 86, 19, 127, 77, 0, 251, 200}},
      {1, 17.5F, {98, 237, 77, 0, 249, 3, 200, 0, 77, 0, 249, 200, 10, 255, 77, 0, 251, 200}},
      {1, -36, {10, 255, 77, 0, 251, 3, 143, 178, 77, 0, 249, 3, 200, 0, 77, 0, 249, 200}},
      {1, 150, {10, 127, 77, 0, 250, 114, 181, 255, 77, 0, 251, 3, 200, 0, 77, 0, 249, 200}},
  };
  const std::vector<std::uint8_t> planes = {10, 255, 77, 0, 250, 3, 200, 0, 77, 0, 249, 90, 30, 128, 77, 0, 251, 200};
  for (const Case& expected : cases) {
    SCOPED_TRACE(std::to_string(expected.saturation) + " " + std::to_string(expected.hue));
    Image image{.shape = {3, 1, 6}, .planes = planes};
    ScaleAndShiftColours(expected.saturation, expected.hue, &image);
    EXPECT_EQ(image.planes, expected.planes);
  }
  Image image{.shape = {3, 1, 6}, .planes = planes};
  ScaleAndShift(1.5F, -20, &image);
  EXPECT_THAT(image.planes, ElementsAre(0, 255, 96, 0, 255, 0, 255, 0, 96, 0, 255, 115, 25, 172, 96, 0, 255, 255));
}

TEST(Distort, DrawsWhatItDoes) {
  const SampleBlocks words = SomeWords();
  const auto distorted = [&](const std::string& text, std::uint64_t sample) {
    Image image{.shape = {3, 1, 2}, .planes = {10, 40, 20, 50, 30, 60}};
    RandomSequence random(words, sample, 1);
    Distort(Parsed<DistortionParameter>(text), &random, &image);
    return image.planes;
  };
  std::vector<std::vector<std::uint8_t>> orders, brighter;
  int unchanged = 0;
  for (std::uint64_t sample = 0; sample < 100; ++sample) {
    EXPECT_THAT(distorted("", sample), ElementsAre(10, 40, 20, 50, 30, 60));
    orders.push_back(distorted("random_order_prob: 1", sample));
    const auto shifted = distorted("brightness_prob: 0.5 brightness_delta: 9", sample);
    unchanged += shifted[0] == 10 && shifted[1] == 40 ? 1 : 0;
    EXPECT_EQ(shifted[1] - shifted[0], 30);
    EXPECT_LE(std::abs(shifted[0] - 10), 9);
    EXPECT_EQ(distorted("contrast_prob: 1 contrast_lower: 2 contrast_upper: 2", sample), (std::vector<std::uint8_t>{20, 80, 40, 100, 60, 120}));
  }
  std::sort(orders.begin(), orders.end());
  EXPECT_EQ(std::unique(orders.begin(), orders.end()) - orders.begin(), 6);
  EXPECT_GT(unchanged, 30);
  EXPECT_LT(unchanged, 75);
}

TEST(ObjectTransform, SaysWhatItCannotDraw) {
  EXPECT_THAT(WhyNoTransform("resize_param { height: 3 }"), HasSubstr("resize_param has no height or width"));
  EXPECT_THAT(WhyNoTransform("resize_param { height: 3 width: 3 prob: 0.5 }"), HasSubstr("resize_param has prob 0.5"));
  EXPECT_THAT(WhyNoTransform("expand_param { max_expand_ratio: 1 }"), HasSubstr("max_expand_ratio 1.0"));
  EXPECT_THAT(WhyNoTransform("expand_param { max_expand_ratio: nan }"), HasSubstr("max_expand_ratio nan"));
  EXPECT_THAT(WhyNoTransform("expand_param { max_expand_ratio: 2 } mean_file: 'm'"), HasSubstr("expand_param and mean_file"));
  EXPECT_THAT(WhyNoTransform("distort_param { hue_delta: -1 }"), HasSubstr("distort_param has hue_delta -1"));
  EXPECT_THAT(WhyNoTransform("distort_param { contrast_lower: 2 contrast_upper: 1 }"), HasSubstr("contrast_upper 1"));
  EXPECT_THAT(WhyNoTransform("distort_param { saturation_prob: nan }"), HasSubstr("saturation_prob nan"));
  EXPECT_THAT(WhyNoTransform("", "batch_sampler { sampler { min_scale: 0.5 max_scale: 0.2 } }"), HasSubstr("min_scale 0.5"));
  EXPECT_THAT(WhyNoTransform("", "batch_sampler { sampler { min_aspect_ratio: 0 } }"), HasSubstr("min_aspect_ratio 0.0"));
  EXPECT_THAT(WhyNoTransform("", "batch_sampler { max_trials: 4000000000 }"), HasSubstr("max_trials 4000000000"));
  ObjectImage grey = Rectangle(4, 4, 0, 0, 2, 2);
  std::vector<float> pixels;
  const auto applied = Made("distort_param { }")->Apply("here", SomeWords(), 0, &grey, &pixels);
  EXPECT_THAT(applied.status().message(), HasSubstr("here is 1x4x4, expected 3 channels"));
  EXPECT_THAT(Transformer::Make(Parsed<TransformationParameter>("distort_param { }"), TRAIN).status().message(),
              HasSubstr("transform_param has distort_param, expected it in a layer of type AnnotatedData alone"));
}

}  // namespace
}  // namespace poseidon::caffe
