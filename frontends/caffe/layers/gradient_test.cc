// SPDX-License-Identifier: Apache-2.0
// Every layer's backward pass against central differences.
#include <gtest/gtest.h>

#include "tests/shared/gradient_checker.h"

namespace poseidon::caffe {
namespace {

struct Case {
  const char* name;
  const char* inputs;  // "data 2x3x4 label 2"
  const char* layers;
  GradientCheck check = {};
};

GradientCheck Labels(const char* blob, double classes) {
  return {.ranges = {{blob, {0, classes, true}}}, .without_gradient = {blob}};
}
GradientCheck Ranges(std::map<std::string, InputRange> ranges) {
  return {.ranges = std::move(ranges)};
}
GradientCheck InTest() { return {.phase = TEST}; }

// One layer named l from data to out.
#define ONE(type, options) \
  "layer { name: 'l' type: '" type "' bottom: 'data' top: 'out' " options " }"
#define IN_PLACE(type, options)                                                     \
  "layer { name: 'p' type: 'Power' bottom: 'data' top: 'x' power_param { scale: 2 } }" \
  "layer { name: 'l' type: '" type "' bottom: 'x' top: 'x' " options " }"
// Behind one layer: its top is not what it was when it runs backward.
#define CHANGED_ABOVE \
  "layer { name: 'above' type: 'Power' bottom: 'out' top: 'out' power_param { scale: -2 shift: 0.7 } }"
// A normalization, and a scale in place on its top, which it computes too; what is above works in place again.
#define NORMALIZED(bottom, top, options)                                                                              \
  "layer { name: 'p' type: 'Power' bottom: 'data' top: 'x' power_param { scale: 2 } }"                                 \
  "layer { name: 'n' type: 'BatchNorm' bottom: '" bottom "' top: '" top "' }"                                          \
  "layer { name: 's' type: 'Scale' bottom: '" top "' top: '" top "' " options " }"                                     \
  "layer { name: 'l' type: 'TanH' bottom: '" top "' top: '" top "' }"
#define LOSS(type, options) \
  "layer { name: 'l' type: '" type "' bottom: 'data' bottom: 'label' top: 'out' " options " }"
#define TWO(type, options) \
  "layer { name: 'l' type: '" type "' bottom: 'data' bottom: 'b' top: 'out' " options " }"
#define RECURRENT(type, more, options)                                                           \
  "layer { name: 'l' type: '" type "' bottom: 'data' bottom: 'cont' top: 'out' " more            \
  " recurrent_param { num_output: 3 weight_filler { type: 'uniform' min: -1 } bias_filler { type: " \
  "'uniform' } " options " } }"

const Case kCases[] = {
    {"absval", "data 3x4", ONE("AbsVal", "")},
    {"batch_norm", "data 4x3x2x2", ONE("BatchNorm", "")},
    {"batch_norm_2d", "data 5x3", ONE("BatchNorm", "")},
    {"batch_norm_inplace", "data 4x3x2", IN_PLACE("BatchNorm", "")},
    {"batch_norm_scaled", "data 4x3x2x2", NORMALIZED("x", "y", "scale_param { bias_term: true }")},
    {"batch_norm_scaled_inplace", "data 4x3x2", NORMALIZED("x", "x", "")},
    {"batch_norm_scaled_test", "data 4x3x2", NORMALIZED("x", "x", "scale_param { bias_term: true }"), InTest()},
    {"batch_norm_test", "data 4x3x2", ONE("BatchNorm", ""), InTest()},
    {"batch_reindex", "data 3x4 b 5", TWO("BatchReindex", ""), Labels("b", 3)},
    {"bias", "data 2x3x4", ONE("Bias", "")},
    {"bias_two", "data 2x3x4 b 3x4", TWO("Bias", "")},
    {"bnll", "data 3x4", ONE("BNLL", ""), Ranges({{"data", {-5, 5}}})},
    {"bnll_inplace", "data 3x4", IN_PLACE("BNLL", "")},
    {"clip", "data 3x4", ONE("Clip", "clip_param { min: -0.5 max: 0.4 }")},
    {"concat", "data 2x3x4 b 2x2x4", TWO("Concat", "")},
    {"concat_0", "data 2x3 b 1x3", TWO("Concat", "concat_param { axis: 0 }")},
    {"concat_one", "data 2x3", ONE("Concat", "")},
    {"contrastive", "data 4x3 b 4x3 label 4",
     "layer { name: 'l' type: 'ContrastiveLoss' bottom: 'data' bottom: 'b' bottom: 'label' "
     "top: 'out' contrastive_loss_param { margin: 1.5 legacy_version: true } }",
     Labels("label", 2)},
    {"convolution", "data 2x3x6x5",
     ONE("Convolution",
         "convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'xavier' } "
         "bias_filler { type: 'uniform' } }")},
    {"convolution_of_one_channel", "data 3x1x6x5",
     ONE("Convolution",
         "convolution_param { num_output: 4 kernel_h: 3 kernel_w: 2 pad: 1 stride: 2 weight_filler { type: 'xavier' } "
         "bias_filler { type: 'uniform' min: -1 max: 1 } }")},
    {"convolution_full", "data 2x4x7x6",
     ONE("Convolution",
         "convolution_param { num_output: 6 group: 2 kernel_h: 3 kernel_w: 2 pad: 1 stride: 2 "
         "dilation: 2 dilation: 1 weight_filler { type: 'xavier' } }")},
    {"convolution_1d", "data 2x3x8",
     ONE("Convolution",
         "convolution_param { num_output: 2 kernel_size: 3 weight_filler { type: 'xavier' } }")},
    {"convolution_3d", "data 1x2x4x4x4",
     ONE("Convolution", "convolution_param { num_output: 2 kernel_size: 2 bias_term: false "
                        "weight_filler { type: 'xavier' } }")},
    {"convolution_4d", "data 2x4x3x4x3x3",
     ONE("Convolution", "convolution_param { num_output: 6 group: 2 kernel_size: 2 stride: 1 stride: 2 stride: 1 stride: 2 pad: 0 "
                        "pad: 1 pad: 0 pad: 1 dilation: 1 dilation: 2 dilation: 1 dilation: 1 weight_filler { type: 'xavier' } "
                        "bias_filler { type: 'uniform' } }")},
    {"convolution_axis2", "data 2x2x3x4x4",
     ONE("Convolution",
         "convolution_param { num_output: 2 kernel_size: 2 axis: 2 weight_filler { type: "
         "'xavier' } }")},
    {"convolution_two_bottoms", "data 1x2x4x4 b 1x2x5x4",
     "layer { name: 'l' type: 'Convolution' bottom: 'data' bottom: 'b' top: 'out' top: 'out2' "
     "convolution_param { num_output: 3 kernel_size: 3 weight_filler { type: 'xavier' } } }"},
    {"crop", "data 2x3x5x6 b 2x3x2x3", TWO("Crop", "crop_param { offset: 1 offset: 2 }"),
     {.without_gradient = {"b"}}},
    {"deconvolution", "data 2x4x3x3",
     ONE("Deconvolution",
         "convolution_param { num_output: 2 group: 2 kernel_size: 3 stride: 2 pad: 1 "
         "weight_filler { type: 'xavier' } bias_filler { type: 'uniform' } }")},
    {"deconvolution_4d", "data 1x4x2x2x1x2",
     ONE("Deconvolution", "convolution_param { num_output: 2 group: 2 kernel_size: 2 stride: 2 pad: 0 pad: 1 pad: 0 pad: 0 "
                          "weight_filler { type: 'xavier' } bias_filler { type: 'uniform' } }")},
    {"dropout", "data 4x9", ONE("Dropout", "dropout_param { dropout_ratio: 0.3 }")},
    {"dropout_inplace", "data 4x9", IN_PLACE("Dropout", "")},
    {"dropout_test", "data 4x9", ONE("Dropout", ""), InTest()},
    {"eltwise_sum", "data 2x3 b 2x3", TWO("Eltwise", "eltwise_param { coeff: 2 coeff: -0.5 }")},
    {"eltwise_sum_inplace", "data 2x3 b 2x3",
     "layer { name: 'p' type: 'Power' bottom: 'data' top: 'x' power_param { scale: 2 } }"
     "layer { name: 'l' type: 'Eltwise' bottom: 'x' bottom: 'b' top: 'x' eltwise_param { coeff: 1 coeff: 3 } }"},
    {"eltwise_prod", "data 2x3 b 2x3", TWO("Eltwise", "eltwise_param { operation: PROD }")},
    {"eltwise_prod_unstable", "data 2x3 b 2x3",
     TWO("Eltwise", "eltwise_param { operation: PROD stable_prod_grad: false }")},
    {"eltwise_max_three", "data 4x5 b 4x5 c 4x5",
     "layer { name: 'l' type: 'Eltwise' bottom: 'data' bottom: 'b' bottom: 'c' top: 'out' "
     "eltwise_param { operation: MAX } }"},
    {"elu", "data 4x5", ONE("ELU", "elu_param { alpha: 0.7 }")},
    {"elu_inplace", "data 4x5", IN_PLACE("ELU", "")},
    {"embed", "data 2x3",
     ONE("Embed",
         "embed_param { num_output: 4 input_dim: 5 weight_filler { type: 'uniform' } bias_filler { "
         "type: 'uniform' } }"),
     Labels("data", 5)},
    {"euclidean", "data 3x4 label 3x4", LOSS("EuclideanLoss", "")},
    {"exp", "data 3x4", ONE("Exp", "exp_param { base: 2 scale: 0.5 shift: 0.3 }")},
    {"exp_inplace", "data 3x4", IN_PLACE("Exp", "")},
    {"filter", "data 5x3 b 5", TWO("Filter", ""), Labels("b", 2)},
    {"flatten", "data 2x3x4x2", ONE("Flatten", "flatten_param { axis: 1 end_axis: 2 }")},
    {"hinge_l1", "data 4x5 label 4", LOSS("HingeLoss", ""), Labels("label", 5)},
    {"hinge_l2", "data 4x5 label 4", LOSS("HingeLoss", "hinge_loss_param { norm: L2 }"),
     Labels("label", 5)},
    {"im2col", "data 2x2x5x4",
     ONE("Im2col", "convolution_param { kernel_size: 3 pad: 1 stride: 2 }")},
    {"im2col_1d", "data 2x2x7", ONE("Im2col", "convolution_param { kernel_size: 3 pad: 1 stride: 2 dilation: 2 }")},
    {"im2col_3d_axis2", "data 2x1x2x3x4x3", ONE("Im2col", "convolution_param { kernel_size: 2 pad: 1 stride: 2 axis: 2 }")},
    {"infogain", "data 4x3 label 4 h 3x3",
     "layer { name: 'l' type: 'InfogainLoss' bottom: 'data' bottom: 'label' bottom: 'h' top: 'out' "
     "loss_param { ignore_label: 1 } }",
     {.ranges = {{"label", {0, 3, true}}}, .without_gradient = {"label", "h"}}},
    {"inner_product", "data 4x3x2",
     ONE("InnerProduct",
         "inner_product_param { num_output: 5 weight_filler { type: 'xavier' } bias_filler { type: "
         "'uniform' } }")},
    {"inner_product_shared", "data 4x3",
     ONE("InnerProduct",
         "param { name: 'w' } param { name: 'v' } inner_product_param { num_output: 3 weight_filler { type: 'xavier' } "
         "bias_filler { type: 'uniform' } }")
     "layer { name: 'm' type: 'InnerProduct' bottom: 'out' top: 'out2' param { name: 'w' } param { name: 'v' } "
     "inner_product_param { num_output: 3 } }"},
    {"inner_product_transpose", "data 4x3x2",
     ONE("InnerProduct",
         "inner_product_param { num_output: 5 axis: 2 transpose: true bias_term: false "
         "weight_filler { type: 'xavier' } }")},
    {"log", "data 3x4", ONE("Log", "log_param { base: 3 scale: 0.5 shift: 1.3 }")},
    {"log_inplace", "data 3x4", IN_PLACE("Log", "log_param { shift: 3.3 }")},
    {"lrn", "data 2x7x3x3", ONE("LRN", "lrn_param { local_size: 5 alpha: 0.8 k: 1.5 }")},
    {"lrn_beta", "data 2x4x3x3", ONE("LRN", "lrn_param { local_size: 3 alpha: 0.8 beta: 0.6 }")},
    {"lrn_few_channels", "data 1x2x2x2", ONE("LRN", "lrn_param { local_size: 7 alpha: 2 }")},
    {"lrn_within", "data 2x2x5x4",
     ONE("LRN", "lrn_param { local_size: 3 alpha: 0.8 norm_region: WITHIN_CHANNEL }")},
    {"lrn_within_changed_above", "data 2x2x5x4",
     ONE("LRN", "lrn_param { local_size: 3 alpha: 0.8 norm_region: WITHIN_CHANNEL }") CHANGED_ABOVE},
    {"multinomial", "data 4x3 label 4", LOSS("MultinomialLogisticLoss", ""),
     {.ranges = {{"data", {0.2, 1}}, {"label", {0, 3, true}}}, .without_gradient = {"label"}}},
    {"lstm_unit", "c 1x3x4 x 1x3x16 cont 1x3",
     "layer { name: 'l' type: 'LSTMUnit' bottom: 'c' bottom: 'x' bottom: 'cont' top: 'c1' top: 'h1' }",
     {.ranges = {{"cont", {0, 2, true}}}, .without_gradient = {"cont"}}},
    {"mvn", "data 2x3x4x3", ONE("MVN", "")},
    {"mvn_across", "data 2x3x4x3", ONE("MVN", "mvn_param { across_channels: true }")},
    {"mvn_mean", "data 2x3x4x3", ONE("MVN", "mvn_param { normalize_variance: false }")},
    {"parameter", "data 2x3",
     "layer { name: 'w' type: 'Parameter' top: 'w' parameter_param { shape { dim: 2 dim: 3 } } }"
     "layer { name: 'l' type: 'Eltwise' bottom: 'data' bottom: 'w' top: 'out' eltwise_param { "
     "operation: PROD } }"},
    {"pooling_max", "data 2x3x5x6", ONE("Pooling", "pooling_param { kernel_size: 3 stride: 2 }")},
    {"pooling_max_small", "data 2x1x2x2", ONE("Pooling", "pooling_param { kernel_size: 3 stride: 2 }")},
    {"pooling_ave_small", "data 2x1x2x2", ONE("Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 2 }")},
    {"pooling_one_padded_axis", "data 1x2x7x7",
     ONE("Pooling", "pooling_param { kernel_h: 3 kernel_w: 1 stride_h: 1 stride_w: 4 pad_h: 1 pad_w: 0 }")},
    {"pooling_max_big_pad", "data 1x2x5x6",
     ONE("Pooling", "pooling_param { kernel_size: 3 stride: 2 pad: 2 }")},
    {"pooling_ave", "data 2x3x5x6",
     ONE("Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }")},
    {"pooling_ave_big_pad", "data 1x2x5x6",
     ONE("Pooling", "pooling_param { pool: AVE kernel_h: 3 kernel_w: 4 stride: 2 pad_h: 2 pad_w: 1 "
                    "}")},
    {"pooling_global", "data 2x3x5x6",
     ONE("Pooling", "pooling_param { pool: AVE global_pooling: true }")},
    {"pooling_stochastic", "data 2x3x5x6", ONE("Pooling", "pooling_param { pool: STOCHASTIC kernel_size: 3 stride: 2 }"),
     Ranges({{"data", {0.1, 1}}})},
    {"pooling_stochastic_test", "data 2x3x5x6", ONE("Pooling", "pooling_param { pool: STOCHASTIC kernel_size: 3 stride: 2 }")
     CHANGED_ABOVE, {.ranges = {{"data", {0.1, 1}}}, .phase = TEST}},
    {"power", "data 3x4", ONE("Power", "power_param { power: 3 scale: 0.5 shift: 1.2 }")},
    {"power_half_inplace", "data 3x4", IN_PLACE("Power", "power_param { power: 0.5 shift: 3.2 }")},
    {"power_zero", "data 3x4", ONE("Power", "power_param { power: 0 }")},
    {"prelu", "data 2x3x4", ONE("PReLU", "")},
    {"prelu_shared_inplace", "data 2x3x4", IN_PLACE("PReLU", "prelu_param { channel_shared: true }")},
    {"lstm", "data 3x2x3 cont 3x2 st 2x2 h 1x2x3 c 1x2x3",
     RECURRENT("LSTM", "bottom: 'st' bottom: 'h' bottom: 'c' top: 'h1' top: 'c1'",
               "expose_hidden: true")
     "layer { name: 's' type: 'Silence' bottom: 'h1' bottom: 'c1' }",
     {.ranges = {{"cont", {0, 2, true}}}, .without_gradient = {"cont", "h", "c"}}},
    {"rnn", "data 4x2x3 cont 4x2 st 2x2 h 1x2x3",
     RECURRENT("RNN", "bottom: 'st' bottom: 'h' top: 'h1'", "expose_hidden: true")
     "layer { name: 's' type: 'Silence' bottom: 'h1' }",
     {.ranges = {{"cont", {0, 2, true}}}, .without_gradient = {"cont", "h"}}},
    {"rnn_changed_above", "data 4x2x3 cont 4x2", RECURRENT("RNN", "", "") CHANGED_ABOVE,
     {.ranges = {{"cont", {0, 2, true}}}, .without_gradient = {"cont"}}},
    {"reduction_sum", "data 2x3x4", ONE("Reduction", "reduction_param { axis: 1 coeff: 2 }")},
    {"reduction_mean", "data 2x3x4", ONE("Reduction", "reduction_param { operation: MEAN }")},
    {"reduction_asum", "data 2x3x4",
     ONE("Reduction", "reduction_param { operation: ASUM axis: -1 }")},
    {"reduction_sumsq", "data 2x3x4",
     ONE("Reduction", "reduction_param { operation: SUMSQ axis: 1 } loss_weight: 0.3")},
    {"relu", "data 4x5", ONE("ReLU", "")},
    {"relu_changed_above", "data 4x5", ONE("ReLU", "") CHANGED_ABOVE},
    {"relu_slope_inplace", "data 4x5", IN_PLACE("ReLU", "relu_param { negative_slope: 0.2 }")},
    {"reshape", "data 2x3x4",
     ONE("Reshape", "reshape_param { shape { dim: 0 dim: -1 dim: 2 } }")},
    {"scale", "data 2x3x4", ONE("Scale", "scale_param { bias_term: true }")},
    {"scale_inplace", "data 2x3x4", IN_PLACE("Scale", "scale_param { axis: 0 num_axes: 2 }")},
    {"scale_two", "data 2x3x4 b 3",
     TWO("Scale", "scale_param { bias_term: true bias_filler { type: 'uniform' } }")},
    {"scale_scalar", "data 2x3", ONE("Scale", "scale_param { num_axes: 0 }")},
    {"sigmoid", "data 3x4", ONE("Sigmoid", "")},
    {"sigmoid_inplace", "data 3x4", IN_PLACE("Sigmoid", "")},
    {"sigmoid_loss", "data 3x4 label 3x4", LOSS("SigmoidCrossEntropyLoss", ""),
     {.ranges = {{"data", {-3, 3}}, {"label", {0, 1}}}, .without_gradient = {"label"}}},
    {"sigmoid_loss_ignore", "data 3x4 label 3x4",
     LOSS("SigmoidCrossEntropyLoss", "loss_param { ignore_label: 1 normalization: VALID }"),
     Labels("label", 3)},
    {"silence", "data 3x4",
     "layer { name: 's' type: 'Slice' bottom: 'data' top: 'out' top: 'b' }"
     "layer { name: 'l' type: 'Silence' bottom: 'b' }"},
    {"slice", "data 2x6x3",
     "layer { name: 'l' type: 'Slice' bottom: 'data' top: 'a' top: 'b' top: 'c' slice_param { "
     "slice_point: 1 slice_point: 4 } }"},
    {"softmax", "data 3x4x2", ONE("Softmax", "")},
    {"softmax_inplace", "data 3x4", IN_PLACE("Softmax", "softmax_param { axis: 0 }")},
    {"softmax_loss", "data 5x4 label 5", LOSS("SoftmaxWithLoss", "loss_weight: 0.7"),
     Labels("label", 4)},
    {"softmax_loss_spatial", "data 2x4x3 label 2x3",
     LOSS("SoftmaxWithLoss", "loss_param { ignore_label: 2 normalization: FULL }"),
     Labels("label", 4)},
    {"split", "data 3x4",
     "layer { name: 'a' type: 'Power' bottom: 'data' top: 'a' power_param { power: 2 } }"
     "layer { name: 'b' type: 'Sigmoid' bottom: 'data' top: 'b' }"
     "layer { name: 'c' type: 'TanH' bottom: 'data' top: 'c' }"},
    {"spp", "data 2x2x7x6", ONE("SPP", "spp_param { pyramid_height: 3 }")},
    {"spp_stochastic", "data 2x2x8x4", ONE("SPP", "spp_param { pyramid_height: 3 pool: STOCHASTIC }"),
     Ranges({{"data", {0.1, 1}}})},
    {"swish", "data 3x4", ONE("Swish", "swish_param { beta: 1.5 }")},
    {"swish_inplace", "data 3x4", IN_PLACE("Swish", "")},
    {"tanh", "data 3x4", ONE("TanH", "")},
    {"tanh_inplace", "data 3x4", IN_PLACE("TanH", "")},
    {"tile", "data 2x3x2", ONE("Tile", "tile_param { tiles: 3 }")},
};

class Gradient : public testing::TestWithParam<Case> {};

TEST_P(Gradient, AgreesWithDifferences) {
  CheckGradients(InputsOf(GetParam().inputs) + GetParam().layers, GetParam().check);
}

INSTANTIATE_TEST_SUITE_P(Layers, Gradient, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace poseidon::caffe
