// SPDX-License-Identifier: Apache-2.0
// AnnotatedData: the blob of boxes, several workers, and under SSD's loss. data/annotated_samples_test.cc has its records, and
// data/object_transform_test.cc what is done to them.
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "frontends/caffe/data/test_database.h"
#include "tests/shared/gradient_checker.h"

namespace poseidon::caffe {
namespace {

using testing::HasSubstr;

// Twelve images with 0 to 2 objects.
class AnnotatedDataTest : public testing::Test {
 protected:
  AnnotatedDataTest() {
    WriteObjectsDatabase(
        folder_ / "lmdb", 12, [](std::uint64_t i) { return TestDatum(i, 3, 12 + static_cast<int>(i % 3), 16); },
        [](std::uint64_t i, std::uint64_t k) {
          return TestBox(0.1F, 0.2F + 0.3F * static_cast<float>(k), 0.5F + 0.02F * static_cast<float>(i), 0.6F + 0.3F * static_cast<float>(k));
        });
  }

  std::string Layer(int batch, const std::string& options, const std::string& transform) const {
    return "layer { name: 'a' type: 'AnnotatedData' top: 'data' top: 'label' data_param { source: '" + folder_ / "lmdb" +
           "' backend: LMDB batch_size: " + std::to_string(batch) + " } annotated_data_param { " + options + " } transform_param { " +
           transform + " } }";
  }
  struct Tops {
    at::Tensor data, label;
  };
  static Tops Batch(const std::string& layer, DataShare share, std::uint64_t batch, Phase phase = TRAIN) {
    NetOptions options;
    options.share = share;
    const auto net = MakeNet(layer, phase, options);
    net->BeginPass({.step = batch, .pass = 0, .batch = batch});
    const auto loss = net->Forward();
    EXPECT_TRUE(loss.ok()) << loss.status().message();
    return {net->blob("data")->data.clone(), net->blob("label")->data.clone()};
  }

