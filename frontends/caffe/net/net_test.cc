// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/net.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontends/caffe/net/debug_lines.h"
#include "frontends/caffe/proto/read.h"
#include "tests/shared/gradient_checker.h"

namespace poseidon::caffe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const char kInput[] = R"(
  layer { name: 'in' type: 'Input' top: 'data' top: 'label'
          input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } })";

std::string Ip(const std::string& name, const std::string& bottom, int outputs,
               const std::string& params = "") {
  return "layer { name: '" + name + "' type: 'InnerProduct' bottom: '" + bottom + "' top: '" +
         name + "' " + params + " inner_product_param { num_output: " + std::to_string(outputs) +
         " weight_filler { type: 'xavier' } bias_filler { type: 'uniform' } } }\n";
}
const char kLoss[] =
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'b' bottom: 'label' top: 'loss' }\n";

std::unique_ptr<Net> TwoLayers(const std::string& params_a = "", const std::string& params_b = "") {
  auto net = MakeNet(kInput + Ip("a", "data", 5, params_a) +
                     "layer { name: 'r' type: 'ReLU' bottom: 'a' top: 'a' }" +
                     Ip("b", "a", 3, params_b) + kLoss);
  FillTestNumbers(net->blob("data")->data, 1);
  FillTestNumbers(net->blob("label")->data, 2, {0, 3, true});
  return net;
}

void Pass(Net* net) {
  ASSERT_TRUE(net->Forward().ok());
  const Status status = net->Backward();
  ASSERT_TRUE(status.ok()) << status.message();
}

// --- Memory --------------------------------------------------------------------------------------

TEST(Net, BlobsOfALayerAreOneVector) {
  const auto net = TwoLayers();
  const int a = net->LayerIndex("a");
  const LayerParams params = net->layer_params(a);
  EXPECT_EQ(params.data.sizes(), (at::IntArrayRef{5 * 3 + 5}));
  EXPECT_EQ(params.diff.sizes(), params.data.sizes());
  EXPECT_TRUE(params.data.is_contiguous());
  const auto& blobs = net->layer(a).blobs();
  EXPECT_EQ(blobs[0].data.data_ptr(), params.data.data_ptr());
  EXPECT_EQ(blobs[1].data.data_ptr(), params.data.narrow(0, 15, 5).data_ptr());
  EXPECT_EQ(blobs[1].diff.data_ptr(), params.diff.narrow(0, 15, 5).data_ptr());
  ASSERT_EQ(net->learnable_params().size(), 4U);
  EXPECT_EQ(net->learnable_params()[1].blob.diff.data_ptr(), blobs[1].diff.data_ptr());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(params.data.data_ptr()) % 64, 0U);
  EXPECT_FALSE(net->layer_params(net->LayerIndex("loss")).data.defined());
  Pass(net.get());
  EXPECT_EQ(net->layer_params(a).diff.data_ptr(), params.diff.data_ptr());
}

TEST(Net, PassesAddUntilTheDiffsAreCleared) {
  const auto net = TwoLayers();
  const at::Tensor diff = net->layer_params(net->LayerIndex("a")).diff.fill_(1e6);
  net->ClearParamDiffs();
  Pass(net.get());
  const at::Tensor once = diff.clone();
  EXPECT_LT(once.abs().max().item<float>(), 1e3) << "the old numbers are still there";
  Pass(net.get());
  // A product that adds to what is there rounds otherwise than the sum of two products.
  EXPECT_LE(diff.sub(once.mul(2)).abs().max().item<float>(),
            1e-6F * once.abs().max().item<float>());
  net->ClearParamDiffs();
  Pass(net.get());
  EXPECT_TRUE(at::equal(diff, once));
}

TEST(Net, WhatGetsNoGradientReadsZero) {
  const auto net = TwoLayers("param { lr_mult: 0 }");
  net->layer_params(net->LayerIndex("a")).diff.fill_(5);
  net->ClearParamDiffs();
  Pass(net.get());
  const auto& blobs = net->layer(net->LayerIndex("a")).blobs();
  EXPECT_EQ(blobs[0].diff.abs().max().item<float>(), 0);
  EXPECT_NE(blobs[1].diff.abs().max().item<float>(), 0);
}

// --- Who runs backward ---------------------------------------------------------------------------

