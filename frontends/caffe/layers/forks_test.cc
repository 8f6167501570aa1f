// SPDX-License-Identifier: Apache-2.0
// Layers of forks: their gradients against central differences, their meaning against numbers from a few lines of NumPy that
// follow the fork's description (docs/caffe/forks.md), their refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/shared/gradient_checker.h"

namespace poseidon::caffe {
namespace {

using testing::HasSubstr;

struct Case {
  const char* name;
  const char* inputs;  // "data 2x3x4 label 2"
  const char* layers;
  GradientCheck check = {};
};

std::string InputsOf(const std::string& inputs) {
  std::istringstream words(inputs);
  std::string tops;
  std::string shapes;
  for (std::string name, dims; words >> name >> dims;) {
    tops += "top: '" + name + "' ";
    shapes += "shape { dim: ";
    for (const char d : dims) shapes += d == 'x' ? std::string(" dim: ") : std::string(1, d);
    shapes += " } ";
  }
  return "layer { name: 'in' type: 'Input' " + tops + "input_param { " + shapes + "} }\n";
}

// A layer named l from `bottoms` to out.
std::string LayerOf(const std::string& type, const std::string& bottoms, const std::string& options) {
  std::istringstream words(bottoms);
  std::string text = "layer { name: 'l' type: '" + type + "' ";
  for (std::string name; words >> name;) text += "bottom: '" + name + "' ";
  return text + "top: 'out' " + options + " }\n";
}

#define ONE_BOTTOM(type, options) "layer { name: 'l' type: '" type "' bottom: 'data' top: 'out' " options " }"
#define FILLED "{ type: 'uniform' min: 0.5 max: 1.5 }"
#define SEGNET "scale_filler " FILLED " shift_filler " FILLED
#define SLOPE "slope_filler " FILLED " bias_filler " FILLED
#define IN_PLACE_ABOVE(type, options)                                                      \
  "layer { name: 'p' type: 'Power' bottom: 'data' top: 'x' power_param { scale: 2 } }"      \
  "layer { name: 'l' type: '" type "' bottom: 'x' top: 'x' " options " }"                   \
  "layer { name: 'above' type: 'Power' bottom: 'x' top: 'x' power_param { scale: -2 shift: 0.7 } }"

GradientCheck Windows(double last) {
  return {.ranges = {{"rois", {0, last, true}}}, .without_gradient = {"rois"}};
}
GradientCheck Testing() { return {.phase = TEST}; }

// Windows whose image is always 0: the numbers of the other columns are anything.
#define ROIS                                                                                               \
  "layer { name: 'cut' type: 'Slice' bottom: 'rois' top: 'image' top: 'corners' slice_param { slice_point: 1 } }" \
  "layer { name: 'zero' type: 'Power' bottom: 'image' top: 'first' power_param { scale: 0 } }"               \
  "layer { name: 'join' type: 'Concat' bottom: 'first' bottom: 'corners' top: 'windows' }"

const Case kCases[] = {
    {"axpy", "a 2x3x1x1 data 2x3x2x2 b 2x3x2x2", "layer { name: 'l' type: 'Axpy' bottom: 'a' bottom: 'data' bottom: 'b' top: 'out' }"},
    {"axpy_flat", "a 2x3 data 2x3x5 b 2x3x5", "layer { name: 'l' type: 'Axpy' bottom: 'a' bottom: 'data' bottom: 'b' top: 'out' }"},
    {"shuffle_channel", "data 2x6x2x3", ONE_BOTTOM("ShuffleChannel", "shuffle_channel_param { group: 3 }")},
    {"permute", "data 2x3x4x5", ONE_BOTTOM("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }")},
    {"permute_some", "data 2x3x4", ONE_BOTTOM("Permute", "permute_param { order: 2 }")},
    {"normalize", "data 2x3x2x2", ONE_BOTTOM("Normalize", "norm_param { scale_filler { value: 3 } }")},
    {"normalize_place", "data 2x3x2x2",
     ONE_BOTTOM("Normalize", "norm_param { across_spatial: false channel_shared: false scale_filler " FILLED " }")},
    {"normalize_image", "data 2x3x2x2",
     IN_PLACE_ABOVE("Normalize", "norm_param { across_spatial: true channel_shared: false scale_filler " FILLED " }")},
    {"smooth_l1", "data 3x4x2x2 b 3x4x2x2", "layer { name: 'l' type: 'SmoothL1Loss' bottom: 'data' bottom: 'b' top: 'out' }",
     {.ranges = {{"data", {-2, 2}}}}},
    {"smooth_l1_weights", "data 3x4 b 3x4 w 3x4",
     "layer { name: 'l' type: 'SmoothL1Loss' bottom: 'data' bottom: 'b' bottom: 'w' top: 'out' loss_weight: 0.6 }",
     {.ranges = {{"data", {-2, 2}}}, .without_gradient = {"w"}}},
    {"smooth_l1_both_weights", "data 3x4 b 3x4 w 3x4 v 3x4",
     "layer { name: 'l' type: 'SmoothL1Loss' bottom: 'data' bottom: 'b' bottom: 'w' bottom: 'v' top: 'out' "
     "smooth_l1_loss_param { sigma: 2 } }",
     {.without_gradient = {"w", "v"}}},
    {"roi_pooling", "data 1x2x6x7 rois 3x5",
     ROIS "layer { name: 'l' type: 'ROIPooling' bottom: 'data' bottom: 'windows' top: 'out' roi_pooling_param { pooled_h: 2 "
          "pooled_w: 3 spatial_scale: 0.5 } }",
     Windows(14)},
    {"psroi_pooling", "data 1x8x6x7 rois 3x5",
     ROIS "layer { name: 'l' type: 'PSROIPooling' bottom: 'data' bottom: 'windows' top: 'out' psroi_pooling_param { spatial_scale: "
          "0.5 output_dim: 2 group_size: 2 } }",
     Windows(14)},
    {"bn_segnet", "data 4x3x2x2", ONE_BOTTOM("BN", "bn_param { " SEGNET " }")},
    {"bn_segnet_in_place", "data 4x3x2", IN_PLACE_ABOVE("BN", "bn_param { " SEGNET " }")},
    {"bn_segnet_test", "data 4x3x2x2", ONE_BOTTOM("BN", "bn_param { " SEGNET " }"), Testing()},
    {"bn_inference", "data 4x3x2x2", ONE_BOTTOM("BN", "bn_param { bn_mode: INFERENCE " SEGNET " }")},
    {"bn_inference_in_place", "data 4x3x2", IN_PLACE_ABOVE("BN", "bn_param { bn_mode: INFERENCE " SEGNET " }")},
    {"bn_slope", "data 4x3x2x2", ONE_BOTTOM("BN", "bn_param { " SLOPE " }")},
    {"bn_slope_in_place", "data 4x3x2", IN_PLACE_ABOVE("BN", "bn_param { " SLOPE " }")},
    {"bn_slope_frozen", "data 4x3x2", ONE_BOTTOM("BN", "bn_param { frozen: true " SLOPE " }")},
    {"batch_norm_scale_bias", "data 4x3x2x2", ONE_BOTTOM("BatchNorm", "batch_norm_param { scale_bias: true scale_filler " FILLED " }")},
    {"batch_norm_scale_bias_in_place", "data 4x3x2", IN_PLACE_ABOVE("BatchNorm", "batch_norm_param { bias_filler " FILLED " }")},
    {"batch_norm_stats", "data 6x3x2", ONE_BOTTOM("BatchNorm", "batch_norm_param { stats_batch_size: 2 }")},
    {"batch_norm_stats_larger_test", "data 3x3x2", ONE_BOTTOM("BatchNorm", "batch_norm_param { stats_batch_size: 8 }"), Testing()},
    {"upsample", "data 1x2x2x4",
     "layer { name: 'p' type: 'Pooling' bottom: 'data' top: 'x' top: 'mask' pooling_param { kernel_size: 2 stride: 2 } }"
     "layer { name: 'l' type: 'Upsample' bottom: 'x' bottom: 'mask' top: 'out' upsample_param { scale: 2 } }"},
    {"upsample_nearest", "data 2x2x3x2", ONE_BOTTOM("Upsample", "upsample_param { scale: 3 }")},
    {"interp_zoom", "data 2x2x3x4", ONE_BOTTOM("Interp", "interp_param { zoom_factor: 3 }")},
    {"interp_shrink", "data 1x2x7x5", ONE_BOTTOM("Interp", "interp_param { shrink_factor: 2 pad_beg: -1 }")},
    {"interp_size", "data 1x2x3x4", ONE_BOTTOM("Interp", "interp_param { height: 5 width: 3 pad_end: -1 }")},
    {"relu6", "data 4x5", ONE_BOTTOM("ReLU6", ""), {.ranges = {{"data", {-8, 12}}}}},
    {"relu6_in_place", "data 4x5", IN_PLACE_ABOVE("ReLU6", ""), {.ranges = {{"data", {-8, 12}}}}},
    {"softmax_class_weighting", "data 4x3x2 label 4x2",
     "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'data' bottom: 'label' top: 'out' loss_param { ignore_label: 1 "
     "weight_by_label_freqs: true class_weighting: 0.5 class_weighting: 7 class_weighting: 2 } }",
     {.ranges = {{"label", {0, 3, true}}}, .without_gradient = {"label"}}},
    {"dropout_test_scaled", "data 4x9", ONE_BOTTOM("Dropout", "dropout_param { scale_train: false }"), Testing()},
    {"dropout_train_unscaled", "data 4x9", ONE_BOTTOM("Dropout", "dropout_param { scale_train: false }")},
    {"dropout_samples_in_test", "data 4x9", ONE_BOTTOM("Dropout", "dropout_param { sample_weights_test: true }"), Testing()},
};

class ForkGradient : public testing::TestWithParam<Case> {};

TEST_P(ForkGradient, AgreesWithDifferences) {
  CheckGradients(InputsOf(GetParam().inputs) + GetParam().layers, GetParam().check);
}

INSTANTIATE_TEST_SUITE_P(Layers, ForkGradient, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

// A net in f64 whose inputs are given numbers.
class Trial {
 public:
  explicit Trial(const std::string& text, Phase phase = TRAIN) {
    NetOptions options;
    options.dtype = DType::kF64;
    net_ = MakeNet("force_backward: true\n" + text, phase, options);
  }
  Trial& Give(const std::string& blob, const std::vector<double>& numbers) {
    Put(net_->blob(blob)->data, numbers);
    return *this;
  }
  Trial& GiveParam(std::size_t index, const std::vector<double>& numbers) {
    Put(ParamData(index), numbers);
    return *this;
  }
  std::string Error() { return net_->Forward().status().message(); }
  std::vector<double> Run(const std::string& blob = "out") {
    const auto loss = net_->Forward();
    EXPECT_TRUE(loss.ok()) << loss.status().message();
    return Numbers(net_->blob(blob)->data);
  }
  void Backward() { ASSERT_TRUE(net_->Backward().ok()); }
  Net& net() { return *net_; }
  std::vector<double> Param(std::size_t index) { return Numbers(ParamData(index)); }
  static std::vector<double> Numbers(const at::Tensor& tensor) {
    const at::Tensor flat = tensor.contiguous();
    return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
  }

 private:
  at::Tensor ParamData(std::size_t index) { return net_->learnable_params()[index].blob.data; }
  static void Put(const at::Tensor& tensor, const std::vector<double>& numbers) {
    ASSERT_EQ(tensor.numel(), static_cast<std::int64_t>(numbers.size()));
    std::copy(numbers.begin(), numbers.end(), tensor.mutable_data_ptr<double>());
  }

  std::unique_ptr<Net> net_;
};

void ExpectNear(const std::vector<double>& got, const std::vector<double>& expected, double tolerance = 1e-8) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << "at " << i;
}

std::vector<double> UpTo(int count) {
  std::vector<double> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(i);
  return numbers;
}

// The gradient of a net's loss, of inputs alone, against central differences.
void ExpectGradients(Trial& trial, const std::vector<std::string>& blobs) {
  trial.Run();
  trial.Backward();
  for (const std::string& blob : blobs) {
    std::vector<double> numbers = Trial::Numbers(trial.net().blob(blob)->data);
    const std::vector<double> gradient = Trial::Numbers(trial.net().blob(blob)->diff);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto loss = [&](double number) {
        std::vector<double> others = numbers;
        others[i] = number;
        trial.Give(blob, others);
        return *trial.net().Forward();
      };
      EXPECT_NEAR(gradient[i], (loss(numbers[i] + 1e-6) - loss(numbers[i] - 1e-6)) / 2e-6, 2e-7) << blob << " at " << i;
    }
    trial.Give(blob, numbers);
  }
}

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
  EXPECT_THAT(why("data 1x1x3x3", "Interp", "data", ""), HasSubstr("needs height and width, a zoom_factor, or a shrink_factor"));
  EXPECT_THAT(why("data 1x1x3x3", "Interp", "data", "interp_param { zoom_factor: 2 pad_beg: -3 }"), HasSubstr("leave nothing"));
  EXPECT_THAT(why("data 1x1x3x3", "Interp", "data", "interp_param { zoom_factor: 2147483647 }"), HasSubstr("would make images of"));
  EXPECT_THAT(why("data 1x1x3x3", "Upsample", "data", "upsample_param { upsample_h: 3 upsample_w: 3 }"), HasSubstr("need a second bottom"));
}

