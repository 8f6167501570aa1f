// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/proto/upgrade_v0.h"

#include <gtest/gtest.h>

#include <random>

#include "frontends/caffe/proto/read.h"
#include "frontends/caffe/proto/upgrade.h"

namespace poseidon::caffe {
namespace {

NetParameter Parsed(const std::string& text) {
  NetParameter net;
  EXPECT_TRUE(ParseText(text, "t", &net).ok());
  return net;
}

// Through all upgrades, from the text form.
NetParameter FromV0(const std::string& text) {
  NetParameter net = Parsed(text);
  const Status status = UpgradeNet("t", &net);
  EXPECT_TRUE(status.ok()) << status.message();
  return net;
}

std::string V0Refusal(const std::string& text) {
  NetParameter net = Parsed(text);
  return UpgradeNet("t", &net).message();
}

// A net of our own with every type and every option of the first form that became another.
const char kOld[] = R"(
  name: "old"
  layers { layer { name: "data" type: "data" source: "db" meanfile: "mean" batchsize: 5 cropsize: 7 mirror: true scale: 0.5
                   rand_skip: 3 } top: "data" top: "label" }
  layers { layer { name: "pad1" type: "padding" pad: 2 } bottom: "data" top: "pad1" }
  layers { layer { name: "conv1" type: "conv" num_output: 4 kernelsize: 5 group: 1 stride: 3 biasterm: true
                   weight_filler { type: "gaussian" std: 0.25 } bias_filler { type: "constant" value: 1.5 }
                   blobs_lr: 1 blobs_lr: 2 weight_decay: 1 weight_decay: 0 } bottom: "pad1" top: "conv1" }
  layers { layer { name: "relu1" type: "relu" } bottom: "conv1" top: "conv1" }
  layers { layer { name: "pad2" type: "padding" pad: 1 } bottom: "conv1" top: "pad2" }
  layers { layer { name: "pool1" type: "pool" pool: AVE kernelsize: 3 stride: 2 } bottom: "pad2" top: "pool1" }
  layers { layer { name: "norm1" type: "lrn" local_size: 3 alpha: 0.5 beta: 0.25 k: 2 } bottom: "pool1" top: "norm1" }
  layers { layer { name: "cat" type: "concat" concat_dim: 0 } bottom: "norm1" bottom: "pool1" top: "cat" }
  layers { layer { name: "fc" type: "innerproduct" num_output: 10 biasterm: false weight_filler { type: "xavier" } }
           bottom: "cat" top: "fc" }
  layers { layer { name: "drop" type: "dropout" dropout_ratio: 0.25 } bottom: "fc" top: "fc" }
  layers { layer { name: "images" type: "images" source: "list" batchsize: 6 shuffle_images: true new_height: 8 new_width: 9 }
           top: "i" }
  layers { layer { name: "windows" type: "window_data" source: "w" batchsize: 2 det_fg_threshold: 0.75 det_bg_threshold: 0.125
                   det_fg_fraction: 0.5 det_context_pad: 16 det_crop_mode: "square" } top: "w" }
  layers { layer { name: "h" type: "hdf5_data" source: "h.txt" batchsize: 4 } top: "h" }
  layers { layer { name: "out" type: "hdf5_output" hdf5_output_param { file_name: "o.h5" } } bottom: "h" bottom: "label" }
  layers { layer { name: "info" type: "infogain_loss" source: "H" } bottom: "fc" bottom: "label" }
  layers { layer { name: "loss" type: "softmax_loss" } bottom: "fc" bottom: "label" })";

const char kToday[] = R"(
  name: "old"
  layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "db" batch_size: 5 rand_skip: 3 }
          transform_param { mean_file: "mean" crop_size: 7 mirror: true scale: 0.5 } }
  layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1" param { lr_mult: 1 decay_mult: 1 }
          param { lr_mult: 2 decay_mult: 0 }
          convolution_param { num_output: 4 kernel_size: 5 group: 1 stride: 3 pad: 2 bias_term: true
            weight_filler { type: "gaussian" std: 0.25 } bias_filler { type: "constant" value: 1.5 } } }
  layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
  layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 } }
  layer { name: "norm1" type: "LRN" bottom: "pool1" top: "norm1" lrn_param { local_size: 3 alpha: 0.5 beta: 0.25 k: 2 } }
  layer { name: "cat" type: "Concat" bottom: "norm1" bottom: "pool1" top: "cat" concat_param { concat_dim: 0 } }
  layer { name: "fc" type: "InnerProduct" bottom: "cat" top: "fc"
          inner_product_param { num_output: 10 bias_term: false weight_filler { type: "xavier" } } }
  layer { name: "drop" type: "Dropout" bottom: "fc" top: "fc" dropout_param { dropout_ratio: 0.25 } }
  layer { name: "images" type: "ImageData" top: "i"
          image_data_param { source: "list" batch_size: 6 shuffle: true new_height: 8 new_width: 9 } }
  layer { name: "windows" type: "WindowData" top: "w"
          window_data_param { source: "w" batch_size: 2 fg_threshold: 0.75 bg_threshold: 0.125 fg_fraction: 0.5 context_pad: 16
                              crop_mode: "square" } }
  layer { name: "h" type: "HDF5Data" top: "h" hdf5_data_param { source: "h.txt" batch_size: 4 } }
  layer { name: "out" type: "HDF5Output" bottom: "h" bottom: "label" hdf5_output_param { file_name: "o.h5" } }
  layer { name: "info" type: "InfogainLoss" bottom: "fc" bottom: "label" infogain_loss_param { source: "H" } }
  layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" })";