TEST(Net, BackwardReachesWhatIsTrainedOnly) {
  const auto both = TwoLayers();
  EXPECT_TRUE(both->needs_backward(both->LayerIndex("a")));
  const auto upper = TwoLayers("param { lr_mult: 0 } param { lr_mult: 0 }");
  EXPECT_FALSE(upper->needs_backward(upper->LayerIndex("a")));
  EXPECT_FALSE(upper->needs_backward(upper->LayerIndex("r")));
  EXPECT_TRUE(upper->needs_backward(upper->LayerIndex("b")));
  Pass(upper.get());
  EXPECT_FALSE(upper->blob("a")->diff.defined());
}

TEST(Net, PropagateDownCutsTheGradient) {
  const auto net = MakeNet(kInput + Ip("a", "data", 5) +
                           "layer { name: 'b' type: 'InnerProduct' bottom: 'a' top: 'b' "
                           "propagate_down: false inner_product_param { num_output: 3 } }" +
                           kLoss);
  EXPECT_FALSE(net->needs_backward(net->LayerIndex("a")));
  EXPECT_TRUE(net->needs_backward(net->LayerIndex("b")));
}

TEST(Net, OutputsAreTheUnreadBlobsInAlphabeticalOrder) {
  const auto net = MakeNet(kInput + Ip("z", "data", 2) + Ip("c", "data", 2) +
                           "layer { name: 's' type: 'Silence' bottom: 'label' }");
  ASSERT_EQ(net->outputs().size(), 2U);
  EXPECT_EQ(net->outputs()[0].name, "c");
  EXPECT_EQ(net->outputs()[1].name, "z");
}

TEST(Net, LossIsTheWeightedSumOfTops) {
  const auto net = MakeNet(kInput + Ip("a", "data", 2, "loss_weight: 3") +
                           "layer { name: 's' type: 'Silence' bottom: 'label' }");
  net->blob("data")->data.fill_(1);
  const auto loss = net->Forward();
  ASSERT_TRUE(loss.ok());
  EXPECT_FLOAT_EQ(static_cast<float>(*loss), 3 * net->blob("a")->data.sum().item<float>());
  ASSERT_TRUE(net->Backward().ok());
  EXPECT_EQ(net->layer(net->LayerIndex("a")).blobs()[1].diff.min().item<float>(), 12);
}

TEST(Net, AGradientThroughAccuracyIsRefused) {
  EXPECT_EQ(WhyNoNet(kInput + Ip("a", "data", 2) +
                     "layer { name: 'arg' type: 'ArgMax' bottom: 'a' top: 'm' }"
                     "layer { name: 'l' type: 'Reduction' bottom: 'm' top: 'l' loss_weight: 1 }"),
            "layer 'arg' (ArgMax): this layer has no gradient, but a loss depends on learned "
            "weights through it");
}

// --- Hooks ---------------------------------------------------------------------------------------