// --- SSD -------------------------------------------------------------------------------------------

TEST(Ssd, PriorBoxMakesASetAtEveryPlace) {
  Trial trial(InputsOf("data 1x3x1x2 image 1x3x20x40") +
              LayerOf("PriorBox", "data image",
                      "prior_box_param { min_size: 4 max_size: 9 aspect_ratio: 2 aspect_ratio: 2 aspect_ratio: 1 variance: 0.1 variance: 0.2 "
                      "variance: 0.3 variance: 0.4 }"));
  ASSERT_EQ(trial.net().blob("out")->shape(), (Shape{1, 2, 32}));
  std::vector<double> expected = {0.2, 0.4, 0.3, 0.6, 0.175, 0.35, 0.325, 0.65, 0.1792893219, 0.4292893219, 0.3207106781, 0.5707106781,
                                  0.2146446609, 0.3585786438, 0.2853553391, 0.6414213562, 0.7, 0.4, 0.8, 0.6, 0.675, 0.35, 0.825, 0.65,
                                  0.6792893219, 0.4292893219, 0.8207106781, 0.5707106781, 0.7146446609, 0.3585786438, 0.7853553391, 0.6414213562};
  for (int i = 0; i < 32; ++i) expected.push_back(0.1 * (i % 4 + 1));
  ExpectNear(trial.Run(), expected, 1e-7);  // sizes are floats
}

