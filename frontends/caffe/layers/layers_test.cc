// SPDX-License-Identifier: Apache-2.0
// What layers do beyond their gradients: refusals, factors, random draws, corner cases.
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontends/caffe/layers/registry.h"
#include "tests/shared/gradient_checker.h"

namespace poseidon::caffe {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string Input(const std::string& dims) {
  std::string shape;
  for (const char c : dims) shape += c == 'x' ? std::string(" dim: ") : std::string(1, c);
  return "layer { name: 'in' type: 'Input' top: 'data' input_param { shape { dim: " + shape +
         " } } }\n";
}
std::string One(const std::string& type, const std::string& options) {
  return "layer { name: 'l' type: '" + type + "' bottom: 'data' top: 'out' " + options + " }\n";
}
std::string Why(const std::string& dims, const std::string& type, const std::string& options) {
  return WhyNoNet(Input(dims) + One(type, options));
}

TEST(Registry, AnUnknownTypeIsComparedWithTheKnownOnes) {
  EXPECT_EQ(Why("2x3", "InnerProdct", ""), "layer 'l': unknown layer type 'InnerProdct' (did you mean 'InnerProduct'?)");
  EXPECT_EQ(Why("2x3", "RELU", ""), "layer 'l': unknown layer type 'RELU' (did you mean 'ReLU'?)");
  EXPECT_EQ(Why("2x3", "Proposal", ""), "layer 'l': unknown layer type 'Proposal'");
}

TEST(Registry, AllUnknownTypesOfANetAreNamedAtOnce) {
  const auto layer = [](const std::string& name, const std::string& type) {
    return "layer { name: '" + name + "' type: '" + type + "' bottom: 'data' top: '" + name + "' }\n";
  };
  // Before anything else that is wrong with the net: 'roi1' reads what 'score' would make.
  EXPECT_EQ(WhyNoNet(Input("2x3") + layer("roi1", "Correlation") + layer("score", "Nothing") + layer("l", "ReLU") +
                     layer("roi2", "Correlation") + layer("roi3", "Correlation")),
            "layer 'roi1' and 2 others: unknown layer type 'Correlation' of FlowNet; layer 'score': unknown layer type 'Nothing'");
}

TEST(Registry, WhatALayerByItselfIsRefusedForIsNamedWithUnknownTypes) {
  EXPECT_EQ(WhyNoNet(Input("2x3") + "layer { name: 'a' type: 'Nothing' bottom: 'data' top: 'a' }"
                     "layer { name: 'b' type: 'ReLU' bottom: 'a' top: 'b' top: 'c' }"
                     "layer { name: 'd' type: 'InnerProduct' bottom: 'b' top: 'd' inner_product_param { num_output: 2 "
                     "weight_filler { type: 'orthogonal' } bias_filler { type: 'ones' } } }"),
            "layer 'a': unknown layer type 'Nothing'; layer 'b' (ReLU): has 2 tops, expected 1; layer 'd' (InnerProduct): unknown filler "
            "'orthogonal', expected constant, uniform, gaussian, positive_unitball, xavier, msra or bilinear; layer 'd' (InnerProduct): "
            "unknown filler 'ones', expected constant, uniform, gaussian, positive_unitball, xavier, msra or bilinear");
  // A bias that is not there needs no filler.
  EXPECT_EQ(Why("2x3", "InnerProduct", "inner_product_param { num_output: 2 bias_term: false bias_filler { type: 'ones' } }"), "there is such a net");
}

TEST(Layers, AllThatAreRefusedAreNamedAtOnce) {
  const auto layer = [](const std::string& name, const std::string& type, const std::string& bottom, const std::string& options) {
    return "layer { name: '" + name + "' type: '" + type + "' bottom: '" + bottom + "' top: '" + name + "' " + options + "}\n";
  };
  // 'r' and 'd' depend on a layer that is refused: of 'd' the filler is known all the same.
  EXPECT_EQ(WhyNoNet(Input("2x3x4x4") + layer("a", "Convolution", "data", "convolution_param { num_output: 2 kernel_size: 5 } ") +
                     layer("r", "ReLU", "a", "") +
                     layer("d", "InnerProduct", "r", "inner_product_param { num_output: 2 weight_filler { type: 'ones' } } ") +
                     layer("b", "Reshape", "data", "reshape_param { shape { dim: 5 } } ") +
                     layer("c", "Reshape", "data", "reshape_param { shape { dim: 5 } } ")),
            "layer 'a' (Convolution): input of shape 2x3x4x4 is smaller than kernel 5x5 with pad 0x0 and dilation 1x1; layer 'd' (InnerProduct): unknown "
            "filler 'ones', expected constant, uniform, gaussian, positive_unitball, xavier, msra or bilinear; layer 'b' (Reshape) and 1 "
            "other: cannot make 5 of shape 2x3x4x4");
}

TEST(Layers, CountsOfBlobsAreChecked) {
  EXPECT_EQ(WhyNoNet(Input("2x3") + "layer { name: 'l' type: 'Eltwise' bottom: 'data' top: 'o' }"),
            "layer 'l' (Eltwise): has 1 bottoms, expected 2 or more");
  EXPECT_EQ(WhyNoNet(Input("2x3") + "layer { name: 'l' type: 'ReLU' bottom: 'data' top: 'o' "
                                    "top: 'p' }"),
            "layer 'l' (ReLU): has 2 tops, expected 1");
}

TEST(Layers, ShapesThatDoNotFitAreNamed) {
  EXPECT_EQ(WhyNoNet("layer { name: 'in' type: 'Input' top: 'a' top: 'b' input_param { shape { "
                     "dim: 2 dim: 3 } shape { dim: 2 dim: 4 } } }"
                     "layer { name: 'l' type: 'Eltwise' bottom: 'a' bottom: 'b' top: 'o' }"),
            "layer 'l' (Eltwise): bottom 1 has shape 2x4, bottom 0 has 2x3");
  EXPECT_EQ(Why("2x3x4x4", "Convolution", "convolution_param { num_output: 2 kernel_size: 5 }"),
            "layer 'l' (Convolution): input of shape 2x3x4x4 is smaller than kernel 5x5 with pad "
            "0x0 and dilation 1x1");
  EXPECT_EQ(Why("2x3x4x4", "Convolution",
                "convolution_param { num_output: 4 group: 2 kernel_size: 1 }"),
            "layer 'l' (Convolution): group 2 does not divide 3 input and 4 output channels");
}

std::string InPlace(const std::string& type, const std::string& options) {
  return "layer { name: 'in' type: 'Input' top: 'data' top: 'b' input_param { shape { dim: 2 dim: 2 dim: 3 dim: 3 } } }"
         "layer { name: 'l' type: '" +
         type + "' bottom: 'data' top: 'data' " + options + " }";
}

TEST(Layers, InPlaceIsRefusedWhereItWouldBeWrong) {
  const auto why = [](const std::string& type, const std::string& options) {
    return WhyNoNet(InPlace(type, options));
  };
  const std::string other = "bottom: 'b' eltwise_param { ";
  EXPECT_EQ(why("Eltwise", other + "operation: MAX }"),
            "layer 'l' (Eltwise): works in place only as a SUM whose first coeff is 1");
  EXPECT_THAT(why("Eltwise", other + "coeff: 2 coeff: 1 }"), HasSubstr("in place"));
  EXPECT_EQ(why("Flatten", ""), "layer 'l' (Flatten): does not work in place");
  EXPECT_THAT(why("InnerProduct", "inner_product_param { num_output: 2 }"), HasSubstr("in place"));
  EXPECT_THAT(why("Pooling", "pooling_param { kernel_size: 3 stride: 1 pad: 1 }"), HasSubstr("in place"));
  EXPECT_THAT(why("Convolution", "convolution_param { num_output: 2 kernel_size: 3 pad: 1 }"), HasSubstr("in place"));
  EXPECT_THAT(why("Tile", "tile_param { tiles: 2 }"), HasSubstr("in place"));
  EXPECT_THAT(why("Slice", "top: 's'"), HasSubstr("in place"));
  for (const char* type : {"ReLU", "BatchNorm", "Scale", "Bias", "MVN", "Softmax"}) {
    EXPECT_NE(MakeNet(InPlace(type, "")), nullptr) << type;
  }
  EXPECT_NE(MakeNet(InPlace("Eltwise", other + "}")), nullptr);
}

// A normalization that computes the scale above it gives what the two give one after the other.
TEST(BatchNorm, WithItsScaleGivesWhatTheTwoGive) {
  const std::string text =
      Input("4x3x5") +
      "layer { name: 'n' type: 'BatchNorm' bottom: 'data' top: 'x' }"
      "layer { name: 's' type: 'Scale' bottom: 'x' top: 'x' scale_param { bias_term: true filler { type: 'uniform' } } }"
      "layer { name: 'l' type: 'Reduction' bottom: 'x' top: 'out' reduction_param { operation: SUMSQ } loss_weight: 1 }";
  std::vector<std::unique_ptr<Net>> nets;
  for (const bool fuse : {true, false}) {
    nets.push_back(MakeNet("force_backward: true " + text, TRAIN, {.dtype = DType::kF64, .fuse = fuse}));
    FillTestNumbers(nets.back()->blob("data")->data, 7);
    ASSERT_TRUE(nets.back()->Forward().ok());
    ASSERT_TRUE(nets.back()->Backward().ok());
  }
  const auto same = [&](const at::Tensor& a, const at::Tensor& b) { return at::allclose(a, b, 1e-9, 1e-9); };
  EXPECT_TRUE(same(nets[0]->blob("x")->data, nets[1]->blob("x")->data));
  EXPECT_TRUE(same(nets[0]->blob("data")->diff, nets[1]->blob("data")->diff));
  for (const int layer : {1, 2}) {
    for (std::size_t i = 0; i < nets[0]->layer(layer).blobs().size(); ++i) {
      EXPECT_TRUE(same(nets[0]->layer(layer).blobs()[i].data, nets[1]->layer(layer).blobs()[i].data)) << layer << " " << i;
    }
  }
  for (const std::size_t i : {0U, 1U}) EXPECT_TRUE(same(nets[0]->layer(2).blobs()[i].diff, nets[1]->layer(2).blobs()[i].diff)) << i;
}

// Scale's factor comes with the batch, and with it its length.
TEST(Layers, AFactorFromABottomMayChangeItsShape) {
  const auto net = MakeNet(
      "layer { name: 'in' type: 'Input' top: 'x' top: 'w' top: 'keep' input_param { shape { dim: 5 dim: 4 } "
      "shape { dim: 5 } shape { dim: 5 } } }"
      "layer { name: 'f' type: 'Filter' bottom: 'x' bottom: 'w' bottom: 'keep' top: 'fx' top: 'fw' }"
      "layer { name: 'l' type: 'Scale' bottom: 'fx' bottom: 'fw' top: 'out' scale_param { axis: 0 } }");
  for (const char* name : {"x", "w"}) FillTestNumbers(net->blob(name)->data, 1);
  for (std::int64_t i = 0; i < 5; ++i) net->blob("keep")->data[i].fill_(i % 2 == 0 ? 1 : 0);
  const auto loss = net->Forward();
  ASSERT_TRUE(loss.ok()) << loss.status().message();
  EXPECT_EQ(net->blob("out")->shape(), (Shape{3, 4}));
  EXPECT_TRUE(at::allclose(net->blob("out")->data[2], net->blob("x")->data[4].mul(net->blob("w")->data[4])));
}

TEST(Layers, SppTakesABatchWithoutImages) {
  const auto net = MakeNet(Input("0x2x4x4") + One("SPP", "spp_param { pyramid_height: 2 }"));
  const auto loss = net->Forward();
  ASSERT_TRUE(loss.ok()) << loss.status().message();
  EXPECT_EQ(net->blob("out")->shape(), (Shape{0, 10}));
}

TEST(Layers, UnknownFillerNamesTheLayer) {
  EXPECT_THAT(Why("2x3", "InnerProduct",
                  "inner_product_param { num_output: 2 weight_filler { type: 'xaver' } }"),
              StartsWith("layer 'l' (InnerProduct): unknown filler 'xaver'"));
}

TEST(Pooling, WindowsThatHoldNothingAreRefused) {
  EXPECT_THAT(Why("1x1x5x5", "Pooling", "pooling_param { kernel_size: 1 stride: 4 }"),
              StartsWith("there is such a net"));
  EXPECT_EQ(Why("1x1x7x7", "Pooling", "pooling_param { kernel_size: 1 stride: 4 }"),
            "layer 'l' (Pooling): the last window starts outside the input of shape 1x1x7x7 "
            "(kernel 1x1, stride 4x4), so it holds nothing; round_mode: FLOOR or a smaller stride "
            "avoids it");
  EXPECT_THAT(Why("1x1x7x7", "Pooling",
                  "pooling_param { kernel_size: 1 stride: 4 round_mode: FLOOR }"),
              StartsWith("there is such a net"));
  EXPECT_THAT(Why("1x1x7x7", "Pooling", "pooling_param { kernel_size: 2 pad: 2 }"),
              HasSubstr("pad 2x2 must be smaller than kernel 2x2"));
}

TEST(Pooling, SizesFollowCaffesRules) {
  const auto shape = [](const std::string& dims, const std::string& options) {
    return MakeNet(Input(dims) + One("Pooling", "pooling_param { " + options + " }"))->blob("out")->shape();
  };
  EXPECT_EQ(shape("1x1x2x2", "kernel_size: 3 stride: 2"), (Shape{1, 1, 1, 1}));
  EXPECT_EQ(shape("1x1x7x7", "kernel_h: 3 kernel_w: 1 stride_h: 1 stride_w: 4 pad_h: 1 pad_w: 0"),
            (Shape{1, 1, 7, 2}));
  const auto why = [](const std::string& options) {
    return Why("1x1x2x2", "Pooling", "pooling_param { " + options + " }");
  };
  EXPECT_THAT(why("kernel_size: 3 stride: 1"), HasSubstr("is smaller than kernel"));
  EXPECT_THAT(why("kernel_size: 3 stride: 2 round_mode: FLOOR"), HasSubstr("is smaller than kernel"));
  EXPECT_THAT(why("kernel_size: 2 pad: 1 pad_h: 1"), HasSubstr("needs either pad, or pad_h and pad_w"));
  EXPECT_THAT(why("kernel_size: 2 pad_h: 1"), HasSubstr("needs either pad"));
  EXPECT_THAT(why("kernel_size: 2 stride: 1 stride_h: 1 stride_w: 1"), HasSubstr("needs either stride"));
}

// Padding of more than half a window takes another way through ATen; the second top still counts
// positions in the image without padding.
TEST(Pooling, ForksSayCeilMode) {
  const auto width = [](const std::string& options) {
    return MakeNet(Input("1x1x6x6") + One("Pooling", "pooling_param { kernel_size: 3 stride: 2 " + options + " }"))
        ->blob("out")
        ->data.size(3);
  };
  EXPECT_EQ(width(""), 3);
  EXPECT_EQ(width("ceil_mode: true"), 3);
  EXPECT_EQ(width("ceil_mode: false"), 2);
  EXPECT_EQ(width("ceil_mode: false round_mode: FLOOR"), 2);
  EXPECT_THAT(Why("1x1x6x6", "Pooling", "pooling_param { kernel_size: 3 ceil_mode: true round_mode: FLOOR }"),
              HasSubstr("contradict"));
}

TEST(Layers, EnginesOfForksAreNotLookedAt) {
  MakeNet("engine: 'MKL2017'" + Input("2x4x5x5") +
          One("Convolution", "engine: 'MKLDNN' convolution_param { num_output: 2 kernel_size: 3 engine: MKL2017 }"));
  for (const char* layer : {"'Pooling' pooling_param { kernel_size: 2 engine: MKLDNN }",
                            "'ReLU' relu_param { engine: MKLDNN }",
                            "'BatchNorm' batch_norm_param { engine: MKL2017 }",
                            "'Concat' concat_param { engine: MKL2017 }",
                            "'Eltwise' bottom: 'data' eltwise_param { engine: MKL2017 }",
                            "'InnerProduct' inner_product_param { num_output: 2 engine: MKL2017 }",
                            "'Dropout' dropout_param { engine: CAFFE }", "'LRN' lrn_param { engine: MKL2017 }"}) {
    MakeNet(Input("2x4x5x5") + "layer { name: 'l' bottom: 'data' top: 'out' type: " + layer + " }");
  }
}

TEST(Convolution, DepthwiseIsAGroupForEveryChannel) {
  const std::string same = "kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } bias_filler { type: 'uniform' }";
  const auto plain =
      MakeNet(Input("2x4x5x5") + One("Convolution", "convolution_param { num_output: 8 group: 4 " + same + " }"));
  FillTestNumbers(plain->blob("data")->data, 1);
  ASSERT_TRUE(plain->Forward().ok());
  for (const char* type : {"ConvolutionDepthwise", "DepthwiseConvolution"}) {
    for (const char* group : {"", "group: 4 "}) {
      const auto net =
          MakeNet(Input("2x4x5x5") + One(type, "convolution_param { num_output: 8 " + (group + same) + " }"));
      EXPECT_EQ(net->layer(1).blobs()[0].shape(), (Shape{8, 1, 3, 3}));
      FillTestNumbers(net->blob("data")->data, 1);
      ASSERT_TRUE(net->Forward().ok());
      EXPECT_TRUE(at::equal(net->blob("out")->data, plain->blob("out")->data)) << type;
    }
    EXPECT_THAT(Why("2x4x5x5", type, "convolution_param { num_output: 8 group: 2 " + same + " }"),
                HasSubstr("group is 2, expected none or the 4 channels"));
  }
}

TEST(Pooling, MaximaAreCountedInTheImage) {
  const auto net = MakeNet(Input("1x1x3x3") +
                           "layer { name: 'l' type: 'Pooling' bottom: 'data' top: 'out' top: "
                           "'where' pooling_param { kernel_size: 3 stride: 2 pad: 2 } }");
  for (std::int64_t i = 0; i < 9; ++i) net->blob("data")->data.view({-1})[i].fill_(-1 - i);
  ASSERT_TRUE(net->Forward().ok());
  const auto at = [&](const char* blob, std::int64_t i) {
    return net->blob(blob)->data.view({-1})[i].item<float>();
  };
  // Windows start at -2, 0 and 2: the largest number of each is the first one in the image.
  ASSERT_EQ(net->blob("out")->shape(), (Shape{1, 1, 3, 3}));
  EXPECT_EQ(at("out", 0), -1);
  EXPECT_EQ(at("where", 0), 0);
  EXPECT_EQ(at("out", 4), -1);
  EXPECT_EQ(at("out", 8), -9);
  EXPECT_EQ(at("where", 8), 8);
  EXPECT_EQ(at("where", 2), 2);
  EXPECT_EQ(at("where", 6), 6);
}

TEST(SoftmaxWithLoss, LabelsOutsideTheClassesAreNamed) {
  const auto net = MakeNet("layer { name: 'in' type: 'Input' top: 'x' top: 'y' input_param { shape "
                           "{ dim: 2 dim: 3 } shape { dim: 2 } } }"
                           "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'x' bottom: 'y' "
                           "top: 'l' }");
  net->blob("y")->data.fill_(3);
  EXPECT_EQ(net->Forward().status().message(),
            "layer 'loss' (SoftmaxWithLoss): label 3 is not among the 3 classes (row 0 of the batch)");
}

// --- Random draws --------------------------------------------------------------------------------

std::unique_ptr<Net> DropoutNet(const std::string& dims, DataShare share, std::uint64_t batch,
                                const std::string& name = "drop", Phase phase = TRAIN) {
  NetOptions options;
  options.seed = 5;
  options.share = share;
  auto net = MakeNet(Input(dims) + "layer { name: '" + name +
                         "' type: 'Dropout' bottom: 'data' top: 'out' "
                         "dropout_param { dropout_ratio: 0.4 } }",
                     phase, options);
  net->BeginPass({.step = batch, .pass = 0, .batch = batch});
  net->blob("data")->data.fill_(1);
  EXPECT_TRUE(net->Forward().ok());
  return net;
}

TEST(Dropout, WorkersDrawTogetherWhatOneWorkerDraws) {
  const auto whole = DropoutNet("6x5x3", {0, 1}, 9);
  const at::Tensor& all = whole->blob("out")->data;
  for (int rank = 0; rank < 3; ++rank) {
    const auto part = DropoutNet("2x5x3", {rank, 3}, 9);
    EXPECT_TRUE(at::equal(part->blob("out")->data, all.narrow(0, 2 * rank, 2))) << rank;
  }
  EXPECT_FALSE(at::equal(all, DropoutNet("6x5x3", {0, 1}, 10)->blob("out")->data));
  EXPECT_FALSE(at::equal(all, DropoutNet("6x5x3", {0, 1}, 9, "other")->blob("out")->data));
  EXPECT_TRUE(at::equal(all, DropoutNet("6x5x3", {0, 1}, 9)->blob("out")->data));
}

TEST(Dropout, KeepsTheExpectedShareAndScalesIt) {
  const auto net = DropoutNet("100x500", {0, 1}, 0);
  const at::Tensor& out = net->blob("out")->data;
  EXPECT_NEAR(out.ne(0).to(at::kDouble).mean().item<double>(), 0.6, 0.01);
  EXPECT_FLOAT_EQ(out.max().item<float>(), 1 / 0.6F);
}

TEST(Dropout, DoesNothingInTests) {
  const auto net = DropoutNet("10x50", {0, 1}, 0, "drop", TEST);
  EXPECT_TRUE(at::equal(net->blob("out")->data, net->blob("data")->data));
}

TEST(DummyData, ConstantsStayAndRandomOnesChange) {
  const auto net = MakeNet("layer { name: 'd' type: 'DummyData' top: 'c' top: 'r' dummy_data_param {"
                           " shape { dim: 2 dim: 3 } data_filler { value: 4 } data_filler { type: "
                           "'gaussian' } } }");
  ASSERT_TRUE(net->Forward().ok());
  const at::Tensor first = net->blob("r")->data.clone();
  net->BeginPass({.step = 1, .pass = 0, .batch = 1});
  ASSERT_TRUE(net->Forward().ok());
  EXPECT_FALSE(at::equal(first, net->blob("r")->data));
  EXPECT_EQ(net->blob("c")->data.min().item<float>(), 4);
  EXPECT_THAT(WhyNoNet("layer { name: 'd' type: 'DummyData' top: 'a' top: 'b' top: 'c' "
                       "dummy_data_param { shape { dim: 2 } shape { dim: 2 } } }"),
              HasSubstr("has 2 shapes, expected one or one for each of the 3 tops"));
}

// --- Factors -------------------------------------------------------------------------------------

const char kFactorNet[] = R"(
  layer { name: 'in' type: 'Input' top: 'data' input_param { shape { dim: 5 dim: 2 dim: 3 } } }
  layer { name: 'low' type: 'InnerProduct' bottom: 'data' top: 'low'
          inner_product_param { num_output: 6 weight_filler { type: 'xavier' } } }
  layer { name: 'r0' type: 'ReLU' bottom: 'low' top: 'low' }
  layer { name: 'ip' type: 'InnerProduct' bottom: 'low' top: 'ip'
          inner_product_param { num_output: 4 weight_filler { type: 'xavier' }
                                bias_filler { type: 'uniform' } } }
  layer { name: 'r1' type: 'ReLU' bottom: 'ip' top: 'ip' }
  layer { name: 'sum' type: 'Reduction' bottom: 'ip' top: 'loss' loss_weight: 1
          reduction_param { operation: SUMSQ } })";

