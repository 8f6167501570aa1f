// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/proto/upgrade.h"

#include <gtest/gtest.h>

#include "frontends/caffe/proto/read.h"

namespace poseidon::caffe {
namespace {

NetParameter Upgraded(const std::string& text) {
  NetParameter net;
  EXPECT_TRUE(ParseText(text, "t", &net).ok());
  const Status status = UpgradeNet("t", &net);
  EXPECT_TRUE(status.ok()) << status.message();
  return net;
}

std::string Refusal(const std::string& text) {
  NetParameter net;
  EXPECT_TRUE(ParseText(text, "t", &net).ok());
  return UpgradeNet("t", &net).message();
}

TEST(UpgradeNet, OldLayersBecomeLayers) {
  const NetParameter net = Upgraded(R"(
    layers { name: "c" type: CONVOLUTION bottom: "x" top: "y"
             blobs_lr: 1 blobs_lr: 2 weight_decay: 1 weight_decay: 0
             param: "w" blob_share_mode: PERMISSIVE
             convolution_param { num_output: 3 kernel_size: 5 }
             include { phase: TRAIN } }
    layers { name: "l" type: SOFTMAX_LOSS bottom: "y" bottom: "label" loss_weight: 0.5 })");
  ASSERT_EQ(net.layer_size(), 2);
  EXPECT_EQ(net.layers_size(), 0);
  const LayerParameter& c = net.layer(0);
  EXPECT_EQ(c.type(), "Convolution");
  ASSERT_EQ(c.param_size(), 2);
  EXPECT_EQ(c.param(0).name(), "w");
  EXPECT_EQ(c.param(0).share_mode(), ParamSpec::PERMISSIVE);
  EXPECT_EQ(c.param(1).lr_mult(), 2);
  EXPECT_EQ(c.param(1).decay_mult(), 0);
  EXPECT_EQ(c.convolution_param().kernel_size(0), 5);
  EXPECT_EQ(c.include(0).phase(), TRAIN);
  EXPECT_EQ(net.layer(1).type(), "SoftmaxWithLoss");
  EXPECT_EQ(net.layer(1).loss_weight(0), 0.5F);
}

TEST(UpgradeNet, EveryOldTypeHasAName) {
  const auto* values = V1LayerParameter::LayerType_descriptor();
  for (int i = 0; i < values->value_count(); ++i) {
    const auto type = static_cast<V1LayerParameter::LayerType>(values->value(i)->number());
    EXPECT_EQ(TypeName(type).empty(), type == V1LayerParameter::NONE) << values->value(i)->name();
  }
}

TEST(UpgradeNet, OldTransformOptionsMove) {
  const NetParameter net = Upgraded(R"(
    layers { name: "d" type: DATA top: "x"
             data_param { source: "s" scale: 0.5 crop_size: 7 mirror: true mean_file: "m" } })");
  const LayerParameter& d = net.layer(0);
  EXPECT_EQ(d.transform_param().scale(), 0.5F);
  EXPECT_EQ(d.transform_param().crop_size(), 7U);
  EXPECT_TRUE(d.transform_param().mirror());
  EXPECT_EQ(d.transform_param().mean_file(), "m");
  EXPECT_FALSE(d.data_param().has_scale());
  EXPECT_EQ(d.data_param().source(), "s");
}

TEST(UpgradeNet, InputsBecomeAFirstLayer) {
  const NetParameter dims = Upgraded(R"(
    input: "a" input: "b" input_dim: [1, 2, 3, 4, 5, 6, 7, 8]
    layer { name: "r" type: "ReLU" bottom: "a" top: "a" })");
  ASSERT_EQ(dims.layer_size(), 2);
  EXPECT_EQ(dims.layer(0).type(), "Input");
  EXPECT_EQ(dims.layer(0).top_size(), 2);
  EXPECT_EQ(dims.layer(0).input_param().shape(1).dim(2), 7);
  EXPECT_EQ(dims.layer(1).name(), "r");
  EXPECT_EQ(dims.input_size(), 0);
  const NetParameter shape = Upgraded(R"(input: "a" input_shape { dim: 9 })");
  EXPECT_EQ(shape.layer(0).input_param().shape(0).dim(0), 9);
}

TEST(UpgradeNet, InputsWithoutSizesStandForWhatALayerMakes) {
  const NetParameter net = Upgraded(R"(
    input: "data" layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 3 } } })");
  EXPECT_EQ(net.layer_size(), 1);
  EXPECT_EQ(net.input_size(), 0);
  EXPECT_EQ(Refusal(R"(input: "data" input: "label" layer { name: "in" type: "Input" top: "data" })"),
            "t: input 'label' has neither input_shape nor input_dim, and no layer makes it");
}

TEST(UpgradeNet, BatchNormStatisticsAreNotTrained) {
  const NetParameter net = Upgraded(
      R"(layer { name: "b" type: "BatchNorm" param {} param { lr_mult: 2 } param {} })");
  for (const ParamSpec& spec : net.layer(0).param()) {
    EXPECT_EQ(spec.lr_mult(), 0);
    EXPECT_EQ(spec.decay_mult(), 0);
  }
}

TEST(UpgradeNet, SaysWhatItCannotTake) {
  EXPECT_EQ(Refusal(R"(layers { name: "a" type: RELU } layer { name: "b" })"),
            "t: 'layer' and 'layers' are mixed; a net uses one of the two");
  EXPECT_EQ(Refusal(R"(input: "a" input_dim: 1)"),
            "t: 1 input_dim for 1 inputs, expected four for each");
  EXPECT_EQ(Refusal(R"(layers { name: "a" })"), "t: layer 'a' has no type");
}

TEST(UpgradeSolver, EnumBecomesName) {
  SolverParameter solver;
  ASSERT_TRUE(ParseText("solver_type: ADADELTA", "s", &solver).ok());
  ASSERT_TRUE(UpgradeSolver("s", &solver).ok());
  EXPECT_EQ(solver.type(), "AdaDelta");
  EXPECT_FALSE(solver.has_solver_type());
  solver.set_solver_type(SolverParameter::SGD);
  EXPECT_EQ(UpgradeSolver("s", &solver).message(),
            "s: 'type' and the older 'solver_type' are both given");
}

}  // namespace
}  // namespace poseidon::caffe