TEST(Ssd, PriorBoxTakesStepsSizesAndEdges) {
  const std::string options = "prior_box_param { min_size: 4.9 clip: true flip: false aspect_ratio: 4 step: 3 img_size: 10 offset: 0 }";
  Trial trial(InputsOf("data 1x3x1x2 image 1x3x7x7") + LayerOf("PriorBox", "data image", options));
  std::vector<double> expected = {0, 0, 0.2, 0.2, 0, 0, 0.4, 0.1, 0.1, 0, 0.5, 0.2, 0, 0, 0.7, 0.1};  // of 4.9 pixels 4 are kept
  expected.insert(expected.end(), 16, 0.1);
  ExpectNear(trial.Run(), expected, 1e-7);
}

constexpr char kPriors[] = "data 1x1x1x1 loc 2x16 conf 2x12 priors 1x2x16 truth 1x1x4x8";
const std::vector<double> kPriorNumbers = {0.1, 0.1, 0.4, 0.4, 0.3, 0.3, 0.8, 0.8, 0.55, 0.5, 0.95, 0.9, 0, 0.6, 0.3, 1,
                                           0.1, 0.1, 0.2, 0.2, 0.1, 0.1, 0.2, 0.2, 0.1, 0.1, 0.2, 0.2, 0.1, 0.1, 0.2, 0.2};
