// SPDX-License-Identifier: Apache-2.0
// The backward passes of layers of forks against central differences.
#include "tests/shared/net_trial.h"

namespace poseidon::caffe {
namespace {

struct ForkCase {
  const char* name;
  const char* inputs;  // "data 2x3x4 label 2"
  const char* layers;
  GradientCheck check = {};
};

#define ONE_BOTTOM(type, options) "layer { name: 'l' type: '" type "' bottom: 'data' top: 'out' " options " }"
#define FILLED "{ type: 'uniform' min: 0.5 max: 1.5 }"
#define LARGE_MARGIN(options)                                                                                   \
  "layer { name: 'l' type: 'LargeMarginInnerProduct' bottom: 'data' bottom: 'label' top: 'out' "                \
  "largemargin_inner_product_param { num_output: 4 weight_filler { type: 'uniform' min: -1 max: 1 } " options " } }"
#define SEGNET "scale_filler " FILLED " shift_filler " FILLED
#define SLOPE "slope_filler " FILLED " bias_filler " FILLED
#define IN_PLACE_ABOVE(type, options)                                                      \
  "layer { name: 'p' type: 'Power' bottom: 'data' top: 'x' power_param { scale: 2 } }"      \
  "layer { name: 'l' type: '" type "' bottom: 'x' top: 'x' " options " }"                   \
  "layer { name: 'above' type: 'Power' bottom: 'x' top: 'x' power_param { scale: -2 shift: 0.7 } }"

GradientCheck Windows(double last) {
  return {.ranges = {{"rois", {0, last, true}}}, .without_gradient = {"rois"}};
}
GradientCheck FourClasses() { return {.ranges = {{"label", {0, 4, true}}}, .without_gradient = {"label"}}; }
GradientCheck Testing() { return {.phase = TEST}; }

// Windows whose image is always 0: the numbers of the other columns are anything.
#define ROIS                                                                                               \
  "layer { name: 'cut' type: 'Slice' bottom: 'rois' top: 'image' top: 'corners' slice_param { slice_point: 1 } }" \
  "layer { name: 'zero' type: 'Power' bottom: 'image' top: 'first' power_param { scale: 0 } }"               \
  "layer { name: 'join' type: 'Concat' bottom: 'first' bottom: 'corners' top: 'windows' }"

const ForkCase kForkCases[] = {
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
    {"large_margin_single", "data 9x5 label 9", LARGE_MARGIN("base: 3"), FourClasses()},
    {"large_margin_double", "data 9x5 label 9", LARGE_MARGIN("type: DOUBLE base: 0"), FourClasses()},
    {"large_margin_triple", "data 9x5 label 9", LARGE_MARGIN("type: TRIPLE base: 3"), FourClasses()},
    {"large_margin_quadruple", "data 9x5 label 9", LARGE_MARGIN("type: QUADRUPLE base: 0.5 lambda_min: 1"), FourClasses()},
    {"large_margin_images", "data 9x2x2x2 label 9", LARGE_MARGIN("type: TRIPLE base: 0"), FourClasses()},
    {"l2_norm", "data 3x4", ONE_BOTTOM("L2Norm", "")},
    {"l2_norm_images", "data 2x3x2x2", ONE_BOTTOM("L2Norm", "l2norm_param { eps: 0.5 }")},
    {"flip", "data 2x3x2x4", ONE_BOTTOM("Flip", "")},
    {"flip_both", "data 2x1x3x4", ONE_BOTTOM("Flip", "flip_param { flip_height: true }")},
    {"norm_places", "data 2x3x2x2", ONE_BOTTOM("Norm", "")},
    {"abs_loss", "data 3x4 b 3x4", "layer { name: 'l' type: 'AbsLoss' bottom: 'data' bottom: 'b' top: 'out' loss_weight: 0.6 }"},
    {"angle_loss", "data 2x3x2x2 b 2x3x2x2",
     "layer { name: 'l' type: 'AngleLoss' bottom: 'data' bottom: 'b' top: 'out' }",
     {.ranges = {{"data", {-0.5, 0.5}}, {"b", {-0.5, 0.5}}}, .without_gradient = {"b"}}},
    {"multi_softmax_loss", "data 2x3x2 label 2x2",
     "layer { name: 'l' type: 'MultiSoftmaxWithLoss' bottom: 'data' bottom: 'label' top: 'out' }",
     {.ranges = {{"label", {1, 4, true}}}, .without_gradient = {"label"}}},
    {"flow_warp", "data 2x2x4x5 flow 2x2x4x5",
     "layer { name: 'l' type: 'FlowWarp' bottom: 'data' bottom: 'flow' top: 'out' }", {.ranges = {{"flow", {-2, 2}}}}},
    {"warping", "data 2x2x4x5 flow 2x2x4x5",
     "layer { name: 'l' type: 'Warping' bottom: 'data' bottom: 'flow' top: 'out' }", {.ranges = {{"flow", {-6, 6}}}}},
    {"merge_crop", "data 2x2x2x3 b 2x3x4x6",
     "layer { name: 'l' type: 'MergeCrop' bottom: 'data' bottom: 'b' top: 'out' mergecrop_param { backward: true backward: true } }"},
    {"merge_crop_add", "data 2x2x3 b 2x2x6",
     "layer { name: 'l' type: 'MergeCrop' bottom: 'data' bottom: 'b' top: 'out' mergecrop_param { operation: ADD backward: true backward: true } }"},
    {"gather", "data 2x3", ONE_BOTTOM("Gather", "")},
    {"spatial_wta", "data 2x2x4x4", ONE_BOTTOM("SpatialWta", "spatial_wta_param { kernel_size: 2 stride: 2 }")},
    {"spatial_wta_plane", "data 2x2x4x4", ONE_BOTTOM("SpatialWta", "spatial_wta_param { global_wta: true }")},
    {"im_resize", "data 2x2x5x6", ONE_BOTTOM("ImResize", "imresize_param { factor: 2 start_scale: 1 scale_gap: 0.4 }")},
    {"pooling_dilation", "data 2x2x6x7", ONE_BOTTOM("Pooling", "pooling_param { kernel_size: 2 stride: 2 dilation: 2 }")},
    {"bn_data", "data 4x3x2x2", ONE_BOTTOM("BNData", "bn_param { " SEGNET " }")},
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

class ForkGradient : public testing::TestWithParam<ForkCase> {};

TEST_P(ForkGradient, AgreesWithDifferences) {
  CheckGradients(InputsOf(GetParam().inputs) + GetParam().layers, GetParam().check);
}

INSTANTIATE_TEST_SUITE_P(Layers, ForkGradient, testing::ValuesIn(kForkCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace poseidon::caffe