TEST(UpgradeV0, EveryOptionFindsItsPlace) { EXPECT_EQ(ToText(FromV0(kOld)), ToText(Parsed(kToday))); }

// A model is the same form in binary, with the numbers inside the inner layer.
TEST(UpgradeV0, WeightsComeAlong) {
  NetParameter net = Parsed(R"(
    layers { layer { name: "p" type: "padding" pad: 1 } bottom: "x" top: "p" }
    layers { layer { name: "c" type: "conv" num_output: 1 kernelsize: 1
                     blobs { num: 1 channels: 1 height: 1 width: 2 data: [3, 4] } } bottom: "p" top: "c" })");
  NetParameter read;
  ASSERT_TRUE(ParseBinary(net.SerializeAsString(), "m", &read).ok());
  ASSERT_TRUE(UpgradeNet("m", &read).ok());
  ASSERT_EQ(read.layer_size(), 1);
  EXPECT_EQ(read.layer(0).blobs(0).data(1), 4);
  EXPECT_EQ(read.layer(0).convolution_param().pad(0), 1U);
}

TEST(UpgradeV0, EveryTypeHasANameToday) {
  for (const char* type : {"accuracy", "bnll", "concat", "conv", "data", "dropout", "euclidean_loss", "flatten", "hdf5_data",
                           "hdf5_output", "im2col", "images", "infogain_loss", "innerproduct", "lrn",
                           "multinomial_logistic_loss", "pool", "relu", "sigmoid", "softmax", "softmax_loss", "split", "tanh",
                           "window_data"}) {
    const NetParameter net = FromV0("layers { layer { name: 'l' type: '" + std::string(type) + "' } }");
    EXPECT_FALSE(net.layer(0).type().empty()) << type;
  }
}

TEST(UpgradeV0, SaysWhatItCannotTake) {
  EXPECT_EQ(V0Refusal("layers { layer { name: 'a' type: 'relu' } } layers { name: 'b' type: RELU }"),
            "t: layer 'b' is not in Caffe's first format (layers { layer { ... } }), other layers are");
  EXPECT_EQ(V0Refusal("layers { layer { name: 'a' type: 'relu' } } layer { name: 'b' }"),
            "t: 'layer' and 'layers' are mixed; a net uses one of the two");
  EXPECT_EQ(V0Refusal("layers { layer { name: 'a' type: 'ReLU' } }"),
            "t: layer 'a' has type 'ReLU', which Caffe's first format does not have");
  EXPECT_EQ(V0Refusal("layers { layer { name: 'a' type: 'relu' num_output: 3 } }"),
            "t: layer 'a' (relu): has num_output, which layers of that type do not take");
  EXPECT_EQ(V0Refusal("layers { layer { name: 'a' type: 'relu' } include { phase: TEST } }"),
            "t: layer 'a' (relu) has include beside 'layer', where Caffe's first format has only bottom and top");
  const std::string padding = "layers { layer { name: 'p' type: 'padding' pad: 1 } bottom: 'x' top: 'p' }";
  EXPECT_EQ(V0Refusal(padding + "layers { layer { name: 'a' type: 'relu' } bottom: 'p' top: 'a' }"),
            "t: layer 'a' (relu) reads padding layer 'p', expected a conv or a pool");
  EXPECT_EQ(V0Refusal(padding + "layers { layer { name: 'a' type: 'conv' } bottom: 'p' bottom: 'q' top: 'a' top: 'b' }"),
            "t: layer 'a' (conv) reads padding layer 'p', expected one bottom for each of the two and one top");
  EXPECT_EQ(V0Refusal(padding + "layers { layer { name: 'q' type: 'padding' pad: 1 } bottom: 'p' top: 'q' }"),
            "t: layer 'q' (padding) reads padding layer 'p', expected a conv or a pool");
}

// Bytes that changed end in a sentence or in a net, never in a crash.
TEST(UpgradeV0, MutatedModelsEndInASentence) {
  const std::string whole = Parsed(kOld).SerializeAsString();
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string bytes = whole;
    if (round % 4 == 0) bytes.resize(random() % bytes.size());
    for (auto changes = random() % 6; changes > 0 && !bytes.empty(); --changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    NetParameter net;
    Status status = ParseBinary(bytes, "m", &net);
    if (status.ok()) status = UpgradeNet("m", &net);
    if (status.ok()) continue;
    ++refused;
    EXPECT_EQ(status.message().substr(0, 1), "m");
  }
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace poseidon::caffe