const std::vector<double> kTruth = {0, 1, 0, 0.12, 0.1, 0.42, 0.45, 0, 0, 2, 0, 0.35, 0.3, 0.75, 0.85, 0,
                                    -1, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0.6, 0.55, 0.9, 0.9, 0};
const std::vector<double> kPlaces = {-1, 0, 1, -0.2, -0.4, 0.6, -0.6, 0.4, 0.2, -1, 0, 1, 0.8, -0.4, 0.6, -0.6,
                                     0.4, -0.8, 0.2, -1, 1, -0.2, 0.8, -0.4, -0.6, 0.4, -0.8, 0.2, 0, 1, -0.2, 0.8};
std::vector<double> ScoresOfPlaces() {
  std::vector<double> scores;
  for (int n = 0; n < 2; ++n) {
    for (int p = 0; p < 4; ++p) {
      for (int c = 0; c < 3; ++c) scores.push_back((5 * n + 2 * p + 3 * c) % 7 / 3.0 - 1);
    }
  }
  return scores;
}
Trial& GiveSsd(Trial& trial) {
  return trial.Give("loc", kPlaces).Give("conf", ScoresOfPlaces()).Give("priors", kPriorNumbers).Give("truth", kTruth);
}
std::string MultiBox(const std::string& options) {
  return LayerOf("MultiBoxLoss", "loc conf priors truth", "multibox_loss_param { num_classes: 3 " + options + " }");
}

