// SPDX-License-Identifier: Apache-2.0
#include "tools/train/measure_net.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tools/train/processor_share.h"

namespace poseidon::tools {
namespace {

using ::testing::HasSubstr;

class MeasureNetTest : public ::testing::Test {
 protected:
  // A net of `layers` behind a data layer of 4 samples of 3 x 6 x 6.
  profile::MeasureOptions Net(const std::string& layers) {
    path_ = std::filesystem::temp_directory_path() / "poseidon_measure_net_test.prototxt";
    std::ofstream(path_) << R"(
        layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
          shape { dim: 4 dim: 3 dim: 6 dim: 6 } shape { dim: 4 }
          data_filler { type: "gaussian" } data_filler { type: "constant" } } })"
                         << layers;
    return {.model = path_.string(), .iterations = 1, .threads = 1};
  }
  void TearDown() override { std::filesystem::remove(path_); }

 private:
  std::filesystem::path path_;
};

constexpr const char* kLayers = R"(
  layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param {
    num_output: 5 kernel_size: 3 bias_term: false weight_filler { type: "xavier" } } }
  layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
  layer { name: "frozen" type: "InnerProduct" bottom: "conv" top: "frozen"
    param { lr_mult: 0 } param { lr_mult: 0 } inner_product_param { num_output: 9 } }
  layer { name: "fc" type: "InnerProduct" bottom: "frozen" top: "fc" inner_product_param {
    num_output: 7 weight_filler { type: "xavier" } } }
  layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" })";

TEST(BusyMachineWarning, SaysThatOtherProgramsTookTheProcessor) {
  EXPECT_EQ(BusyMachineWarning(0.97, 1), "");
  EXPECT_THAT(BusyMachineWarning(0.52, 1), HasSubstr("had a processor for 52 % of the time only"));
  EXPECT_EQ(BusyMachineWarning(0.7, 2), "") << "the others are waited for";
  EXPECT_THAT(BusyMachineWarning(0.31, 2), HasSubstr("31 %"));
  const ProcessorShare share;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a thread that sleeps has none
  EXPECT_LT(share.now(), 0.8);
}

TEST_F(MeasureNetTest, DescribesWhatIsTrained) {
  const Result<profile::Profile> measured = MeasureNet(Net(kLayers));
  ASSERT_TRUE(measured.ok()) << measured.status().message();
  EXPECT_EQ(measured->name, "poseidon_measure_net_test");
  EXPECT_EQ(measured->batch, 4u);
  EXPECT_EQ(measured->compute_threads, 1u);
  EXPECT_GT(measured->product_flops, 0);
  ASSERT_EQ(measured->layers.size(), 2u);
  const profile::Layer& conv = measured->layers[0];
  EXPECT_EQ(conv.spec.name, "conv");
  EXPECT_EQ(conv.spec.shape, "5x3x3x3");
  EXPECT_EQ(conv.spec.elements, 135u);
  EXPECT_FALSE(conv.spec.factors);
  const profile::Layer& fc = measured->layers[1];
  EXPECT_EQ(fc.spec.forward_position, 1u);
  EXPECT_EQ(fc.spec.factors, (plan::FactorShape{7, 9, true}));
  EXPECT_EQ(fc.rows, 4u);
  EXPECT_EQ(fc.tensors, (std::vector<profile::Tensor>{{"fc.0", {7, 9}}, {"fc.1", {7}}}));
  for (const profile::Layer& layer : measured->layers) {
    EXPECT_GT(layer.forward_seconds, 0);
    EXPECT_GT(layer.backward_seconds, 0);
  }
  EXPECT_EQ(profile::ParseProfile(TextOf(*measured), "text").value(), *measured);
}

TEST_F(MeasureNetTest, FailsInOneSentence) {
  EXPECT_THAT(MeasureNet({.model = "/nonexistent/net.prototxt"}).status().message(),
              HasSubstr("/nonexistent/net.prototxt"));
  EXPECT_THAT(
      MeasureNet(Net(R"(layer { name: "s" type: "Silence" bottom: "data" bottom: "label" })"))
          .status()
          .message(),
      HasSubstr("no layer that is trained"));
}

}  // namespace
}  // namespace poseidon::tools
