// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/proto/forks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontends/caffe/proto/caffe.pb.h"
#include "frontends/caffe/proto/read.h"
#include "frontends/caffe/proto/upgrade.h"

namespace poseidon::caffe {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

NetParameter NetOf(const std::string& text) {
  NetParameter net;
  const Status parsed = ParseText(text, "net", &net);
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  return net;
}

std::vector<std::string> NotesOnNet(const std::string& text) {
  const NetParameter net = NetOf(text);
  return NotesOn({&net});
}

TEST(Forks, AFieldThatChangesNoResultIsNotedOnceAKind) {
  const NetParameter net = NetOf(R"(
default_forward_type: FLOAT16 default_backward_type: FLOAT16 default_forward_math: FLOAT eltwise_mem_sharing: true
global_grad_scale: 1000 default_conv_algos_override: "-1,-1,-1" reduce_buckets: 6
layer { name: 'data' type: 'Data' data_param { shuffle: true cache: true threads: 4 } transform_param { random_seed: 3 use_gpu_transform: true } }
layer { name: 'test' type: 'Data' data_param { shuffle: true cache: true } }
layer { name: 'conv' type: 'Convolution' forward_type: FLOAT
        convolution_param { conv_algorithm: 'auto' cudnn_convolution_algo_seeker: FINDEX } quantization_param { bw_params: 8 } }
layer { name: 'out' type: 'DetectionOutput' debug: true detection_output_param { save_output_param { output_format: 'VOC' } } }
)");
  SolverParameter solver;
  ASSERT_TRUE(ParseText("solver_data_type: FLOAT store_blobs_in_old_format: true", "solver", &solver).ok());
  EXPECT_THAT(NotesOn({&solver, &net, &net}),
              ElementsAre("'shuffle' is not looked at: records come in the order of their keys",
                          "'cache', 'threads' are not looked at: batches are read in the background, prefetch of them ahead",
                          "'solver_data_type', 'forward_type', 'default_forward_type', 'default_backward_type', 'default_forward_math' are "
                          "not looked at: all numbers are of one type, f32 where nothing else is asked for",
                          "'quantization_param' is not looked at: numbers are not rounded to fewer bits",
                          "'conv_algorithm', 'cudnn_convolution_algo_seeker', 'default_conv_algos_override' are not looked at: the "
                          "library chooses how it convolves",
                          "'eltwise_mem_sharing', 'reduce_buckets' are not looked at: no result depends on it",
                          "'global_grad_scale' is not looked at: gradients are divided by it again before an update, and f32 needs no "
                          "such scale",
                          "'random_seed' is not looked at: draws follow the solver's random_seed",
                          "'use_gpu_transform' is not looked at: images are transformed on the CPU",
                          "'debug' is not looked at: debug_info of the solver prints what passes through a net",
                          "'store_blobs_in_old_format' is not looked at: snapshots are those of BVLC Caffe",
                          "'save_output_param' is not looked at: detections are the layer's top, and are neither written to files nor "
                          "shown"));
}

TEST(Forks, WhatIsNotAskedForIsNotNoted) {
  EXPECT_THAT(NotesOnNet("engine: 'MKLDNN' layer { type: 'Data' data_param { batch_size: 3 prefetch: 2 } }"), IsEmpty());
  EXPECT_THAT(NotesOnNet("layer { type: 'Data' data_param { shuffle: false cache: false } }"), IsEmpty());
  // HDF5Data has a field of that name, which is followed.
  EXPECT_THAT(NotesOnNet("layer { type: 'HDF5Data' hdf5_data_param { shuffle: true } }"), IsEmpty());
}

TEST(Forks, WhatIsMissingSaysWhatItIsOf) {
  EXPECT_EQ(UnknownType("Reorg"), "unknown layer type 'Reorg' of YOLO");
  EXPECT_EQ(UnknownType("Reo"), "unknown layer type 'Reo'");
  EXPECT_EQ(UnknownType(""), "unknown layer type ''");
  EXPECT_EQ(ForkOfField("TransformationParameter", "noise_param"), "SSD");
  EXPECT_EQ(ForkOfField("TransformationParameter", "noise"), "");
  EXPECT_EQ(ForkOfField("LayerParameter", "noise_param"), "");
  NetParameter net;
  EXPECT_EQ(ParseText("layer { name: 'data' type: 'Data' transform_param { scale: 2 noise_param { prob: 1 } } }", "net", &net).message(),
            "net:1: unknown field 'noise_param' of SSD in TransformationParameter of layer 'data' (Data)");
}

TEST(Forks, IntelsStatisticsBatchReachesEveryBatchNorm) {
  NetParameter net = NetOf("bn_stats_batch_size: 32 layer { type: 'BatchNorm' } layer { type: 'ReLU' } layer { type: 'BatchNorm' }");
  ASSERT_TRUE(UpgradeNet("net", &net).ok());
  EXPECT_EQ(net.layer(0).batch_norm_param().stats_batch_size(), 32U);
  EXPECT_FALSE(net.layer(1).has_batch_norm_param());
  EXPECT_EQ(net.layer(2).batch_norm_param().stats_batch_size(), 32U);
  EXPECT_FALSE(net.has_bn_stats_batch_size());
}

void Append(std::string* bytes, std::uint64_t number) {
  for (; number > 127; number >>= 7) bytes->push_back(static_cast<char>(number | 128));
  bytes->push_back(static_cast<char>(number));
}

// A field that holds bytes: a message or a string.
std::string Field(int number, const std::string& bytes) {
  std::string field;
  Append(&field, static_cast<std::uint64_t>(number) << 3 | 2);
  Append(&field, bytes.size());
  return field + bytes;
}

// Forks gave numbers above BVLC's their own meaning; their models are read all the same, by name and blobs.
TEST(Forks, ModelsWithFieldsOfOtherNumbersAreRead) {
  BlobProto blob;
  blob.mutable_shape()->add_dim(2);
  blob.add_data(1.5F);
  blob.add_data(-2);
  const std::string filler = FillerParameter::default_instance().SerializeAsString();
  const std::string scale = Field(1, filler) + Field(2, filler) + Field(4, std::string("\x08\x01", 2));
  for (const int number : {45, 147, 148, 149, 150, 158, 200, 206, 8266711, 2001}) {
    const std::string layer = Field(1, "conv1") + Field(2, "Convolution") + Field(7, blob.SerializeAsString()) + Field(number, scale);
    NetParameter net;
    const std::string bytes = Field(1, "fork") + Field(11, "x") + Field(101, scale) + Field(100, layer);
    const Status read = ParseBinary(bytes, "model", &net);
    ASSERT_TRUE(read.ok()) << number << ": " << read.message();
    ASSERT_EQ(net.layer_size(), 1) << number;
    EXPECT_EQ(net.layer(0).name(), "conv1");
    ASSERT_EQ(net.layer(0).blobs_size(), 1);
    EXPECT_EQ(net.layer(0).blobs(0).data(1), -2);
    for (std::size_t end = 0; end < bytes.size(); ++end) {  // cut short it is refused or read, and no more
      (void)ParseBinary(bytes.substr(0, end), "model", &net);
    }
  }
}

}  // namespace
}  // namespace poseidon::caffe