TEST(Ssd, MultiBoxLossMatchesAndMines) {
  Trial trial(InputsOf(kPriors) + MultiBox("loc_weight: 2 neg_pos_ratio: 1 code_type: CENTER_SIZE"));
  ExpectNear(GiveSsd(trial).Run(), {5.270053056916044});
  // The factor is the number of matches.
  Trial plain(InputsOf(kPriors) + LayerOf("MultiBoxLoss", "loc conf priors truth",
                                          "loss_param { normalization: NONE } multibox_loss_param { num_classes: 3 loc_weight: 2 neg_pos_ratio: "
                                          "1 code_type: CENTER_SIZE }"));
  ExpectNear(GiveSsd(plain).Run(), {3 * 5.270053056916044});
}

TEST(Ssd, GradientsOfTheMultiBoxLossAgreeWithDifferences) {
  for (const char* options : {"code_type: CENTER_SIZE", "code_type: CORNER loc_loss_type: L2", "code_type: CORNER_SIZE conf_loss_type: LOGISTIC",
                              "code_type: CENTER_SIZE encode_variance_in_target: true mining_type: NONE", "mining_type: NONE conf_loss_type: LOGISTIC",
                              "match_type: BIPARTITE bp_inside: true ignore_cross_boundary_bbox: true neg_overlap: 0.2"}) {
    SCOPED_TRACE(options);
    Trial trial(InputsOf(kPriors) + MultiBox(options));
    ExpectGradients(GiveSsd(trial), {"loc", "conf"});
  }
}

TEST(Ssd, AGroundTruthThatIsNoneIsNamed) {
  Trial trial(InputsOf(kPriors) + MultiBox(""));
  const auto error = [&](std::size_t place, double number) {
    std::vector<double> truth = kTruth;
    truth[place] = number;
    return GiveSsd(trial).Give("truth", truth).Error();
  };
  EXPECT_THAT(error(0, 2), HasSubstr("row 0 of the ground truth is of image 2"));
  EXPECT_THAT(error(0, std::nan("")), HasSubstr("row 0 of the ground truth is of image nan"));
  EXPECT_THAT(error(9, 3), HasSubstr("row 1 of the ground truth has class 3"));
  EXPECT_THAT(error(9, 0), HasSubstr("other than the background"));
  EXPECT_EQ(error(3, std::nan("")), "");  // overlaps nothing
  EXPECT_EQ(error(5, -4), "");
  std::vector<double> priors = kPriorNumbers;
  priors[17] = 0;
  EXPECT_THAT(GiveSsd(trial).Give("priors", priors).Error(), HasSubstr("prior 0 has a variance that is not above 0"));
  EXPECT_THAT(WhyNoNet(InputsOf(kPriors) + MultiBox("share_location: false")), HasSubstr("share_location: false of SSD is not supported"));
  EXPECT_THAT(WhyNoNet(InputsOf(kPriors) + MultiBox("mining_type: HARD_EXAMPLE")), HasSubstr("HARD_EXAMPLE of SSD is not supported"));
  EXPECT_THAT(WhyNoNet(InputsOf(kPriors) + LayerOf("MultiBoxLoss", "loc conf priors truth", "multibox_loss_param { num_classes: 4 }")),
              HasSubstr("expected 4 and 4 numbers for each"));
}