TEST(Net, HooksSurroundEveryLayerInOrder) {
  const auto net = TwoLayers();
  std::vector<int> before;
  std::vector<int> after;
  NetHooks hooks;
  hooks.before_forward = [&](int layer) {
    before.push_back(layer);
    return OkStatus();
  };
  hooks.after_backward = [&](int layer) {
    after.push_back(layer);
    return OkStatus();
  };
  ASSERT_TRUE(net->Forward(hooks).ok());
  ASSERT_TRUE(net->Backward(hooks).ok());
  EXPECT_THAT(before, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(after, ElementsAre(4, 3, 2, 1, 0));
  hooks.after_backward = [](int layer) {
    return layer == 3 ? Unavailable("the peer is gone") : OkStatus();
  };
  EXPECT_EQ(net->Backward(hooks).message(), "the peer is gone");
}

TEST(Net, ALossWeightIsTheGradientOfEveryPassAlsoInPlace) {
  const auto net = MakeNet(kInput + Ip("b", "data", 3) +
                           "layer { name: 's' type: 'Power' bottom: 'b' top: 'b' loss_weight: 2 "
                           "power_param { scale: 3 } }"
                           "layer { name: 'q' type: 'Silence' bottom: 'label' }");
  FillTestNumbers(net->blob("data")->data, 1);
  Pass(net.get());
  const at::Tensor once = net->layer_params(1).diff.clone();
  EXPECT_EQ(once[-1].item<float>(), 4 * 2 * 3) << "a bias: rows times weight times scale";
  net->ClearParamDiffs();
  Pass(net.get());
  EXPECT_TRUE(at::equal(once, net->layer_params(1).diff));
}

// --- Sharing within a net ------------------------------------------------------------------------

TEST(Net, SharedParametersHaveOneOwnerAndOneGradient) {
  const std::string share = "param { name: 'w' } param { name: 'v' }";
  const auto net = MakeNet(kInput + Ip("a", "data", 3, share) + Ip("b", "a", 3, share) + kLoss);
  FillTestNumbers(net->blob("data")->data, 1);
  ASSERT_EQ(net->learnable_params().size(), 2U);
  EXPECT_FALSE(net->layer_params(net->LayerIndex("b")).data.defined());
  const auto& owner = net->layer(net->LayerIndex("a")).blobs()[0];
  Pass(net.get());
  const auto& user = net->layer(net->LayerIndex("b")).blobs()[0];
  EXPECT_EQ(owner.data.data_ptr(), user.data.data_ptr());
  EXPECT_EQ(owner.diff.data_ptr(), user.diff.data_ptr());
  const at::Tensor once = owner.diff.clone();
  net->ClearParamDiffs();
  Pass(net.get());
  EXPECT_TRUE(at::equal(once, owner.diff));
}

TEST(Net, SharingIsCheckedByModeAndMultipliers) {
  const auto why = [](const std::string& a, const std::string& b) {
    return WhyNoNet(kInput + Ip("a", "data", 2, a) + Ip("b", "a", 3, b) + kLoss);
  };
  EXPECT_EQ(why("param { name: 'w' }", "param { name: 'w' }"),
            "layer 'b' (InnerProduct): shares parameter 'w' with layer 'a', but its shape is 3x2 "
            "and there it is 2x3");
  EXPECT_EQ(why("param { name: 'w' }", "param { name: 'w' share_mode: PERMISSIVE }"),
            "there is such a net");
  const std::string loose = "param { name: 'w' share_mode: PERMISSIVE ";
  EXPECT_EQ(why("param { name: 'w' lr_mult: 1 }", loose + "lr_mult: 2 }"),
            "layer 'b' (InnerProduct): shares parameter 'w' with layer 'a', but their lr_mult "
            "differ");
  EXPECT_EQ(why("param { name: 'w' decay_mult: 1 }", loose + "decay_mult: 0 }"),
            "layer 'b' (InnerProduct): shares parameter 'w' with layer 'a', but their decay_mult "
            "differ");
  EXPECT_EQ(why("param { name: 'w' }", loose + "lr_mult: 2 }"), "there is such a net");
}

TEST(Net, JoinedDiffsLieInOnePieceAndKeepTheirNumbers) {
  const std::string shared = "param { name: 'w' } param { name: 'v' }";
  const auto make = [&] {
    auto net = MakeNet(kInput + Ip("a", "data", 3, shared) + Ip("c", "a", 5) + Ip("d", "c", 3) +
                       Ip("b", "d", 3, shared) + kLoss);
    FillTestNumbers(net->blob("data")->data, 1);
    FillTestNumbers(net->blob("label")->data, 2, {0, 3, true});
    return net;
  };
  const auto alone = make();
  const auto net = make();
  Pass(alone.get());
  Pass(net.get());
  const int a = net->LayerIndex("a"), b = net->LayerIndex("b"), d = net->LayerIndex("d");
  const std::vector<int> joined = {a, d};
  const at::Tensor flat = net->JoinParamDiffs(joined);
  ASSERT_EQ(flat.sizes(), (at::IntArrayRef{16 + 18})) << "12 numbers and room to 64 bytes, then 18";
  EXPECT_TRUE(flat.is_contiguous());
  EXPECT_EQ(net->layer_params(a).diff.data_ptr(), flat.data_ptr());
  EXPECT_EQ(net->layer_params(d).diff.data_ptr(), flat.narrow(0, 16, 18).data_ptr());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(net->layer_params(d).diff.data_ptr()) % 64, 0U);
  for (int blob = 0; blob < 2; ++blob) {
    const auto at = static_cast<std::size_t>(blob);
    EXPECT_EQ(net->learnable_params()[at].blob.diff.data_ptr(), net->layer(a).blobs()[at].diff.data_ptr());
    EXPECT_EQ(net->layer(b).blobs()[at].diff.data_ptr(), net->layer(a).blobs()[at].diff.data_ptr());
  }
  const auto equal_gradients = [&] {
    for (std::size_t i = 0; i < net->learnable_params().size(); ++i) {
      EXPECT_TRUE(at::equal(net->learnable_params()[i].blob.diff, alone->learnable_params()[i].blob.diff)) << i;
    }
    EXPECT_EQ(net->ToProto(/*diffs=*/true).SerializeAsString(), alone->ToProto(/*diffs=*/true).SerializeAsString());
  };
  equal_gradients();
  for (Net* const one : {net.get(), alone.get()}) {
    FillTestNumbers(one->blob("data")->data, 3);
    one->ClearParamDiffs();
    Pass(one);
    Pass(one);
  }
  equal_gradients();
  EXPECT_TRUE(at::equal(flat.narrow(0, 12, 4), at::zeros({4})));
}

