// SPDX-License-Identifier: Apache-2.0
// Sliding windows: stochastic pooling, and convolutions over more than three axes.
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <utility>

#include "frontends/caffe/layers/max_pooling.h"
#include "tests/shared/gradient_checker.h"

namespace poseidon::caffe {
namespace {

using testing::HasSubstr;

std::string InputOf(const std::string& dims) {
  std::string shape;
  for (const char c : dims) shape += c == 'x' ? std::string(" dim: ") : std::string(1, c);
  return "layer { name: 'in' type: 'Input' top: 'data' input_param { shape { dim: " + shape + " } } }\n";
}
std::string OneOf(const std::string& type, const std::string& options) {
  return "layer { name: 'l' type: '" + type + "' bottom: 'data' top: 'out' " + options + " }\n";
}

// With equal numbers, infinite ones, none and not a number among them.
TEST(Pooling, MaximaAreThoseOfATen) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::array<PaddedWindows, 7> all = {{{{2, 2}, {2, 2}, {0, 0}},
                                             {{3, 3}, {2, 2}, {0, 0}},
                                             {{3, 3}, {1, 1}, {1, 1}},
                                             {{5, 4}, {3, 2}, {2, 1}},
                                             {{2, 5}, {1, 3}, {1, 2}},
                                             {{1, 1}, {4, 5}, {0, 0}},
                                             {{9, 7}, {2, 1}, {4, 3}}}};
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor image = at::zeros({2, 3, 13, 10}, at::TensorOptions().dtype(type));
    FillTestNumbers(image, 1, {-4, 5, /*whole=*/true});
    image[0][0][5].fill_(-kInfinity);
    image[0][1].fill_(-kInfinity);
    image[0][2][3][4] = kInfinity;
    image[1][0][6][2] = std::numeric_limits<double>::quiet_NaN();
    for (const PaddedWindows& windows : all) {
      const auto [top, winner] = at::max_pool2d_with_indices(image, windows.kernel, windows.stride, windows.pad, /*dilation=*/1, true);
      const at::Tensor our_top = at::empty_like(top), our_winner = at::empty_like(winner);
      MaxOfWindows(image, windows, our_top, our_winner);
      EXPECT_TRUE(at::allclose(our_top, top, 0, 0, /*equal_nan=*/true)) << windows.kernel[0];
      EXPECT_TRUE(at::equal(our_winner, winner)) << windows.kernel[0];
    }
  }
}

// A pixel is drawn as often as its share of the window, by the sample and not by who has it.
TEST(Pooling, StochasticDrawsByShare) {
  const auto net_for = [](const std::string& dims, DataShare share, Phase phase) {
    NetOptions options;
    options.seed = 5;
    options.share = share;
    auto net = MakeNet(InputOf(dims) + "layer { name: 'p' type: 'Pooling' bottom: 'data' top: 'out' pooling_param { pool: STOCHASTIC "
                                     "kernel_size: 2 stride: 2 } }",
                       phase, options);
    net->BeginPass({.step = 3, .pass = 0, .batch = 3});
    const at::Tensor planes = net->blob("data")->data.view({-1, 4});
    for (std::int64_t i = 0; i < 4; ++i) planes.select(1, i).fill_(std::array<double, 4>{0, 1, 2, 5}[static_cast<std::size_t>(i)]);
    EXPECT_TRUE(net->Forward().ok());
    return net;
  };
  const auto whole = net_for("300x50x2x2", {0, 1}, TRAIN);
  const at::Tensor& all = whole->blob("out")->data;
  for (const auto& [value, share] : {std::pair{0, 0.0}, {1, 0.125}, {2, 0.25}, {5, 0.625}}) {
    EXPECT_NEAR(all.eq(value).to(at::kDouble).mean().item<double>(), share, 0.015) << value;
  }
  for (int rank = 0; rank < 3; ++rank) {
    const auto part = net_for("100x50x2x2", {rank, 3}, TRAIN);
    EXPECT_TRUE(at::equal(part->blob("out")->data, all.narrow(0, 100 * rank, 100))) << rank;
  }
  const auto tested = net_for("1x1x2x2", {0, 1}, TEST);
  EXPECT_FLOAT_EQ(tested->blob("out")->data.item<float>(), 30.0F / 8);  // (1 + 4 + 25) / (1 + 2 + 5)
  EXPECT_THAT(WhyNoNet(InputOf("1x1x4x4") + OneOf("Pooling", "pooling_param { pool: STOCHASTIC kernel_size: 2 pad: 1 }")),
              HasSubstr("expected no padding with STOCHASTIC"));
  const auto zeros = MakeNet(InputOf("1x1x2x2") + OneOf("Pooling", "pooling_param { pool: STOCHASTIC kernel_size: 2 }"), TEST);
  zeros->blob("data")->data.zero_();
  ASSERT_TRUE(zeros->Forward().ok());
  EXPECT_EQ(zeros->blob("out")->data.item<float>(), 0);
}