TEST(Factors, TheirProductIsTheGradient) {
  NetOptions options;
  options.dtype = DType::kF64;
  const auto dense = MakeNet(kFactorNet, TRAIN, options);
  const auto factored = MakeNet(kFactorNet, TRAIN, options);
  const int ip = factored->LayerIndex("ip");
  FactorSource* source = factored->layer(ip).factors();
  ASSERT_NE(source, nullptr);
  EXPECT_TRUE(source->FactorCapable());
  EXPECT_EQ(source->K(), 5);
  EXPECT_EQ(source->M(), 4);
  EXPECT_EQ(source->N(), 6);
  EXPECT_TRUE(source->has_bias());
  source->CaptureFactors(true);
  const at::Tensor untouched = factored->layer_params(ip).diff.fill_(7);

  for (std::uint64_t pass = 0; pass < 2; ++pass) {
    FillTestNumbers(dense->blob("data")->data, pass);
    FillTestNumbers(factored->blob("data")->data, pass);
    ASSERT_TRUE(dense->Forward().ok() && dense->Backward().ok());
    ASSERT_TRUE(factored->Forward().ok() && factored->Backward().ok());
  }
  const std::vector<FactorPair> factors = source->TakeFactors();
  ASSERT_EQ(factors.size(), 2U);
  at::Tensor weight;
  at::Tensor bias;
  for (const FactorPair& pair : factors) {
    ASSERT_EQ(pair.u.sizes(), (at::IntArrayRef{5, 4}));
    ASSERT_EQ(pair.v.sizes(), (at::IntArrayRef{5, 6}));
    EXPECT_TRUE(pair.u.is_contiguous() && pair.v.is_contiguous());
    const at::Tensor product = pair.u.t().matmul(pair.v);
    weight = weight.defined() ? weight.add(product) : product;
    const at::Tensor columns = pair.u.sum(at::IntArrayRef{0});
    bias = bias.defined() ? bias.add(columns) : columns;
  }
  EXPECT_TRUE(at::allclose(weight, dense->layer(ip).blobs()[0].diff, 1e-12, 1e-12));
  EXPECT_TRUE(at::allclose(bias, dense->layer(ip).blobs()[1].diff, 1e-12, 1e-12));
  EXPECT_EQ(untouched.sub(7).abs().max().item<double>(), 0) << "the diff was written";
  const int low = factored->LayerIndex("low");
  EXPECT_TRUE(at::equal(factored->layer_params(low).diff, dense->layer_params(low).diff))
      << "the layers below see another gradient";
  EXPECT_TRUE(source->TakeFactors().empty());
}