// --- Sharing between nets, loading and saving ----------------------------------------------------

TEST(Net, ATestNetUsesTheWeightsOfTheTrainNet) {
  const auto train = TwoLayers();
  NetOptions options;
  options.parameters_from = train.get();
  const std::string text = kInput + Ip("a", "data", 5) +
                           "layer { name: 'r' type: 'ReLU' bottom: 'a' top: 'a' }" +
                           Ip("b", "a", 3) + kLoss;
  const auto test = MakeNet(text, TEST, options);
  options = {};
  options.seed = 99;
  const auto later = MakeNet(text, TEST, options);
  EXPECT_FALSE(at::equal(train->layer_params(1).data, later->layer_params(1).data));
  ASSERT_TRUE(later->ShareParametersWith(*train).ok());
  for (const Net* net : {test.get(), later.get()}) {
    const int a = net->LayerIndex("a");
    EXPECT_EQ(net->layer(a).blobs()[1].data.data_ptr(),
              train->layer(a).blobs()[1].data.data_ptr());
  }
  EXPECT_EQ(later->layer_params(1).data.data_ptr(), train->layer_params(1).data.data_ptr());
  const auto other = MakeNet(kInput + Ip("a", "data", 6) +
                             "layer { name: 's' type: 'Silence' bottom: 'label' }");
  EXPECT_EQ(other->ShareParametersWith(*train).message(),
            "layer 'a' (InnerProduct): blob 0 has shape 6x3, in the layer it shares with it is "
            "5x3");
}

TEST(Net, SavedWeightsComeBack) {
  const auto from = TwoLayers();
  NetOptions options;
  options.seed = 99;
  const auto to = MakeNet(kInput + Ip("a", "data", 5) + Ip("extra", "data", 2) + Ip("b", "a", 3) +
                              kLoss,
                          TRAIN, options);
  NetParameter saved;
  ASSERT_TRUE(ParseBinary(from->ToProto().SerializeAsString(), "x", &saved).ok());
  EXPECT_FALSE(at::equal(to->layer(to->LayerIndex("b")).blobs()[0].data,
                         from->layer(from->LayerIndex("b")).blobs()[0].data));
  ASSERT_TRUE(to->CopyFrom(saved, "x.caffemodel").ok());
  for (const char* name : {"a", "b"}) {
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(at::equal(to->layer(to->LayerIndex(name)).blobs()[i].data,
                            from->layer(from->LayerIndex(name)).blobs()[i].data));
    }
  }
}

NetParameter Saved(const std::string& text) {
  NetParameter net;
  EXPECT_TRUE(ParseText(text, "t", &net).ok());
  return net;
}

TEST(Net, OldFourDimensionsFitWhenPaddedWithOnes) {
  const auto net = MakeNet(kInput + Ip("a", "data", 2) +
                           "layer { name: 's' type: 'Silence' bottom: 'label' }");
  const auto status = net->CopyFrom(
      Saved("layer { name: 'a' blobs { num: 1 channels: 1 height: 2 width: 3 data: [1, 2, 3, 4, 5, "
            "6] } blobs { num: 1 channels: 1 height: 1 width: 2 double_data: [7, 8] } }"
            "layer { name: 'gone' blobs { } }"),
      "old");
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(net->layer(1).blobs()[0].data[1][0].item<float>(), 4);
  EXPECT_EQ(net->layer(1).blobs()[1].data[1].item<float>(), 8);
}

