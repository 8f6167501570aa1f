// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "frontends/caffe/data/test_database.h"
#include "frontends/caffe/proto/read.h"

namespace poseidon::caffe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TransformationParameter Parameters(const std::string& text) {
  TransformationParameter parameters;
  EXPECT_TRUE(ParseText(text, "test", &parameters).ok());
  return parameters;
}

// A 2x3x4 image with pixels 0, 1, ..., 23.
class TransformerTest : public ::testing::Test {
 protected:
  TransformerTest() {
    std::iota(pixels_.begin(), pixels_.end(), std::uint8_t{0});
    sample_.shape = {2, 3, 4};
    sample_.bytes = pixels_.data();
  }
  std::vector<float> Apply(const std::string& text, Phase phase, const RandomWords& random = {}) {
    auto transformer = Transformer::Make(Parameters(text), phase);
    EXPECT_TRUE(transformer.ok()) << transformer.status().ToString();
    auto shape = transformer->OutputShape(sample_.shape, "here");
    EXPECT_TRUE(shape.ok()) << shape.status().ToString();
    std::vector<float> out(static_cast<std::size_t>(shape->count()));
    transformer->Apply(sample_, random, out.data());
    return out;
  }
  std::string Refusal(const std::string& text) {
    auto transformer = Transformer::Make(Parameters(text), TRAIN);
    if (!transformer.ok()) return transformer.status().message();
    return transformer->OutputShape(sample_.shape, "here").status().message();
  }

  std::array<std::uint8_t, 24> pixels_{};
  Sample sample_;
};

TEST_F(TransformerTest, ScalesAfterSubtractingTheMean) {
  const auto out = Apply("scale: 0.5 mean_value: 4", TEST);
  ASSERT_EQ(out.size(), 24u);
  EXPECT_EQ(out[0], -2);
  EXPECT_EQ(out[23], 9.5);
  const auto per_channel = Apply("mean_value: 1 mean_value: 12", TEST);
  EXPECT_EQ(per_channel[11], 10);
  EXPECT_EQ(per_channel[12], 0);
}

TEST_F(TransformerTest, CropsTheCentreInTest) {
  EXPECT_THAT(Apply("crop_size: 2", TEST, {~0u, ~0u, ~0u, 0}),
              ElementsAre(1, 2, 5, 6, 13, 14, 17, 18));
}

TEST_F(TransformerTest, CropsAnywhereInTraining) {
  EXPECT_THAT(Apply("crop_size: 2", TRAIN, {0, 0, 0, 0}), ElementsAre(0, 1, 4, 5, 12, 13, 16, 17));
  EXPECT_THAT(Apply("crop_size: 2", TRAIN, {0, ~0u, ~0u, 0}),
              ElementsAre(6, 7, 10, 11, 18, 19, 22, 23));
  // Images are 3 high and 4 wide.
  EXPECT_THAT(Apply("crop_h: 3 crop_w: 1", TRAIN, {0, ~0u, ~0u, 0}), ElementsAre(3, 7, 11, 15, 19, 23));
}

TEST_F(TransformerTest, MirrorsInBothPhases) {
  for (const Phase phase : {TRAIN, TEST}) {
    const auto out = Apply("mirror: true", phase, {1, 0, 0, 0});
    EXPECT_EQ(out[0], 3);
    EXPECT_EQ(out[3], 0);
    EXPECT_EQ(Apply("mirror: true", phase, {2, 0, 0, 0})[0], 0);
  }
}

TEST_F(TransformerTest, MeanImageIsIndexedAtTheSource) {
  TestFolder folder;
  BlobProto mean;
  mean.set_num(1);
  mean.set_channels(2);
  mean.set_height(3);
  mean.set_width(4);
  for (int i = 0; i < 24; ++i) mean.add_data(static_cast<float>(i));
  ASSERT_TRUE(WriteBinaryFile(mean, folder / "mean.binaryproto").ok());
  const std::string file = "mean_file: '" + (folder / "mean.binaryproto") + "' ";
  EXPECT_THAT(Apply(file + "crop_size: 2 mirror: true", TRAIN, {1, ~0u, ~0u, 0}),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(Refusal(file + "mean_value: 1"), HasSubstr("one of them"));
  sample_.shape = {2, 4, 3};
  EXPECT_THAT(Refusal(file), HasSubstr("is 2x3x4, but here has images of 2x4x3"));
}

TEST_F(TransformerTest, ReadsFloats) {
  std::vector<float> floats(24, 0.25f);
  sample_.bytes = nullptr;
  sample_.floats = floats.data();
  EXPECT_EQ(Apply("scale: 2", TEST)[5], 0.5f);
}

TEST_F(TransformerTest, RefusesWhatDoesNotFit) {
  EXPECT_THAT(Refusal("crop_size: 4"), HasSubstr("at least crop_size 4"));
  EXPECT_THAT(Refusal("crop_h: 3 crop_w: 5"), HasSubstr("at least a crop of 3x5"));
  EXPECT_THAT(Refusal("crop_h: 3"), HasSubstr("has one of crop_h and crop_w, expected both"));
  EXPECT_THAT(Refusal("crop_h: 3 crop_w: 2 crop_size: 2"), HasSubstr("expected crop_size or the other two"));
  EXPECT_THAT(Refusal("mean_value: 1 mean_value: 2 mean_value: 3"), HasSubstr("3 mean_value"));
  EXPECT_THAT(Refusal("mean_file: '/nowhere/mean'"), HasSubstr("/nowhere/mean"));
}

}  // namespace
}  // namespace poseidon::caffe