  TestFolder folder_;
};

constexpr char kTransform[] =
    "mirror: true distort_param { brightness_prob: 0.5 brightness_delta: 32 hue_prob: 0.5 hue_delta: 18 random_order_prob: 0.5 } "
    "expand_param { prob: 0.5 max_expand_ratio: 2 } resize_param { height: 10 width: 10 interp_mode: LINEAR interp_mode: AREA }";
constexpr char kSampler[] = "batch_sampler { max_sample: 1 max_trials: 1 } batch_sampler { sampler { min_scale: 0.5 } max_sample: 1 max_trials: 9 "
                            "sample_constraint { min_jaccard_overlap: 0.3 } }";

TEST_F(AnnotatedDataTest, TheSecondTopHasARowForEachBox) {
  const Tops tops = Batch(Layer(3, "", "resize_param { height: 10 width: 10 }"), {}, 0);
  EXPECT_EQ(tops.data.sizes(), (Shape{3, 3, 10, 10}));
  ASSERT_EQ(tops.label.sizes(), (Shape{1, 1, 3, 8}));
  const std::vector<float> expected = {1, 1, 0, 0.1F, 0.2F, 0.52F, 0.6F, 0, 2, 1, 0, 0.1F, 0.2F, 0.54F, 0.6F, 0, 2, 2, 0, 0.1F, 0.5F, 0.54F, 0.9F, 0};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(tops.label.const_data_ptr<float>()[i], expected[i], 1e-6F) << i;
  const Tops none = Batch(Layer(1, "", "resize_param { height: 10 width: 10 }"), {}, 3);
  ASSERT_EQ(none.label.sizes(), (Shape{1, 1, 1, 8}));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(none.label.const_data_ptr<float>()[i], -1);
}

// Rows of a box name the row of the worker's own batch.
TEST_F(AnnotatedDataTest, ThreeWorkersReadTheBatchThatOneReads) {
  for (const std::uint64_t batch : {0, 1, 5}) {
    const Tops one = Batch(Layer(6, kSampler, kTransform), {}, batch);
    std::int64_t row = 0;
    for (int rank = 0; rank < 3; ++rank) {
      const Tops own = Batch(Layer(2, kSampler, kTransform), {.rank = rank, .world = 3}, batch);
      EXPECT_TRUE(at::equal(own.data, one.data.narrow(0, 2 * rank, 2))) << batch << " " << rank;
      if (own.label.const_data_ptr<float>()[0] < 0) continue;
      at::Tensor expected = one.label.narrow(2, row, own.label.size(2)).clone();
      expected.select(3, 0).sub_(2 * rank);
      EXPECT_TRUE(at::equal(own.label, expected)) << batch << " " << rank;
      row += own.label.size(2);
    }
    EXPECT_EQ(row, one.label.size(2));
  }
}

TEST_F(AnnotatedDataTest, ABatchDependsOnItsNumberAlone) {
  const std::string layer = Layer(4, kSampler, kTransform);
  const auto net = MakeNet(layer);
  for (std::uint64_t batch = 0; batch < 4; ++batch) {
    net->BeginPass({.step = batch, .pass = 0, .batch = batch});
    ASSERT_TRUE(net->Forward().ok());
  }
  EXPECT_TRUE(at::equal(net->blob("data")->data, Batch(layer, {}, 3).data));
  EXPECT_TRUE(at::equal(net->blob("label")->data, Batch(layer, {}, 3).label));
}

// Images of FIT_SMALL_SIZE have sizes of their own.
TEST_F(AnnotatedDataTest, OneImageMayHaveAnySize) {
  const std::string layer = Layer(1, "", "resize_param { height: 20 width: 20 resize_mode: FIT_SMALL_SIZE }");
  const auto net = MakeNet(layer + "layer { name: 'p' type: 'Pooling' bottom: 'data' top: 'p' pooling_param { kernel_size: 2 stride: 2 } }");
  std::vector<std::int64_t> widths;
  for (std::uint64_t batch = 0; batch < 3; ++batch) {
    net->BeginPass({.step = batch, .pass = 0, .batch = batch});
    ASSERT_TRUE(net->Forward().ok());
    widths.push_back(net->blob("data")->data.size(3));
    EXPECT_EQ(net->blob("p")->data.size(3), (widths.back() + 1) / 2);
  }
  EXPECT_THAT(widths, testing::ElementsAre(26, 24, 22));
  EXPECT_THAT(WhyNoNet(Layer(2, "", "resize_param { height: 20 width: 20 resize_mode: FIT_SMALL_SIZE }")), HasSubstr("expected 1, or a crop_size"));
}

TEST_F(AnnotatedDataTest, SaysWhatDoesNotFit) {
  const auto net = MakeNet(Layer(3, "", ""));
  net->BeginPass({});
  EXPECT_THAT(net->Forward().status().message(), HasSubstr("record 1 (key 00000001) is 3x13x16, expected 3x12x16 like the first"));
  EXPECT_THAT(WhyNoNet(Layer(0, "", "")), HasSubstr("batch_size is 0"));
  EXPECT_THAT(WhyNoNet(Layer(1, "batch_sampler { sampler { max_scale: 2 } }", "")), HasSubstr("max_scale 2"));
}

TEST_F(AnnotatedDataTest, OtherLayersRefuseItsSteps) {
  for (const char* const step : {"resize_param { height: 2 width: 2 }", "distort_param { }", "expand_param { }", "emit_constraint { }"}) {
    const std::string transform = std::string(" transform_param { crop_size: 9 ") + step + " } ";
    for (const std::string& layer :
         {"type: 'Data' data_param { source: '" + folder_ / "lmdb" + "' backend: LMDB batch_size: 1 }" + transform,
          "type: 'WindowData' window_data_param { source: 'none' batch_size: 4 }" + transform}) {
      EXPECT_THAT(WhyNoNet("layer { name: 'l' top: 'data' top: 'label' " + layer + " }"), HasSubstr("type AnnotatedData alone")) << layer;
    }
  }
}

// A small SSD: the loss of its boxes falls.
TEST_F(AnnotatedDataTest, TrainsUnderMultiBoxLoss) {
  const std::string net_text =
      Layer(6, kSampler, "mean_value: 128 scale: 0.01 resize_param { height: 16 width: 16 }") +
      "layer { name: 'c' type: 'Convolution' bottom: 'data' top: 'c' convolution_param { num_output: 8 kernel_size: 4 stride: 4 weight_filler { type: "
      "'xavier' } } }"
      "layer { name: 'prior' type: 'PriorBox' bottom: 'c' bottom: 'data' top: 'prior' prior_box_param { min_size: 6 variance: 0.1 } }"
      "layer { name: 'loc' type: 'Convolution' bottom: 'c' top: 'loc' convolution_param { num_output: 4 kernel_size: 1 weight_filler { type: 'xavier' } } }"
      "layer { name: 'conf' type: 'Convolution' bottom: 'c' top: 'conf' convolution_param { num_output: 3 kernel_size: 1 weight_filler { type: 'xavier' } } }"
      "layer { name: 'lp' type: 'Permute' bottom: 'loc' top: 'lp' permute_param { order: 0 order: 2 order: 3 order: 1 } }"
      "layer { name: 'cp' type: 'Permute' bottom: 'conf' top: 'cp' permute_param { order: 0 order: 2 order: 3 order: 1 } }"
      "layer { name: 'lf' type: 'Flatten' bottom: 'lp' top: 'lf' }"
      "layer { name: 'cf' type: 'Flatten' bottom: 'cp' top: 'cf' }"
      "layer { name: 'loss' type: 'MultiBoxLoss' bottom: 'lf' bottom: 'cf' bottom: 'prior' bottom: 'label' top: 'loss' "
      "multibox_loss_param { num_classes: 3 code_type: CENTER_SIZE neg_pos_ratio: 3 overlap_threshold: 0.3 } }";
  const auto net = MakeNet(net_text);
  double first = 0, last = 0;
  for (std::uint64_t batch = 0; batch < 60; ++batch) {
    net->BeginPass({.step = batch, .pass = 0, .batch = batch});
    const auto loss = net->Forward();
    ASSERT_TRUE(loss.ok()) << loss.status().message();
    ASSERT_TRUE(net->Backward().ok());
    (batch < 10 ? first : last) += batch < 10 || batch >= 50 ? *loss : 0;
    for (const auto& param : net->learnable_params()) param.blob.data.sub_(param.blob.diff, 0.005);
  }
  EXPECT_TRUE(std::isfinite(last));
  EXPECT_LT(last, 0.8 * first);
}

}  // namespace
}  // namespace poseidon::caffe