TEST(Net, WeightsThatDoNotFitAreNamed) {
  const auto net = MakeNet(kInput + Ip("a", "data", 2) +
                           "layer { name: 's' type: 'Silence' bottom: 'label' }");
  const std::string anew = "; to learn the layer anew, give it another name in the net";
  const auto why = [&](const std::string& text) {
    return net->CopyFrom(Saved(text), "f").message();
  };
  EXPECT_EQ(why("layer { name: 'a' blobs { shape { dim: 2 dim: 4 } } blobs {} }"),
            "f: layer 'a' blob 0 has shape 2x4, the net's is 2x3" + anew);
  EXPECT_EQ(why("layer { name: 'a' blobs { num: 2 channels: 3 height: 1 width: 1 } blobs {} }"),
            "f: layer 'a' blob 0 has shape 2x3x1x1, the net's is 2x3" + anew);
  EXPECT_EQ(why("layer { name: 'a' blobs { } }"), "f: layer 'a' has 1 blobs, expected 2" + anew);
  EXPECT_EQ(why("layer { name: 'a' }"), "f: layer 'a' has 0 blobs, expected 2" + anew);
  EXPECT_EQ(why("layer { name: 'a' blobs { shape { dim: 2 dim: 3 } data: 1 } blobs {} }"),
            "f: layer 'a' blob 0 holds 1 numbers, its shape asks for 6");
}

// --- Layers of one name --------------------------------------------------------------------------

std::string OneName(const std::string& outputs_of_second) {
  return kInput +
         std::string("layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'x' inner_product_param { "
                     "num_output: 3 weight_filler { type: 'xavier' } } }"
                     "layer { name: 'ip' type: 'ReLU' bottom: 'x' top: 'x' }"
                     "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'b' inner_product_param { num_output: ") +
         outputs_of_second + " weight_filler { type: 'xavier' } } }" + kLoss;
}

TEST(Net, LayersMayHaveTheSameName) {
  const auto net = MakeNet(OneName("3"));
  EXPECT_EQ(net->LayerIndex("ip"), 1);
  EXPECT_EQ(net->layer(3).name(), "ip");
  EXPECT_EQ(net->UniqueName(1), "ip");
  EXPECT_EQ(net->UniqueName(2), "ip#2");
  EXPECT_EQ(net->UniqueName(3), "ip#3");
  EXPECT_FALSE(at::equal(net->layer(1).blobs()[0].data, net->layer(3).blobs()[0].data))
      << "both were filled with the same draws";
  EXPECT_EQ(MakeNet(kInput + Ip("a", "data", 2) + Ip("a#2", "a", 2) +
                    "layer { name: 'a' type: 'Silence' bottom: 'a#2' bottom: 'label' }")
                ->UniqueName(3),
            "a#3");
}

TEST(Net, OfSavedLayersOfOneNameTheFirstTakesEachInTurn) {
  const auto from = MakeNet(OneName("3"));
  NetOptions options;
  options.seed = 99;
  const auto to = MakeNet(OneName("3"), TRAIN, options);
  const at::Tensor second = to->layer(3).blobs()[0].data.clone();
  NetParameter saved = from->ToProto();
  ASSERT_EQ(saved.layer(1).blobs_size(), 2);
  ASSERT_EQ(saved.layer(3).blobs_size(), 2);
  // As in Caffe, where a saved ReLU of that name would not fit the first.
  EXPECT_EQ(to->CopyFrom(saved, "f").message(),
            "f: layer 'ip' has 0 blobs, expected 2; to learn the layer anew, give it another name in the net");
  saved.mutable_layer()->DeleteSubrange(2, 1);
  ASSERT_TRUE(to->CopyFrom(saved, "f").ok());
  EXPECT_TRUE(at::equal(to->layer(1).blobs()[0].data, from->layer(3).blobs()[0].data));
  EXPECT_TRUE(at::equal(to->layer(3).blobs()[0].data, second));
}

TEST(Net, ItsOwnModelComesBackInOrder) {
  const auto from = MakeNet(OneName("5"));
  NetOptions options;
  options.seed = 99;
  const auto to = MakeNet(OneName("5"), TRAIN, options);
  const Status status = to->CopyFrom(from->ToProto(), "f", SameNames::kInOrder);
  ASSERT_TRUE(status.ok()) << status.message();
  for (const int layer : {1, 3}) {
    EXPECT_TRUE(at::equal(to->layer(layer).blobs()[0].data, from->layer(layer).blobs()[0].data));
  }
  NetOptions sharing;
  sharing.parameters_from = from.get();
  const auto test = MakeNet(OneName("5"), TEST, sharing);
  EXPECT_EQ(test->layer(3).blobs()[0].data.data_ptr(), from->layer(3).blobs()[0].data.data_ptr());
}

