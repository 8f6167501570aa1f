// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/filler.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <cmath>

#include "frontends/caffe/net/layer.h"
#include "frontends/caffe/proto/read.h"

namespace poseidon::caffe {
namespace {

at::Tensor Filled(const std::string& text, const Shape& shape, std::uint64_t turn = 0,
                  at::ScalarType dtype = at::kDouble) {
  FillerParameter filler;
  EXPECT_TRUE(ParseText(text, "filler", &filler).ok());
  at::Tensor tensor = at::empty(shape, dtype);
  const RandomStream stream(7, RandomPurpose::kFiller, "layer", turn);
  const Status status = Fill(filler, stream, tensor);
  EXPECT_TRUE(status.ok()) << status.message();
  return tensor;
}

std::string Refusal(const std::string& text, const Shape& shape) {
  FillerParameter filler;
  EXPECT_TRUE(ParseText(text, "filler", &filler).ok());
  return Fill(filler, RandomStream(7, RandomPurpose::kFiller, "layer", 0),
              at::empty(shape, at::kDouble))
      .message();
}

struct Moments {
  double mean;
  double deviation;
  double least;
  double most;
};
Moments MomentsOf(const at::Tensor& x) {
  return {x.mean().item<double>(), x.std().item<double>(), x.min().item<double>(),
          x.max().item<double>()};
}

// With n numbers the mean strays by about deviation / sqrt(n), the deviation by about
// deviation / sqrt(2 n) for a normal law; four times that is allowed.
constexpr Shape::value_type kRows = 200;
constexpr Shape::value_type kColumns = 500;
constexpr double kSlack = 4.0 / 316;  // 4 / sqrt(n)

TEST(Filler, Constant) {
  const Moments m = MomentsOf(Filled("type: 'constant' value: 2.5", {3, 4}));
  EXPECT_EQ(m.least, 2.5);
  EXPECT_EQ(m.most, 2.5);
  EXPECT_EQ(MomentsOf(Filled("", {3})).most, 0);
}

TEST(Filler, Uniform) {
  const Moments m = MomentsOf(Filled("type: 'uniform' min: -1 max: 3", {kRows, kColumns}));
  const double deviation = 4 / std::sqrt(12.0);
  EXPECT_NEAR(m.mean, 1, deviation * kSlack);
  EXPECT_NEAR(m.deviation, deviation, deviation * kSlack);
  EXPECT_GE(m.least, -1);
  EXPECT_LT(m.most, 3);
  EXPECT_LT(m.least, -0.999);
  EXPECT_GT(m.most, 2.999);
}

TEST(Filler, Gaussian) {
  const at::Tensor x = Filled("type: 'gaussian' mean: 0.5 std: 2", {kRows, kColumns});
  const Moments m = MomentsOf(x);
  EXPECT_NEAR(m.mean, 0.5, 2 * kSlack);
  EXPECT_NEAR(m.deviation, 2, 2 * kSlack);
  // The share beyond two deviations is 4.55 %.
  const double far = x.sub(0.5).abs().gt(4.0).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(far, 0.0455, 0.003);
  // Neighbours, which share a block, are not correlated.
  const at::Tensor flat = x.sub(0.5).view({-1});
  const std::int64_t n = flat.numel();
  const double along =
      flat.narrow(0, 0, n - 1).mul(flat.narrow(0, 1, n - 1)).mean().item<double>() / 4;
  EXPECT_NEAR(along, 0, kSlack);
}

TEST(Filler, SparseGaussianKeepsAsManyAsAsked) {
  const at::Tensor x = Filled("type: 'gaussian' sparse: 20", {kRows, kColumns});
  const double kept = x.ne(0).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(kept, 20.0 / kRows, 0.004);
}

TEST(Filler, PositiveUnitBall) {
  const at::Tensor x = Filled("type: 'positive_unitball'", {5, 3, 2});
  EXPECT_GE(x.min().item<double>(), 0);
  EXPECT_LT(x.view({5, 6}).sum(at::IntArrayRef{1}).sub(1).abs().max().item<double>(), 1e-12);
}

TEST(Filler, XavierAndMsraCountFansByTheFirstTwoAxes) {
  // Shape 200 x 500: fan-in 500, fan-out 200, mean 350.
  const auto bound = [](const std::string& norm) {
    return MomentsOf(Filled("type: 'xavier'" + norm, {kRows, kColumns})).most;
  };
  EXPECT_NEAR(bound(""), std::sqrt(3.0 / 500), 1e-3 * std::sqrt(3.0 / 500));
  EXPECT_NEAR(bound("variance_norm: FAN_OUT"), std::sqrt(3.0 / 200),
              1e-3 * std::sqrt(3.0 / 200));
  EXPECT_NEAR(bound("variance_norm: AVERAGE"), std::sqrt(3.0 / 350),
              1e-3 * std::sqrt(3.0 / 350));
  const double msra = std::sqrt(2.0 / 500);
  EXPECT_NEAR(MomentsOf(Filled("type: 'msra'", {kRows, kColumns})).deviation, msra, msra * kSlack);
}

TEST(Filler, BilinearIsATent) {
  const at::Tensor x = Filled("type: 'bilinear'", {2, 1, 4, 4});
  const double edge = 0.25;
  EXPECT_DOUBLE_EQ(x[0][0][0][0].item<double>(), edge * edge);
  EXPECT_DOUBLE_EQ(x[1][0][1][2].item<double>(), 0.75 * 0.75);
}

TEST(Filler, SameForBothTypesAndDifferentForEveryBlob) {
  const at::Tensor wide = Filled("type: 'gaussian'", {100}, 0, at::kDouble);
  const at::Tensor narrow = Filled("type: 'gaussian'", {100}, 0, at::kFloat);
  EXPECT_TRUE(at::equal(wide.to(at::kFloat), narrow));
  EXPECT_FALSE(at::equal(wide, Filled("type: 'gaussian'", {100}, 1)));
}

TEST(Filler, SaysWhatItCannotDo) {
  EXPECT_EQ(Refusal("type: 'xaver'", {2}).substr(0, 35), "unknown filler 'xaver', expected co");
  EXPECT_EQ(Refusal("type: 'uniform' sparse: 3", {2}),
            "filler option sparse belongs to gaussian, not to uniform");
  EXPECT_EQ(Refusal("type: 'bilinear'", {2, 1, 3, 4}),
            "the bilinear filler needs four axes and a square kernel");
}

}  // namespace
}  // namespace poseidon::caffe
