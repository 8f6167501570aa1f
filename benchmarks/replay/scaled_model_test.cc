// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/replay/scaled_model.h"

#include <gtest/gtest.h>

namespace poseidon::replay {
namespace {

profile::Profile TwoLayers() {
  profile::Profile profile;
  profile.product_flops = 6e12;
  profile::Layer conv;
  conv.spec = {.name = "conv", .elements = 1'000'000, .forward_position = 0};
  conv.forward_seconds = 0.01;
  conv.backward_seconds = 0.02;
  profile::Layer fc;
  fc.spec = {.name = "fc",
             .elements = 4000 * 9000 + 4000,
             .forward_position = 1,
             .factors = plan::FactorShape{4000, 9000, true}};
  fc.forward_seconds = 0.003;
  fc.backward_seconds = 0.006;
  fc.rows = 64;
  profile.layers = {conv, fc};
  return profile;
}

TEST(Scale, OneChangesNothing) {
  const ScaledModel model = Scale(TwoLayers(), 1);
  EXPECT_EQ(model.layers[1].spec.elements, 4000u * 9000 + 4000);
  EXPECT_EQ(model.layers[1].rows, 64u);
  EXPECT_NEAR(model.step_seconds(), 0.039, 1e-12);
  EXPECT_NEAR(model.layers[1].product_seconds, 2.0 * 64 * 4000 * 9000 / 6e12, 1e-12);
}

TEST(Scale, DenseBytesAndFactorBytesShrinkAlike) {
  const double scale = 16;
  const ScaledModel model = Scale(TwoLayers(), scale);
  EXPECT_EQ(model.layers[0].spec.elements, 62'500u);
  const ScaledLayer& fc = model.layers[1];
  const plan::FactorShape small = *fc.spec.factors;
  EXPECT_NEAR(static_cast<double>(small.outputs * small.inputs) * scale, 4000.0 * 9000, 1e5);
  EXPECT_NEAR(static_cast<double>(fc.rows * small.elements_per_row()) * scale, 64.0 * 13000, 1e3);
}

TEST(Scale, ComputingTakesAsLong) {
  const ScaledModel whole = Scale(TwoLayers(), 1);
  const ScaledModel small = Scale(TwoLayers(), 16);
  EXPECT_EQ(small.step_seconds(), whole.step_seconds());
  EXPECT_EQ(small.layers[1].product_seconds, whole.layers[1].product_seconds);
  const auto charged = [](const ScaledModel& model) {
    const ScaledLayer& fc = model.layers[1];
    return 2.0 * fc.rows * static_cast<double>(fc.spec.factors->outputs * fc.spec.factors->inputs) /
           model.product_flops;
  };
  EXPECT_NEAR(charged(small), charged(whole), 0.001 * charged(whole));
}

TEST(CutIntoPairs, KeepsBytesAndTimes) {
  const ScaledModel model = Scale(TwoLayers(), 1);
  const ScaledModel cut = CutIntoPairs(model, 300'000, {false, true});
  ASSERT_EQ(cut.layers.size(), 5u);
  EXPECT_TRUE(plan::Validate(cut.specs()).ok());
  std::uint64_t elements = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    elements += cut.layers[i].spec.elements;
    EXPECT_LE(cut.layers[i].spec.elements, 300'000u);
  }
  EXPECT_EQ(elements, 1'000'000u);
  EXPECT_NEAR(cut.step_seconds(), model.step_seconds(), 1e-12);
  // The forward pass waits for the first pair; no pair is ready before the whole backward pass.
  EXPECT_EQ(cut.layers[0].forward_seconds, 0.01);
  EXPECT_EQ(cut.layers[3].backward_seconds, 0.02);
  EXPECT_TRUE(cut.layers[4].spec.factors.has_value());
  EXPECT_EQ(cut.layers[4].spec.forward_position, 4u);
}

TEST(CutIntoPairs, FactorLayersMayBeCutToo) {
  const ScaledModel cut = CutIntoPairs(Scale(TwoLayers(), 1), 10'000'000, {false, false});
  ASSERT_EQ(cut.layers.size(), 5u);
  for (const ScaledLayer& layer : cut.layers) EXPECT_FALSE(layer.spec.factors.has_value());
  EXPECT_EQ(cut.layers[4].spec.elements, 6'004'000u);
}

TEST(Scale, NothingVanishes) {
  const ScaledModel model = Scale(TwoLayers(), 1e12);
  EXPECT_EQ(model.layers[0].spec.elements, 1u);
  EXPECT_EQ(model.layers[1].rows, 1u);
  EXPECT_TRUE(plan::Validate(model.specs()).ok());
}

}  // namespace
}  // namespace poseidon::replay