// More than three axes take another way; with one of length 1 the result is that of three axes.
TEST(Convolution, FourAxesAgreeWithThree) {
  for (const char* type : {"Convolution", "Deconvolution"}) {
    const std::string options = "num_output: 4 group: 2 weight_filler { type: 'xavier' } bias_filler { type: 'uniform' } ";
    const auto three = MakeNet(InputOf("2x4x4x3x5") + OneOf(type, "convolution_param { " + options +
                                                              "kernel_size: 2 kernel_size: 1 kernel_size: 3 dilation: 2 "
                                                              "dilation: 1 dilation: 1 stride: 2 stride: 1 "
                                                              "stride: 1 pad: 0 pad: 0 pad: 1 }"));
    const auto four = MakeNet(InputOf("2x4x4x3x1x5") + OneOf(type, "convolution_param { " + options +
                                                               "kernel_size: 2 kernel_size: 1 kernel_size: 1 kernel_size: 3 "
                                                               "dilation: 2 dilation: 1 dilation: 1 dilation: 1 "
                                                               "stride: 2 stride: 1 stride: 1 stride: 1 pad: 0 pad: 0 pad: 0 pad: 1 }"));
    for (const auto& net : {three.get(), four.get()}) {
      FillTestNumbers(net->blob("data")->data, 1);
      const auto loss = net->Forward();
      ASSERT_TRUE(loss.ok()) << loss.status().message();
    }
    const at::Tensor& expected = three->blob("out")->data;
    EXPECT_TRUE(at::allclose(four->blob("out")->data.view(expected.sizes()), expected, 1e-5, 1e-6)) << type;
  }
  EXPECT_THAT(WhyNoNet(InputOf("2x3") + OneOf("Convolution", "convolution_param { num_output: 1 kernel_size: 1 }")),
              HasSubstr("has no spatial axis"));
}

// Over other axes than two, Im2col lays out what it does over two.
TEST(Im2col, ThreeAxesAgreeWithTwo) {
  const auto two = MakeNet(InputOf("2x3x5x4") + OneOf("Im2col", "convolution_param { kernel_size: 3 kernel_size: 2 pad: 1 stride: 2 "
                                                               "stride: 1 dilation: 2 dilation: 1 }"));
  const auto three = MakeNet(InputOf("2x3x5x1x4") +
                             OneOf("Im2col", "convolution_param { kernel_size: 3 kernel_size: 1 kernel_size: 2 pad: 1 pad: 0 pad: 1 "
                                             "stride: 2 stride: 1 stride: 1 dilation: 2 dilation: 1 dilation: 1 }"));
  for (const auto& net : {two.get(), three.get()}) {
    FillTestNumbers(net->blob("data")->data, 1);
    ASSERT_TRUE(net->Forward().ok());
  }
  const at::Tensor& expected = two->blob("out")->data;
  EXPECT_TRUE(at::equal(three->blob("out")->data.view(expected.sizes()), expected));
}

}  // namespace
}  // namespace poseidon::caffe