// The next pass runs, in place and over the same blobs, while the factors are still being sent.
TEST(Factors, ArePrivate) {
  const auto net = MakeNet(kFactorNet);
  FactorSource* source = net->layer(net->LayerIndex("ip")).factors();
  source->CaptureFactors(true);
  FillTestNumbers(net->blob("data")->data, 1);
  ASSERT_TRUE(net->Forward().ok() && net->Backward().ok());
  const std::vector<FactorPair> factors = source->TakeFactors();
  const at::Tensor u = factors[0].u.clone();
  const at::Tensor v = factors[0].v.clone();
  FillTestNumbers(net->blob("data")->data, 2);
  ASSERT_TRUE(net->Forward().ok() && net->Backward().ok());
  EXPECT_TRUE(at::equal(u, factors[0].u));
  EXPECT_TRUE(at::equal(v, factors[0].v));
}

TEST(Factors, OnlyWhereTheProductIsTheWholeGradient) {
  const auto capable = [](const std::string& params, const std::string& options) {
    const auto net = MakeNet(
        Input("2x3") + "layer { name: 'l' type: 'InnerProduct' bottom: 'data' top: 'out' " +
        params + " inner_product_param { num_output: 3 " + options + " } }" +
        "layer { name: 'm' type: 'InnerProduct' bottom: 'out' top: 'o2' param { name: 'w' } "
        "inner_product_param { num_output: 3 bias_term: false } }");
    return net->layer(net->LayerIndex("l")).factors()->FactorCapable();
  };
  EXPECT_TRUE(capable("", ""));
  EXPECT_TRUE(capable("", "bias_term: false"));
  EXPECT_FALSE(capable("", "transpose: true"));
  EXPECT_FALSE(capable("param { name: 'w' }", "")) << "shared";
  EXPECT_FALSE(capable("param { lr_mult: 0 }", "")) << "frozen";
  EXPECT_FALSE(capable("param { lr_mult: 1 } param { lr_mult: 0 }", "")) << "frozen bias";
  const auto net = MakeNet(Input("2x3") + One("ReLU", ""));
  EXPECT_EQ(net->layer(1).factors(), nullptr);
}

}  // namespace
}  // namespace poseidon::caffe