std::string Detect(const std::string& options) {
  return LayerOf("DetectionOutput", "loc conf priors",
                 "detection_output_param { num_classes: 3 code_type: CENTER_SIZE " + options + " }");
}
constexpr char kOneImage[] = "loc 1x16 conf 1x12 priors 1x2x16";
// Of classes background, 1, 2 at the four priors; the first two boxes of class 1 overlap by 0.53 where the second is moved.
const std::vector<double> kConfidence = {0.1, 0.8, 0.1, 0.2, 0.7, 0.1, 0.05, 0.05, 0.9, 0.6, 0.2, 0.2};
const std::vector<double> kMoved = {0, 0, 0, 0, -5.4, -5.4, -2.5541281188, -2.5541281188, 0, 0, 0, 0, 0, 0, 0, 0};

TEST(Ssd, DetectionOutputKeepsTheMostConfident) {
  const auto detect = [](const std::string& options, const std::vector<double>& places) {
    Trial trial(InputsOf(kOneImage) + Detect(options));
    return trial.Give("loc", places).Give("conf", kConfidence).Give("priors", kPriorNumbers).Run();
  };
  const std::vector<double> none(16, 0.0);
  // Image, class, confidence, corners: predictions of 0 give the priors.
  ExpectNear(detect("confidence_threshold: 0.3", none), {0, 1, 0.8, 0.1, 0.1, 0.4, 0.4, 0, 1, 0.7, 0.3, 0.3, 0.8, 0.8, 0, 2, 0.9, 0.55, 0.5, 0.95, 0.9});
  // Centre (0.55 - 0.1 * 5.4 * 0.5), side 0.5 * exp(0.2 * -2.554): 0.13 to 0.43.
  ExpectNear(detect("confidence_threshold: 0.3 nms_param { nms_threshold: 0.9 }", kMoved),
             {0, 1, 0.8, 0.1, 0.1, 0.4, 0.4, 0, 1, 0.7, 0.13, 0.13, 0.43, 0.43, 0, 2, 0.9, 0.55, 0.5, 0.95, 0.9});
  ExpectNear(detect("confidence_threshold: 0.3 nms_param { nms_threshold: 0.5 }", kMoved),
             {0, 1, 0.8, 0.1, 0.1, 0.4, 0.4, 0, 2, 0.9, 0.55, 0.5, 0.95, 0.9});
  ExpectNear(detect("confidence_threshold: 0.3 keep_top_k: 2", none), {0, 1, 0.8, 0.1, 0.1, 0.4, 0.4, 0, 2, 0.9, 0.55, 0.5, 0.95, 0.9});
  ExpectNear(detect("confidence_threshold: 0.3 nms_param { top_k: 1 }", none), {0, 1, 0.8, 0.1, 0.1, 0.4, 0.4, 0, 2, 0.9, 0.55, 0.5, 0.95, 0.9});
  ExpectNear(detect("confidence_threshold: 0.95", none), {0, -1, -1, -1, -1, -1, -1});
  EXPECT_EQ(detect("", none).size(), 7U * 8);  // every class at every prior; they overlap little
}

TEST(Ssd, EveryClassMayHaveBoxesOfItsOwn) {
  Trial trial(InputsOf("loc 1x48 conf 1x12 priors 1x2x16") + Detect("share_location: false confidence_threshold: 0.85"));
  std::vector<double> places(48, 0.0);
  places[2 * 12 + 2 * 4] = 5;  // class 2 at prior 2, the centre's x: 0.1 * 5 of its width of 0.4
  trial.Give("loc", places).Give("conf", kConfidence).Give("priors", kPriorNumbers);
  ExpectNear(trial.Run(), {0, 2, 0.9, 0.75, 0.5, 1.15, 0.9});
}

}  // namespace
}  // namespace poseidon::caffe