TEST(Net, DiffsAreSavedWhereTheyAreAskedFor) {
  const auto net = TwoLayers();
  Pass(net.get());
  EXPECT_EQ(net->ToProto().layer(net->LayerIndex("a")).blobs(0).diff_size(), 0);
  const NetParameter saved = net->ToProto(/*diffs=*/true);
  const BlobProto& blob = saved.layer(net->LayerIndex("a")).blobs(0);
  ASSERT_EQ(blob.diff_size(), 15);
  EXPECT_EQ(blob.diff(4), net->layer(net->LayerIndex("a")).blobs()[0].diff[1][1].item<float>());
}

// --- debug_info ----------------------------------------------------------------------------------

TEST(Net, DebugLinesAreCaffes) {
  const auto net = MakeNet(kInput + Ip("a", "data", 2, "param { name: 'w' }") +
                           "layer { name: 'b' type: 'Power' bottom: 'a' top: 'b' power_param { scale: 2 } }" + kLoss);
  net->blob("data")->data.fill_(1);
  net->blob("label")->data.zero_();
  net->layer(1).blobs()[0].data.fill_(-0.5);
  net->layer(1).blobs()[1].data.fill_(0.25);
  Pass(net.get());
  std::vector<std::string> lines;
  const DebugSink sink = [&](const std::string& line) { lines.push_back(line); };
  DebugForward(*net, 1, sink);
  DebugBackward(*net, 2, false, sink);
  DebugBackward(*net, 1, false, sink);
  DebugBackward(*net, 1, true, sink);
  DebugAllParams(*net, sink);
  EXPECT_THAT(lines, ElementsAre("    [Forward] Layer a, top blob a data: 1.25",
                                 "    [Forward] Layer a, param blob w data: 0.5",
                                 "    [Forward] Layer a, param blob 1 data: 0.25",
                                 "    [Backward] Layer b, bottom blob a diff: 0.25",
                                 "    [Backward] Layer a, param blob w diff: 1",
                                 "    [Backward] Layer a, param blob 1 diff: 1",
                                 "    [Backward] All net params (data, diff): L1 norm = (3.5, 8); L2 norm = "
                                 "(1.27475, 2.82843)"));
}

// --- Memory that is not there --------------------------------------------------------------------

TEST(Net, TheAllocatorsWordsAreNotTheUsers) {
  EXPECT_EQ(WhyNoNet("layer { name: 'in' type: 'Input' top: 'x' "
                     "input_param { shape { dim: 1099511627776 dim: 1048576 } } }"),
            "layer 'in' (Input): out of memory: cannot allocate 4611686018427387904 bytes");
}

// --- Mistakes in a net ---------------------------------------------------------------------------

TEST(Net, MistakesAreNamed) {
  EXPECT_EQ(WhyNoNet(kInput + Ip("a", "dat", 2)),
            "layer 'a' reads blob 'dat', which no earlier layer makes");
  EXPECT_EQ(WhyNoNet(kInput + std::string("layer { name: 'b' type: 'ReLU' bottom: 'data' top: "
                                          "'label' }")),
            "layer 'b' (ReLU): makes blob 'label', which an earlier layer makes already");
  EXPECT_EQ(WhyNoNet(kInput + Ip("a", "data", 2, "param {} param {} param {}")),
            "layer 'a' (InnerProduct): has 3 param entries for 2 learned blobs");
  EXPECT_EQ(WhyNoNet(kInput + Ip("a", "data", 2, "loss_weight: 1 loss_weight: 2")),
            "layer 'a' (InnerProduct): loss_weight is given 2 times for 1 tops");
  EXPECT_THAT(WhyNoNet(kInput + Ip("a", "data", 2, "propagate_down: true propagate_down: true")),
              HasSubstr("propagate_down is given 2 times for 1 bottoms"));
}

TEST(Net, ALayerFollowsTheShapeOfItsInput) {
  const auto net = TwoLayers();
  net->blob("data")->data = net->blob("data")->data.narrow(0, 0, 2).clone();
  net->blob("label")->data = net->blob("label")->data.narrow(0, 0, 2).clone();
  Pass(net.get());
  EXPECT_EQ(net->blob("b")->shape(), (Shape{2, 3}));
  net->blob("data")->data = net->blob("data")->data.view({3, 2});
  EXPECT_EQ(net->Forward().status().message(),
            "layer 'a' (InnerProduct): bottom has shape 3x2, but the weight of shape 5x3 takes 3 "
            "inputs from axis 1 on");
}

}  // namespace
}  // namespace poseidon::caffe
