// SPDX-License-Identifier: Apache-2.0
// What layers of forks compute, against numbers from a few lines of NumPy that follow the fork's description (docs/caffe/forks.md),
// and what they refuse.
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <limits>

#include "tests/shared/net_trial.h"

namespace poseidon::caffe {
namespace {

using testing::HasSubstr;

TEST(Forks, AxpyAddsAScaledImage) {
  Trial trial(InputsOf("a 1x2x1x1 data 1x2x2x2 b 1x2x2x2") + LayerOf("Axpy", "a data b", ""));
  trial.Give("a", {2, -1}).Give("data", {1, 2, 3, 4, 5, 6, 7, 8}).Give("b", std::vector<double>(8, 0.5));
  ExpectNear(trial.Run(), {2.5, 4.5, 6.5, 8.5, -4.5, -5.5, -6.5, -7.5});
}

TEST(Forks, ShuffleChannelDealsTheGroupsOut) {
  Trial trial(InputsOf("data 1x6x1x1") + LayerOf("ShuffleChannel", "data", "shuffle_channel_param { group: 2 }"));
  ExpectNear(trial.Give("data", UpTo(6)).Run(), {0, 3, 1, 4, 2, 5});
}

TEST(Forks, PermuteNamesTheAxesOfTheBottom) {
  Trial trial(InputsOf("data 1x2x1x3") + LayerOf("Permute", "data", "permute_param { order: 0 order: 2 order: 3 order: 1 }"));
  ExpectNear(trial.Give("data", UpTo(6)).Run(), {0, 3, 1, 4, 2, 5});
  EXPECT_EQ(trial.net().blob("out")->shape(), (Shape{1, 1, 3, 2}));
}

TEST(Forks, NormalizeDividesByTheLength) {
  const std::string options = "norm_param { across_spatial: false channel_shared: false }";
  Trial each(InputsOf("data 1x2x1x2") + LayerOf("Normalize", "data", options));
  EXPECT_EQ(each.Param(0), (std::vector<double>{1, 1}));  // without a filler
  each.GiveParam(0, {10, 20}).Give("data", {3, 1, 4, 2});
  ExpectNear(each.Run(), {6, 4.472135955, 16, 17.8885438198});
  Trial whole(InputsOf("data 1x2x1x2") + LayerOf("Normalize", "data", "norm_param { scale_filler { value: 10 } }"));
  ExpectNear(whole.Give("data", {3, 1, 4, 2}).Run(), {5.477225575, 1.8257418583, 7.3029674334, 3.6514837167});
}

TEST(Forks, SmoothL1LossHasThreeForms) {
  const std::vector<double> zeros(6, 0.0);
  const std::vector<double> numbers = {0.1, -0.2, 2, -3, 0.05, 1};
  const std::vector<double> inside = {1, 2, 1, 0, 1, 0.5};
  Trial two(InputsOf("data 2x3 b 2x3") + LayerOf("SmoothL1Loss", "data b", ""));
  ExpectNear(two.Give("data", numbers).Give("b", zeros).Run(), {2.263125});
  Trial sigma(InputsOf("data 2x3 b 2x3") + LayerOf("SmoothL1Loss", "data b", "smooth_l1_loss_param { sigma: 3 }"));
  ExpectNear(sigma.Give("data", numbers).Give("b", zeros).Run(), {3.0170138889});
  Trial three(InputsOf("data 2x3 b 2x3 w 2x3") + LayerOf("SmoothL1Loss", "data b w", ""));
  ExpectNear(three.Give("data", numbers).Give("b", zeros).Give("w", inside).Run(), {0.855625});
  Trial four(InputsOf("data 2x3 b 2x3 w 2x3 v 2x3") + LayerOf("SmoothL1Loss", "data b w v", "smooth_l1_loss_param { sigma: 3 }"));
  four.Give("data", numbers).Give("b", zeros).Give("w", inside).Give("v", {0.5, 1, 2, 1, 1, 3});
  ExpectNear(four.Run(), {2.8002083333});
}

// R-FCN's divides as loss_param says, by default by all places, and gives the loss of each place.
TEST(Forks, SmoothL1LossOfRFcnDividesByPlaces) {
  const auto run = [](const std::string& options, const std::string& type = "SmoothL1Loss") {
    Trial trial(InputsOf("data 2x2x1x2 b 2x2x1x2") + LayerOf(type, "data b", options));
    return trial.Give("data", {1, 0, 0, 2, 0, 0, 1, 1}).Give("b", std::vector<double>(8, 0.0)).Run()[0];
  };
  EXPECT_NEAR(run(""), 3.0 / 2, 1e-12);
  EXPECT_NEAR(run("top: 'each'"), 3.0 / 4, 1e-12);
  EXPECT_NEAR(run("loss_param { normalization: FULL }"), 3.0 / 4, 1e-12);
  EXPECT_NEAR(run("loss_param { normalize: false }"), 3.0 / 2, 1e-12);
  EXPECT_NEAR(run("loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 8 }", "SmoothL1LossOHEM"), 3.0 / 8, 1e-12);
  Trial each(InputsOf("data 2x2x1x2 b 2x2x1x2") + LayerOf("SmoothL1Loss", "data b", "top: 'each'"));
  each.Give("data", {1, 0, 0, 2, 0, 0, 1, 1}).Give("b", std::vector<double>(8, 0.0));
  ExpectNear(each.Run("each"), {0.5, 1.5, 0.5, 0.5});
  EXPECT_EQ(each.net().blob("each")->shape(), (Shape{2, 1, 1, 2}));
}

TEST(Forks, RoiPoolingTakesTheLargestOfEachCell) {
  const std::string layer = LayerOf("ROIPooling", "data rois", "roi_pooling_param { pooled_h: 2 pooled_w: 2 spatial_scale: 0.5 }");
  Trial trial(InputsOf("data 2x1x4x6 rois 3x5") + layer);
  std::vector<double> images = UpTo(24);
  for (int i = 0; i < 24; ++i) images.push_back(-i);
  trial.Give("data", images);
  // 1 times 0.5 is rounded to 1; the last window lies outside.
  trial.Give("rois", {0, 2.4, 1, 9, 6, 1, 2.4, 1, 9, 6, 0, 20, 20, 30, 30});
  ExpectNear(trial.Run(), {15, 17, 21, 23, -7, -9, -13, -15, 0, 0, 0, 0});
}

TEST(Forks, PsRoiPoolingTakesEachCellFromItsChannel) {
  Trial trial(InputsOf("data 1x8x4x6 rois 1x5") +
              LayerOf("PSROIPooling", "data rois", "psroi_pooling_param { spatial_scale: 0.5 output_dim: 2 group_size: 2 }"));
  std::vector<double> images;
  for (int c = 0; c < 8; ++c) {
    for (int i = 0; i < 24; ++i) images.push_back(100 * c + i);
  }
  trial.Give("data", images).Give("rois", {0, 2.4, 1, 9, 5});
  ExpectNear(trial.Run(), {4.5, 106.5, 210.5, 312.5, 404.5, 506.5, 610.5, 712.5});
}

TEST(Forks, WindowsThatAreNoneAreNamed) {
  for (const auto& [type, options] : {std::pair<const char*, const char*>{"ROIPooling", "roi_pooling_param { pooled_h: 2 pooled_w: 2 }"},
                                      {"PSROIPooling", "psroi_pooling_param { spatial_scale: 1 output_dim: 1 group_size: 2 }"}}) {
    Trial trial(InputsOf("data 1x4x4x6 rois 2x5") + LayerOf(type, "data rois", options));
    trial.Give("data", std::vector<double>(96, 1.0));
    const double infinity = std::numeric_limits<double>::infinity();
    EXPECT_THAT(trial.Give("rois", {0, 0, 0, 1, 1, 1, 0, 0, 1, 1}).Error(), HasSubstr("window 1 is of image 1, expected one of the 1"));
    EXPECT_THAT(trial.Give("rois", {-1, 0, 0, 1, 1, 0, 0, 0, 1, 1}).Error(), HasSubstr("window 0 is of image -1"));
    EXPECT_THAT(trial.Give("rois", {0, 0, 0, 1, 1, 0, 0, 0, infinity, 1}).Error(), HasSubstr("window 1 has the number inf"));
    EXPECT_THAT(trial.Give("rois", {0, std::nan(""), 0, 1, 1, 0, 0, 0, 1, 1}).Error(), HasSubstr("window 0 has the number"));
    EXPECT_EQ(trial.Give("rois", {0, 9, 9, -9, -9, 0, -1e9, -1e9, 1e9, 1e9}).Error(), "");
  }
}

TEST(Forks, BnOfSegNetHasTwoModes) {
  const std::vector<double> numbers = {1, 2, 3, 4, 10, 20, 30, 40};
  const std::string inputs = InputsOf("data 2x2x1x2");
  for (const Phase phase : {TRAIN, TEST}) {
    Trial learn(inputs + LayerOf("BN", "data", "top: 'mean' top: 'variance' bn_param { scale_filler { value: 1 } shift_filler { } }"), phase);
    learn.GiveParam(0, {2, 3}).GiveParam(1, {0.5, -1}).Give("data", numbers);
    ExpectNear(learn.Run(), {-1.4008732235, -1.1386838133, -4.0193573522, -3.8335507459, 0.9588314677, 3.5807255691, 0.9974210176, 2.8554870805});
    ExpectNear(learn.Run("mean"), {8.25, 19.25});
    ExpectNear(learn.Run("variance"), {58.1875, 260.6875});
    Trial folded(inputs + LayerOf("BN", "data", "bn_param { bn_mode: INFERENCE }"), phase);
    folded.GiveParam(0, {2, 3}).GiveParam(1, {0.5, -1}).Give("data", numbers);
    ExpectNear(folded.Run(), {2.5, 4.5, 8, 11, 20.5, 40.5, 89, 119});
    EXPECT_EQ(folded.net().learnable_params()[0].blob.shape(), (Shape{1, 2, 1, 1}));
  }
}

TEST(Forks, BnOfTemporalSegmentsKeepsStatistics) {
  const std::vector<double> numbers = {1, 2, 3, 4, 10, 20, 30, 40};
  const std::string text = InputsOf("data 2x2x1x2") + LayerOf("BN", "data", "bn_param { slope_filler { value: 1 } bias_filler { } }");
  Trial train(text);
  train.GiveParam(0, {2, 3}).GiveParam(1, {0.5, -1}).Give("data", numbers);
  ExpectNear(train.Run(), {-1.4008730602, -1.1386836726, -4.0193572943, -3.8335506916, 0.9588314283, 3.5807253044, 0.9974209793, 2.8554870066});
  ExpectNear(train.Param(2), {0.825, 1.925}, 1e-5);  // the momentum is a float
  ExpectNear(train.Param(3), {5.81875, 26.06875}, 1e-5);
  EXPECT_FALSE(train.net().learnable_params()[1].statistics);
  EXPECT_TRUE(train.net().learnable_params()[2].statistics);
  const std::vector<double> expected = {0.6450951253, 1.4742101273, -0.368360135, 0.2192118325, 8.107130143, 16.3982801626, 15.4960829872, 21.3718026621};
  Trial test(text, TEST);
  Trial frozen(InputsOf("data 2x2x1x2") + LayerOf("BN", "data", "bn_param { frozen: true }"));
  EXPECT_EQ(frozen.Param(3), (std::vector<double>{1, 1}));
  for (Trial* trial : {&test, &frozen}) {
    trial->GiveParam(0, {2, 3}).GiveParam(1, {0.5, -1}).GiveParam(2, {0.825, 1.925}).GiveParam(3, {5.81875, 26.06875}).Give("data", numbers);
    ExpectNear(trial->Run(), expected);
  }
  EXPECT_EQ(frozen.net().learnable_params()[0].lr_mult, 0);
}

TEST(Forks, BnMustSayWhichOneItIs) {
  for (const char* options : {"", "bn_param { }", "bn_param { engine: CUDNN }", "bn_param { bn_mode: LEARN frozen: true }"}) {
    EXPECT_THAT(WhyNoNet(InputsOf("data 2x2x1x2") + LayerOf("BN", "data", options)), HasSubstr("does not say which BN is meant")) << options;
  }
}

TEST(Forks, BatchNormOfNvCaffeScalesAndAverages) {
  const std::string layer = LayerOf("BatchNorm", "data", "batch_norm_param { scale_bias: true moving_average_fraction: 0.9 }");
  Trial train(InputsOf("data 2x2x1x2") + layer);
  EXPECT_EQ(train.Param(3), (std::vector<double>{1, 1}));  // without fillers
  train.GiveParam(3, {2, 3}).GiveParam(4, {0.5, -1}).Give("data", {1, 2, 3, 4, 10, 20, 30, 40});
  ExpectNear(train.Run(), {-1.4008730602, -1.1386836726, -4.0193572943, -3.8335506916, 0.9588314283, 3.5807253044, 0.9974209793, 2.8554870066});
  ExpectNear(train.Param(0), {8.25, 19.25});
  ExpectNear(train.Param(1), {58.1875 * 4 / 3, 260.6875 * 4 / 3});
  ExpectNear(train.Param(2), {1});
  train.Give("data", {4, 6, 8, 10, 11, 21, 31, 41}).Run();
  ExpectNear(train.Param(0), {8.475, 19.575}, 1e-5);  // the fraction is a float
  ExpectNear(train.Param(1), {75.5916666667, 338.8583333333}, 1e-5);
  const auto& params = train.net().learnable_params();
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(params[i].statistics, i < 3) << i;
  Trial test(InputsOf("data 2x2x1x2") + layer, TEST);
  for (std::size_t i = 0; i < 5; ++i) test.GiveParam(i, train.Param(i));
  test.Give("data", {1, 2, 3, 4, 10, 20, 30, 40});
  ExpectNear(test.Run(), {-1.219508011, -0.9894734945, -3.701255724, -3.5382840363, 0.8508026377, 3.1511478029, 0.6989798445, 2.3286967217}, 1e-6);
}

TEST(Forks, BatchNormOfIntelTakesSomeImagesAtATime) {
  Trial trial("bn_stats_batch_size: 2\n" + InputsOf("data 4x2") + LayerOf("BatchNorm", "data", ""));
  trial.Give("data", {1, 5, 2, 3, -1, 4, 0, 2});
  const double near = 0.9999800006;
  ExpectNear(trial.Run(), {-near, 0.999995, near, -0.999995, -near, 0.999995, near, -0.999995});
  ExpectNear(trial.Param(0), {0.9985, 6.996}, 1e-6);  // the fraction 0.999 is a float
  ExpectNear(trial.Param(1), {0.9995, 3.998}, 1e-6);
  ExpectNear(trial.Param(2), {1.999}, 1e-6);
  EXPECT_THAT(WhyNoNet(InputsOf("data 4x2") + LayerOf("BatchNorm", "data", "batch_norm_param { stats_batch_size: 3 }")),
              HasSubstr("stats_batch_size 3 does not divide the 4 images of a batch"));
}

TEST(Forks, CenterLossMovesItsCentresByItsOwnRule) {
  Trial trial(InputsOf("data 3x2 label 3") +
              LayerOf("CenterLoss", "data label", "loss_weight: 0.5 center_loss_param { num_output: 2 center_filler { } }"));
  trial.GiveParam(0, {0, 1, 2, 2}).Give("data", {1, 2, 3, 4, 5, 6}).Give("label", {0, 1, 0});
  ExpectNear(trial.Run(), {9.5});
  trial.Backward();
  ExpectNear(Trial::Numbers(trial.net().blob("data")->diff), {0.1666666667, 0.1666666667, 0.1666666667, 0.3333333333, 0.8333333333, 0.8333333333});
  ExpectNear(Trial::Numbers(trial.net().learnable_params()[0].blob.diff), {-2, -2, -0.5, -1});
  ExpectGradients(trial, {"data"});
  EXPECT_THAT(trial.Give("label", {0, 2, 0}).Error(), HasSubstr("label 2 is not among the 2 classes (row 1"));
}

// The net with a loss whose gradient at the scores are the numbers of input "slope".
std::string MarginScores(const std::string& options, const std::string& type = "MarginInnerProduct", const std::string& field = "margin") {
  return InputsOf("data 3x3 label 3 slope 3x4") +
         LayerOf(type, "data label", "top: 'lambda' " + field + "_inner_product_param { num_output: 4 " + options + " weight_filler { } }") +
         "layer { name: 'quiet' type: 'Silence' bottom: 'lambda' }"
         "layer { name: 'times' type: 'Eltwise' bottom: 'out' bottom: 'slope' top: 'product' eltwise_param { operation: PROD } }"
         "layer { name: 'loss' type: 'Reduction' bottom: 'product' top: 'loss' loss_weight: 1 }";
}

TEST(Forks, MarginInnerProductScoresByAngles) {
  struct Expected {
    std::string type;
    std::array<double, 3> own;  // scores of the labels
    std::vector<double> diff;
  };
  // Of the fork's formulas for each type, with lambda 2.
  const Expected cases[] = {
      {"SINGLE", {2.121320344, 2.271720556, -1.212435565},
       {0.03383175491, 0.5571501677, 0.2896136729, -0.365503939, -0.9205437258, 0.5441141213, 0.8735096087, 1.232962342, -0.5659587071}},
      {"DOUBLE", {1.822461853, 2.014109572, -1.970844473},
       {0.002687416119, 0.4977441579, 0.3178753439, -0.3982544773, -0.8167273804, 0.4123170067, 0.9112182731, 1.226904952, -0.5732214204}},
      {"TRIPLE", {1.414213562, 1.647621502, -2.90373865},
       {-0.003545589874, 0.4864394895, 0.3229470062, -0.4041742449, -0.7967843488, 0.3883259751, 1.247084136, 1.118566817, -0.600075807}},
      {"QUADRUPLE", {1.005965272, 1.252119879, -4.113634356},
       {-0.006613881527, 0.4809367547, 0.3253814494, -0.406657029, -0.7883104186, 0.3782483277, 1.130480246, 1.172014101, -0.6017683856}},
  };
  for (const Expected& expected : cases) {
    SCOPED_TRACE(expected.type);
    Trial trial(MarginScores("type: " + expected.type + " base: 4 gamma: 1 lambda_min: 0.1"));
    trial.GiveParam(0, {1, 1, 0, 0.2, -2, 1, -1, 0.5, 2, 0.3, 0.3, -0.3})
        .Give("data", {1, 2, -1, 0.5, -1.5, 2, -2, 0.3, 0.4})
        .Give("label", {0, 1, 3})
        .Give("slope", {0.3, -0.2, 0.5, 0.1, -0.4, 0.7, 0.2, -0.1, 0.6, -0.3, 0.1, 0.9});
    const auto [first, second, third] = expected.own;
    ExpectNear(trial.Run(), {first, -2.138089935, -0.8728715609, 2.309401077, -0.7071067812, second, 1.200198396, -1.732050808, -1.202081528,
                             -0.2672612419, 1.287485552, third});
    ExpectNear(trial.Run("lambda"), {2});
    ExpectNear(trial.Param(0), {0.7071067812, 0.7071067812, 0, 0.08908708064, -0.8908708064, 0.4454354032, -0.4364357805, 0.2182178902,
                                0.8728715609, 0.5773502692, 0.5773502692, -0.5773502692});
    trial.Backward();
    ExpectNear(Trial::Numbers(trial.net().blob("data")->diff), expected.diff);
    ExpectNear(Trial::Numbers(trial.net().learnable_params()[0].blob.diff), {-1.1, 1.38, -0.86, 0.75, -1.54, 1.48, 0.4, 0.73, -0.06, -1.75, 0.62, 0.06});
  }
}

TEST(Forks, MarginInnerProductLeavesWeightsAloneInTests) {
  Trial trial(MarginScores("type: DOUBLE lambda_min: 5"), TEST);
  trial.GiveParam(0, std::vector<double>(12, 2)).Give("data", std::vector<double>(9, 1)).Give("label", {0, 1, 3}).Give("slope", std::vector<double>(12, 1));
  ExpectNear(trial.Run("lambda"), {5});
  ExpectNear(trial.Run(), std::vector<double>(12, std::sqrt(3.0)));
  ExpectNear(trial.Param(0), std::vector<double>(12, 2));
  ExpectGradients(Trial(MarginScores("")).Give("label", {0, 1, 3}), {"data"});
  // A row without a direction scores nothing against nothing.
  ExpectNear(trial.Give("data", std::vector<double>(9, 0)).Run(), std::vector<double>(12, 0));
}

// With angles of 30, 80 and 170 degrees, so that psi is what cos(m theta) is made of: -1^k cos(m theta) - 2k, k = floor(m theta / pi).
TEST(Forks, LargeMarginInnerProductScoresByAngles) {
  const double pi = std::acos(-1.0);
  const std::array<double, 3> angles = {pi / 6, pi * 4 / 9, pi * 17 / 18};
  const std::array<const char*, 4> types = {"SINGLE", "DOUBLE", "TRIPLE", "QUADRUPLE"};
  const double lambda = 2;  // of 4 (1 + 1 * 1)^-1
  for (int m = 1; m <= 4; ++m) {
    SCOPED_TRACE(types.at(static_cast<std::size_t>(m) - 1));
    Trial trial(MarginScores("type: " + std::string(types.at(static_cast<std::size_t>(m) - 1)) + " base: 4 gamma: 1 lambda_min: 0.1",
                             "LargeMarginInnerProduct", "largemargin"));
    const std::vector<double> weights = {3, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 1};
    std::vector<double> rows, expected;
    for (std::size_t row = 0; row < 3; ++row) {
      const double length = 2 + static_cast<double>(row);
      // The weights of label `row` lie on axis `row`.
      std::vector<double> x(3, 0);
      x[row] = length * std::cos(angles.at(row));
      x[(row + 1) % 3] = length * std::sin(angles.at(row));
      for (std::size_t j = 0; j < 4; ++j) {
        double score = 0;
        for (std::size_t i = 0; i < 3; ++i) score += x[i] * weights[3 * j + i];
        const double k = std::floor(m * angles.at(row) / pi);
        const double psi = (std::fmod(k, 2) == 0 ? 1 : -1) * std::cos(m * angles.at(row)) - 2 * k;
        if (j == row) score = (length * weights[4 * row] * psi + lambda * score) / (1 + lambda);
        expected.push_back(score);
      }
      rows.insert(rows.end(), x.begin(), x.end());
    }
    trial.GiveParam(0, weights).Give("data", rows).Give("label", {0, 1, 2}).Give("slope", UpTo(12));
    ExpectNear(trial.Run(), expected);
    ExpectNear(trial.Run("lambda"), {lambda});
    ExpectNear(trial.Param(0), weights);
  }
}

TEST(Forks, LargeMarginInnerProductTakesRowsAndWeightsWithoutADirection) {
  Trial trial(MarginScores("type: QUADRUPLE lambda_min: 1", "LargeMarginInnerProduct", "largemargin"));
  trial.GiveParam(0, std::vector<double>(12, 0)).Give("data", {0, 0, 0, 1, 1, 1, 0, 0, 0}).Give("label", {0, 1, 3}).Give("slope", UpTo(12));
  ExpectNear(trial.Run(), std::vector<double>(12, 0));
  trial.Backward();
  for (const double number : Trial::Numbers(trial.net().learnable_params()[0].blob.diff)) EXPECT_TRUE(std::isfinite(number));
  for (const double number : Trial::Numbers(trial.net().blob("data")->diff)) EXPECT_TRUE(std::isfinite(number));
}

TEST(Forks, LambdaFallsWithThePass) {
  for (const auto& [type, field] : {std::pair{"MarginInnerProduct", "margin"}, std::pair{"LargeMarginInnerProduct", "largemargin"}}) {
    SCOPED_TRACE(type);
    Trial trial(MarginScores("type: DOUBLE base: 100 gamma: 0.5 power: 2 iteration: 3 lambda_min: 1", type, field));
    trial.Give("label", {0, 1, 3});
    ExpectNear(trial.Run("lambda"), {100.0 / 9});
    trial.net().BeginPass({.step = 6, .pass = 0, .batch = 12});
    ExpectNear(trial.Run("lambda"), {100.0 / 81});
    trial.net().BeginPass({.step = 600, .pass = 0, .batch = 1200});
    ExpectNear(trial.Run("lambda"), {1});
  }
}

TEST(Forks, L2NormMakesRowsOfLengthOne) {
  Trial trial(InputsOf("data 2x2") + LayerOf("L2Norm", "data", ""));
  ExpectNear(trial.Give("data", {3, -4, 0, 0}).Run(), {0.6, -0.8, 0, 0});
  trial.Backward();
  for (const double number : Trial::Numbers(trial.net().blob("data")->diff)) EXPECT_TRUE(std::isfinite(number));
  Trial eps(InputsOf("data 1x2") + LayerOf("L2Norm", "data", "l2norm_param { eps: 5 }"));
  ExpectNear(eps.Give("data", {3, -4}).Run(), {0.3, -0.4});
}

TEST(Forks, NormMakesVectorsOfLengthOneAtEveryPlace) {
  Trial trial(InputsOf("data 1x2x1x2") + LayerOf("Norm", "data", ""));
  ExpectNear(trial.Give("data", {3, 0, 4, -2}).Run(), {0.6, 0, 0.8, -1}, 1e-6);
}

TEST(Forks, AbsLossDividesByRows) {
  Trial trial(InputsOf("data 2x3 b 2x3") + LayerOf("AbsLoss", "data b", ""));
  ExpectNear(trial.Give("data", {1, 2, 3, 4, 5, 6}).Give("b", {0, 4, 3, 4, 5, 3}).Run(), {3});
}

TEST(Forks, AngleLossLeavesOutWhatIsUnknown) {
  const double pi = std::acos(-1.0);
  Trial trial(InputsOf("data 1x3x1x2 b 1x3x1x2") + LayerOf("AngleLoss", "data b", ""));
  // The first place is at a right angle, the second unknown.
  trial.Give("data", {1, 0.5, 0, 0.5, 0, 0.5}).Give("b", {0, 11, 1, 0, 0, 0});
  ExpectNear(trial.Run(), {pi / 2});
  trial.Backward();
  ExpectNear(Trial::Numbers(trial.net().blob("data")->diff), {0, 0, -1, 0, 0, 0}, 1e-5);
}

TEST(Forks, MultiSoftmaxLossCountsLabelsFromOneAndDividesByImages) {
  Trial trial(InputsOf("data 2x3x1x2 label 2x1x2") + LayerOf("MultiSoftmaxWithLoss", "data label", ""));
  trial.Give("data", std::vector<double>(12, 0.5)).Give("label", {1, 2, 3, 1});
  ExpectNear(trial.Run(), {2 * std::log(3)});
  EXPECT_THAT(trial.Give("label", {1, 0, 3, 1}).Error(), HasSubstr("of labels, which count from 1 here, less that: label -1 is not among the 3"));
}

TEST(Forks, WarpsLookUpWhereTheFlowPoints) {
  const std::vector<double> image = {1, 2, 3, 4, 5, 6};  // 2 x 3
  const std::vector<double> flow = {0.5, 1, 1, -1, 0, 0, 0, 0, 0, 0, -0.25, 5};  // x, then y
  const auto run = [&](const std::string& type, const std::string& options) {
    Trial trial(InputsOf("data 1x1x2x3 flow 1x2x2x3") + LayerOf(type, "data flow", options));
    return trial.Give("data", image).Give("flow", flow).Run();
  };
  ExpectNear(run("FlowWarp", ""), {1.5, 3, 0, 0, 4.25, 0});
  ExpectNear(run("Warping", ""), {1.5, 3, 3, 4, 4.25, 6});
  const std::vector<double> outside = run("FlowWarp", "flow_warp_param { fill_value: NOT_A_NUMBER }");
  EXPECT_TRUE(std::isnan(outside[2]) && std::isnan(outside[3]) && std::isnan(outside[5]));
  EXPECT_THAT(WhyNoNet(InputsOf("data 1x1x2x3 flow 1x1x2x3") + LayerOf("Warping", "data flow", "")), HasSubstr("a flow of two channels"));
}

TEST(Forks, MergeCropTakesTheMiddle) {
  const std::string inputs = InputsOf("data 1x1x1x2 b 1x1x3x4");
  Trial stack(inputs + LayerOf("MergeCrop", "data b", ""));
  ExpectNear(stack.Give("data", {10, 20}).Give("b", UpTo(12)).Run(), {10, 20, 5, 6});
  Trial add(inputs + LayerOf("MergeCrop", "data b", "mergecrop_param { operation: ADD }"));
  ExpectNear(add.Give("data", {10, 20}).Give("b", UpTo(12)).Run(), {15, 26});
  Trial first(inputs + LayerOf("MergeCrop", "data b", "mergecrop_param { forward: true forward: false }"));
  ExpectNear(first.Give("data", {10, 20}).Give("b", UpTo(12)).Run(), {10, 20, 0, 0});
  // The second bottom has no gradient unless it is asked for.
  Trial loss(inputs + LayerOf("MergeCrop", "data b", "") +
             "layer { name: 'loss' type: 'Reduction' bottom: 'out' top: 'loss' loss_weight: 1 }");
  loss.Run();
  loss.Backward();
  ExpectNear(Trial::Numbers(loss.net().blob("data")->diff), {1, 1});
  ExpectNear(Trial::Numbers(loss.net().blob("b")->diff), std::vector<double>(12, 0));
  EXPECT_THAT(WhyNoNet(InputsOf("data 1x1x3x4 b 1x1x1x2") + LayerOf("MergeCrop", "data b", "")), HasSubstr("the second to be no smaller"));
}

TEST(Forks, SpatialWtaLeavesTheLargestAmount) {
  Trial trial(InputsOf("data 1x1x2x4") + LayerOf("SpatialWta", "data", "top: 'mask' spatial_wta_param { kernel_size: 2 stride: 2 }"));
  ExpectNear(trial.Give("data", {1, -5, 2, 2, 3, 4, 0, 1}).Run(), {0, -5, 2, 0, 0, 0, 0, 0});
  ExpectNear(trial.Run("mask"), {0, 1, 1, 0, 0, 0, 0, 0});
  Trial plane(InputsOf("data 1x1x2x4") + LayerOf("SpatialWta", "data", "spatial_wta_param { global_wta: true }"));
  ExpectNear(plane.Give("data", {1, -5, 2, 2, 3, 4, 0, 1}).Run(), {0, -5, 0, 0, 0, 0, 0, 0});
}

TEST(Forks, SegAccuracyHasThreeShares) {
  const std::string layer = LayerOf("SegAccuracy", "data label", "seg_accuracy_param { ignore_label: 255 }");
  Trial trial(InputsOf("data 1x3x1x4 label 1x1x1x4") + layer);
  // Predicted are 0, 1, 1, 2; the last place is not looked at.
  trial.Give("data", {1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1}).Give("label", {0, 1, 0, 255});
  ExpectNear(trial.Run(), {2.0 / 3, 0.75, (0.5 + 0.5 + 1) / 3});
  EXPECT_THAT(trial.Give("label", {0, 1, 3, 0}).Error(), HasSubstr("label 3 is not among the 3 classes"));
  Trial sum(InputsOf("data 1x2x1x2 label 1x1x1x2") + LayerOf("SegAccuracy", "data label", "seg_accuracy_param { reset: false }"));
  sum.Give("data", {1, 1, 0, 0});
  ExpectNear(sum.Give("label", {0, 0}).Run(), {1, 1, 1});
  ExpectNear(sum.Give("label", {1, 1}).Run(), {0.5, 0.5, 0.25});
}

TEST(Forks, ImResizeIsCubicAndAMeanOfSizes) {
  const std::string factor = "imresize_param { factor: 2 }";
  Trial one(InputsOf("data 1x1x1x4") + LayerOf("ImResize", "data", "imresize_param { target_spatial_height: 1 target_spatial_width: 8 }"));
  // A line stays a line between its inner pixels.
  const std::vector<double> line = one.Give("data", UpTo(4)).Run();
  ExpectNear({line[3], line[4]}, {1.25, 1.75});
  Trial constant(InputsOf("data 1x2x3x3") + LayerOf("ImResize", "data", factor));
  ExpectNear(constant.Give("data", std::vector<double>(18, 3)).Run(), std::vector<double>(72, 3));
  // The second image fills the inner half alone.
  Trial two(InputsOf("data 2x1x4x4") + LayerOf("ImResize", "data", "imresize_param { factor: 1 start_scale: 1 scale_gap: 0.5 }"));
  std::vector<double> images(32, 0);
  for (const std::size_t inner : {16 + 5, 16 + 6, 16 + 9, 16 + 10}) images[inner] = 8;
  ExpectNear(two.Give("data", images).Run(), std::vector<double>(16, 4));
  EXPECT_THAT(WhyNoNet(InputsOf("data 3x1x4x4") + LayerOf("ImResize", "data", "imresize_param { scale_gap: 0.5 }")),
              HasSubstr("image 2 would fill 0.000000 of 4 pixels"));
}

TEST(Forks, PeaksOfMapsAreFound) {
  std::vector<double> map(35, 0);  // 5 x 7
  map[2 * 7 + 3] = 0.9;
  map[2 * 7 + 4] = 0.3;
  map[0] = 1;  // at the border
  Trial nms(InputsOf("data 1x1x5x7") + LayerOf("Nms", "data", "nms_param { num_parts: 1 max_peaks: 2 threshold: 0.1 }"));
  ExpectNear(nms.Give("data", map).Run(), {1, 0, 0, 3.25, 2, 0.9, 0, 0, 0});
  Trial maximum(InputsOf("data 1x2x2x3") + LayerOf("Maximum", "data", ""));
  ExpectNear(maximum.Give("data", {0, 0, 0, 0, 0, 7, -1, -1, -2, -3, -1, -1}).Run(), {2, 1, 7, 0, 0, 0});
}

TEST(Forks, PoolingTakesEverySoManyth) {
  const auto run = [](const std::string& options) {
    Trial trial(InputsOf("data 1x1x1x6") + LayerOf("Pooling", "data", "pooling_param { kernel_h: 1 kernel_w: 2 " + options + " }"));
    return trial.Give("data", {0, 5, 1, 2, 4, 3}).Run();
  };
  ExpectNear(run("dilation: 3"), {2, 5, 3});
  EXPECT_THAT(WhyNoNet(InputsOf("data 1x1x4x4") + LayerOf("Pooling", "data", "pooling_param { pool: AVE kernel_size: 2 dilation: 2 }")),
              HasSubstr("has a dilation, which takes pool: MAX"));
}

TEST(Forks, MemoryDataTakesAnyAxes) {
  const auto net = [](const std::string& options) {
    return "layer { name: 'l' type: 'MemoryData' top: 'data' top: 'label' memory_data_param { " + options + " } }";
  };
  Trial trial(net("dim: 2 dim: 3 dim: 4 dim: 5 dim: 6"));
  EXPECT_EQ(trial.net().blob("data")->shape(), (Shape{2, 3, 4, 5, 6}));
  EXPECT_EQ(trial.net().blob("label")->shape(), (Shape{2}));
  EXPECT_THAT(WhyNoNet(net("dim: 2 dim: 0")), HasSubstr("has a dim of 0"));
  EXPECT_THAT(WhyNoNet(net("dim: 2 batch_size: 2")), HasSubstr("expected one of these forms"));
}

TEST(Forks, BnDataIsTheOneOfTemporalSegments) {
  const std::string layer = LayerOf("BNData", "data", "bn_param { scale_filler { value: 2 } shift_filler { value: 1 } frozen: false }");
  Trial train(InputsOf("data 2x1") + layer);
  ExpectNear(train.Give("data", {3, 5}).Run(), {-1, 3}, 1e-4);
  ExpectNear(train.Param(2), {0.05 * 4}, 1e-6);  // momentum 0.95
  EXPECT_THAT(WhyNoNet(InputsOf("data 2x1") + LayerOf("BNData", "data", "bn_param { bn_mode: LEARN }")), HasSubstr("does not say which BN"));
}

TEST(Forks, FlipTurnsPlanesRound) {
  const auto run = [](const std::string& options) {
    Trial trial(InputsOf("data 1x1x2x3") + LayerOf("Flip", "data", options));
    return trial.Give("data", UpTo(6)).Run();
  };
  ExpectNear(run(""), {2, 1, 0, 5, 4, 3});
  ExpectNear(run("flip_param { flip_width: false flip_height: true }"), {3, 4, 5, 0, 1, 2});
  ExpectNear(run("flip_param { flip_height: true }"), {5, 4, 3, 2, 1, 0});
}

TEST(Forks, UpsamplePutsNumbersWhereTheyCameFrom) {
  Trial trial(InputsOf("data 1x1x1x2 mask 1x1x1x2") + LayerOf("Upsample", "data mask", "upsample_param { scale: 2 }"));
  trial.Give("data", {5, 7}).Give("mask", {4, 3});
  ExpectNear(trial.Run(), {0, 0, 0, 7, 5, 0, 0, 0});
  EXPECT_THAT(trial.Give("mask", {4, 8}).Error(), HasSubstr("the mask names place 8 of an image of 2x4"));
  EXPECT_THAT(trial.Give("mask", {-1, 0}).Error(), HasSubstr("the mask names place -1"));
  Trial sized(InputsOf("data 1x1x1x2 mask 1x1x1x2") + LayerOf("Upsample", "data mask", "upsample_param { upsample_h: 3 upsample_w: 2 }"));
  ExpectNear(sized.Give("data", {5, 7}).Give("mask", {4, 3}).Run(), {0, 0, 0, 7, 5, 0});
  Trial padded(InputsOf("data 1x1x2x2 mask 1x1x2x2") + LayerOf("Upsample", "data mask", "upsample_param { scale: 2 pad_out_w: true }"));
  EXPECT_EQ(padded.net().blob("out")->shape(), (Shape{1, 1, 4, 3}));
  Trial nearest(InputsOf("data 1x1x1x2") + LayerOf("Upsample", "data", "upsample_param { scale: 2 }"));
  ExpectNear(nearest.Give("data", {5, 7}).Run(), {5, 5, 7, 7, 5, 5, 7, 7});
}

TEST(Forks, InterpPutsCornersOnCorners) {
  Trial trial(InputsOf("data 1x1x2x3") + LayerOf("Interp", "data", "interp_param { zoom_factor: 2 }"));
  ExpectNear(trial.Give("data", {1, 2, 4, 8, 16, 32}).Run(), {1, 1.5, 2, 3, 4, 4.5, 6.75, 9, 13.5, 18, 8, 12, 16, 24, 32});
  const auto shape = [](const std::string& options) {
    return Trial(InputsOf("data 1x1x9x5") + LayerOf("Interp", "data", "interp_param { " + options + " }")).net().blob("out")->shape();
  };
  EXPECT_EQ(shape("shrink_factor: 4"), (Shape{1, 1, 3, 2}));
  EXPECT_EQ(shape("shrink_factor: 4 zoom_factor: 8"), (Shape{1, 1, 17, 9}));
  EXPECT_EQ(shape("height: 7 width: 2"), (Shape{1, 1, 7, 2}));
  EXPECT_EQ(shape("height: 7 width: 2 zoom_factor: 2"), (Shape{1, 1, 17, 9}));
  EXPECT_EQ(shape("zoom_factor: 1 pad_beg: -1 pad_end: -2"), (Shape{1, 1, 6, 2}));
}

TEST(Forks, Relu6CutsAtSix) {
  Trial trial(InputsOf("data 1x4") + LayerOf("ReLU6", "data", ""));
  ExpectNear(trial.Give("data", {-1, 3, 6, 8}).Run(), {0, 3, 6, 6});
}

TEST(Forks, ClassesWeighInTheSoftmaxLossOfSegNet) {
  const std::string weighting = "loss_param { weight_by_label_freqs: true class_weighting: 0.5 class_weighting: 3 }";
  Trial trial(InputsOf("data 2x2 label 2") + LayerOf("SoftmaxWithLoss", "data label", weighting));
  trial.Give("data", {0, 0, 0, 0}).Give("label", {0, 1});
  ExpectNear(trial.Run(), {std::log(2.0) * 3.5 / 2});  // by the number of labels, not by what they weigh
  EXPECT_THAT(WhyNoNet(InputsOf("data 2x3 label 2") + LayerOf("SoftmaxWithLoss", "data label", weighting)),
              HasSubstr("has 2 class_weighting for 3 classes"));
}

TEST(Forks, SoftmaxLossOfRFcnGivesItsTerms) {
  const std::string options = "top: 'probability' top: 'each' loss_param { ignore_label: 1 normalization: PRE_FIXED pre_fixed_normalizer: 4 }";
  for (const char* type : {"SoftmaxWithLoss", "SoftmaxWithLossOHEM"}) {
    Trial trial(InputsOf("data 3x2x1x1 label 3x1x1x1") + LayerOf(type, "data label", options));
    trial.Give("data", {0, 0, 5, 5, 0, std::log(3.0)}).Give("label", {0, 1, 0});
    ExpectNear(trial.Run("each"), {std::log(2.0), 0, std::log(4.0)});
    ExpectNear(trial.Run(), {std::log(8.0) / 4});
    EXPECT_EQ(trial.net().blob("each")->shape(), (Shape{3, 1, 1, 1}));
  }
}

TEST(Forks, BoxAnnotatorKeepsTheHardestOfEachImage) {
  const std::string options = "top: 'kept' box_annotator_ohem_param { roi_per_img: 1 ignore_label: -7 }";
  Trial trial(InputsOf("data 4x5 loss 4 label 4 w 4x2") + LayerOf("BoxAnnotatorOHEM", "data loss label w", options));
  std::vector<double> windows(20, 9.0);
  for (std::size_t i = 0; i < 4; ++i) windows[5 * i] = i < 3 ? 0 : 1;
  trial.Give("data", windows).Give("loss", {1, 3, 2, 0.5}).Give("label", {5, 6, 7, 8}).Give("w", {1, 2, 3, 4, 5, 6, 7, 8});
  ExpectNear(trial.Run(), {-7, 6, -7, 8});
  ExpectNear(trial.Run("kept"), {0, 0, 3, 4, 0, 0, 7, 8});
  EXPECT_THAT(trial.Give("loss", {1, std::nan(""), 2, 0.5}).Error(), HasSubstr("the loss of example 1 is not a number"));
  windows[0] = -1;
  EXPECT_THAT(trial.Give("loss", {1, 3, 2, 0.5}).Give("data", windows).Error(), HasSubstr("window 0 is of image -1"));
}

TEST(Forks, DropoutMayScaleInTheTest) {
  const std::string layer = LayerOf("Dropout", "data", "dropout_param { dropout_ratio: 0.25 scale_train: false }");
  Trial test(InputsOf("data 1x4") + layer, TEST);
  ExpectNear(test.Give("data", {4, 8, 12, 16}).Run(), {3, 6, 9, 12});
  Trial train(InputsOf("data 1x400") + layer);
  double sum = 0;
  for (const double number : train.Give("data", std::vector<double>(400, 1.0)).Run()) {
    EXPECT_TRUE(number == 0 || number == 1);
    sum += number;
  }
  EXPECT_NEAR(sum, 300, 50);
}

TEST(Forks, OptionsThatDoNotFitAreNamed) {
  const auto why = [](const std::string& inputs, const std::string& type, const std::string& bottoms, const std::string& options) {
    return WhyNoNet(InputsOf(inputs) + LayerOf(type, bottoms, options));
  };
  EXPECT_THAT(why("a 2x2 data 2x3x2 b 2x3x2", "Axpy", "a data b", ""), HasSubstr("expected a number for each channel"));
  EXPECT_THAT(why("data 2x6", "ShuffleChannel", "data", ""), HasSubstr("group is 0, expected a divisor of the 6 channels"));
  EXPECT_THAT(why("data 2x6", "ShuffleChannel", "data", "shuffle_channel_param { group: 4 }"), HasSubstr("group is 4"));
  EXPECT_THAT(why("data 2x6", "Permute", "data", "permute_param { order: 2 }"), HasSubstr("order names axis 2, but the blob has 2 axes"));
  EXPECT_THAT(why("data 2x6", "Permute", "data", "permute_param { order: 1 order: 1 }"), HasSubstr("order names axis 1 twice"));
  EXPECT_THAT(why("data 2x4x3x3 rois 2x5", "ROIPooling", "data rois", ""), HasSubstr("needs pooled_h and pooled_w above 0"));
  EXPECT_THAT(why("data 2x4x3x3 rois 2x4", "ROIPooling", "data rois", "roi_pooling_param { pooled_h: 1 pooled_w: 1 }"), HasSubstr("windows of five numbers"));
  EXPECT_THAT(why("data 2x4x3x3 rois 2x5", "PSROIPooling", "data rois", "psroi_pooling_param { spatial_scale: 1 output_dim: 2 group_size: 2 }"),
              HasSubstr("expected output_dim 2 times group_size 2 squared channels"));
  EXPECT_THAT(why("data 2x5 loss 2 label 2 w 2x3", "BoxAnnotatorOHEM", "data loss label w", "top: 'kept'"), HasSubstr("needs roi_per_img"));
  EXPECT_THAT(why("data 2x4 loss 2 label 2 w 2x3", "BoxAnnotatorOHEM", "data loss label w", "top: 'kept' box_annotator_ohem_param { roi_per_img: 1 }"),
              HasSubstr("expected windows of five numbers, and a loss, a label and weights for each"));
  EXPECT_THAT(why("data 2x3 b 2x4", "SmoothL1Loss", "data b", ""), HasSubstr("compares shapes 2x3 and 2x4"));
  EXPECT_THAT(why("data 2x3 label 2", "CenterLoss", "data label", ""), HasSubstr("needs num_output"));
  EXPECT_THAT(why("data 2x3 label 2", "MarginInnerProduct", "data label", ""), HasSubstr("needs num_output"));
  EXPECT_THAT(why("data 2x3 label 3", "MarginInnerProduct", "data label", "margin_inner_product_param { num_output: 2 }"), HasSubstr("a label for each row"));
  EXPECT_THAT(why("data 1x1x3x3", "Interp", "data", ""), HasSubstr("needs height and width, a zoom_factor, or a shrink_factor"));
  EXPECT_THAT(why("data 1x1x3x3", "Interp", "data", "interp_param { zoom_factor: 2 pad_beg: -3 }"), HasSubstr("leave nothing"));
  EXPECT_THAT(why("data 1x1x3x3", "Interp", "data", "interp_param { zoom_factor: 2147483647 }"), HasSubstr("would make images of"));
  EXPECT_THAT(why("data 1x1x3x3", "Upsample", "data", "upsample_param { upsample_h: 3 upsample_w: 3 }"), HasSubstr("need a second bottom"));
}

}  // namespace
}  // namespace poseidon::caffe
