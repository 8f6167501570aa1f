// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/proto/read.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "frontends/caffe/proto/caffe.pb.h"
#include "frontends/caffe/proto/upgrade.h"

namespace poseidon::caffe {
namespace {

// A folder that goes with the test.
class ReadTest : public testing::Test {
 protected:
  ReadTest()
      : folder_(std::filesystem::path(testing::TempDir()) /
                ("caffe_read_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~ReadTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

std::string Message(const std::string& text) {
  NetParameter net;
  return ParseText(text, "net.prototxt", &net).message();
}

TEST(ParseText, NamesTheFileTheLineAndTheUnknownField) {
  EXPECT_EQ(Message("name: 'x'\nlayer {\n  name: 'a'\n  tipe: 'ReLU'\n}\n"),
            "net.prototxt:4: unknown field 'tipe' in LayerParameter of layer 'a'");
  SolverParameter solver;
  EXPECT_EQ(ParseText("max_iter: 5\nrate: 1\n\nepochs { a: 2 }", "s", &solver).message(),
            "s:2: unknown field 'rate' in SolverParameter; line 4: unknown field 'epochs' in SolverParameter");
}

constexpr char kForked[] = R"(name: "fork"
layer { name: "data" type: "Python" top: "data" }
layer {
  name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 3 dilate: 2 }
}
layer {
  name: "roi" type: "ROIPooling" bottom: "conv" top: "roi"
  roi_pooling_param { pooled_w: 6 }
}
layer { name: "bn1" type: "BatchNorm" bottom: "roi" top: "bn1" norm { a: 1 } }
layer { name: "bn2" type: "BatchNorm" bottom: "bn1" top: "bn2" norm { a: 1 } }
)";

// Refuses other types, and layers with more than one top.
JudgeLayer KnowsOnly(const std::vector<std::string>& types) {
  return [types](const LayerParameter& layer) -> LayerRefusals {
    if (std::find(types.begin(), types.end(), layer.type()) == types.end()) {
      return {.known_type = false, .reasons = {"unknown layer type '" + layer.type() + "'"}};
    }
    LayerRefusals refusals;
    if (layer.top_size() > 1) refusals.reasons = {"has too many tops"};
    return refusals;
  };
}

TEST_F(ReadTest, EverythingThatANetAsksForInVainIsNamedAtOnceByLayer) {
  ASSERT_TRUE(WriteFileAtomically(kForked, Path("fork.prototxt")).ok());
  EXPECT_EQ(ReadNet(Path("fork.prototxt"), KnowsOnly({"Convolution", "BatchNorm"})).status().message(),
            Path("fork.prototxt") + ":2: unknown layer type 'Python' of layer 'data'; "
            "line 5: unknown field 'dilate' in ConvolutionParameter of layer 'conv' (Convolution); "
            "line 7: unknown layer type 'ROIPooling' of layer 'roi'; "
            "line 11: unknown field 'norm' in LayerParameter of layer 'bn1' (BatchNorm) and 1 other");
}

// Types of the older form are names of an enumeration: reading goes on behind one that it does not have.
TEST_F(ReadTest, UnknownTypesOfTheOlderFormAreNamedWithTheRest) {
  const std::string text =
      "layers { name: 'a' type: L2_LOSS  bottom: 'x' }\n"
      "layers {\n  name: 'conv'\n  type:\tCONVOLUTION\n  convolution_param { dilate: 2 }\n}\n"
      "layers { name: 'data' type: DATA top: 'a' top: 'b' data_param { backend: LMBD } }\n"
      "layers { type : L2_LOSS name: 'b' } layers { name: 'c' type: GATHER }\n";
  ASSERT_TRUE(WriteFileAtomically(text, Path("old.prototxt")).ok());
  EXPECT_EQ(ReadNet(Path("old.prototxt"), KnowsOnly({"Convolution", "Data"})).status().message(),
            Path("old.prototxt") + ":1: unknown layer type 'L2_LOSS' of layer 'a' and 1 other; "
            "line 5: unknown field 'dilate' in ConvolutionParameter of layer 'conv' (Convolution); "
            "line 7: unknown enumeration value of \"LMBD\" for field \"backend\" of layer 'data' (Data); "
            "line 7: layer 'data' (Data): has too many tops; "
            "line 8: unknown layer type 'GATHER' of layer 'c'");
}

TEST_F(ReadTest, FieldsThatAreGivenAgainAreNamedWithTheRest) {
  const std::string text =
      "layer { name: 'p' type: 'Pooling' pooling_param { kernel_size: 2 stride: 2 kernel_size: 2 stride: 2\n kernel_size: -3 dilate: 1 } }\n";
  ASSERT_TRUE(WriteFileAtomically(text, Path("twice.prototxt")).ok());
  EXPECT_EQ(ReadNet(Path("twice.prototxt"), KnowsOnly({"Pooling"})).status().message(),
            Path("twice.prototxt") + ":1: a second 'kernel_size' of layer 'p' (Pooling) and 1 other; "
            "line 1: a second 'stride' of layer 'p' (Pooling); "
            "line 2: unknown field 'dilate' in PoolingParameter of layer 'p' (Pooling)");
}

TEST(ParseText, ALongListOfMissingThingsIsCut) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += "field" + std::to_string(i) + ": 1\n";
  const std::string message = Message(text);
  EXPECT_NE(message.find("unknown field 'field19'"), std::string::npos) << message;
  EXPECT_EQ(message.substr(message.size() - 13), "; and 10 more") << message;
}

TEST(ParseText, NamesTheLineOfOtherMistakes) {
  EXPECT_EQ(Message("layer {\n  lrn_param { local_size: five }\n}").substr(0, 15),
            "net.prototxt:2:");
  EXPECT_EQ(Message("layer {\n  name: 'a'\n").substr(0, 13), "net.prototxt:");
  EXPECT_EQ(Message("layer { pooling_param { pool: MEAN } }"),
            "net.prototxt:1: unknown enumeration value of \"MEAN\" for field \"pool\"");
}

TEST(ParseText, TakesBothKindsOfListsAndComments) {
  NetParameter net;
  ASSERT_TRUE(ParseText("# a net\ninput_dim: [1, 2]\ninput_dim: 3\n", "x", &net).ok());
  EXPECT_EQ(net.input_dim_size(), 3);
}

TEST_F(ReadTest, MissingFileIsNamed) {
  NetParameter net;
  const Status status = ReadTextFile(Path("none.prototxt"), &net);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "cannot open " + Path("none.prototxt") + ": No such file or directory");
  EXPECT_EQ(ReadBinaryFile(Path("none.caffemodel"), &net).code(), StatusCode::kNotFound);
}

TEST_F(ReadTest, BinaryRoundTripReplacesTheFileAndLeavesNoDraft) {
  BlobProto blob;
  blob.mutable_shape()->add_dim(3);
  for (const float x : {1.F, -2.5F, 3e-20F}) blob.add_data(x);
  ASSERT_TRUE(WriteBinaryFile(NetParameter(), Path("b")).ok());
  ASSERT_TRUE(WriteBinaryFile(blob, Path("b")).ok());
  BlobProto again;
  ASSERT_TRUE(ReadBinaryFile(Path("b"), &again).ok());
  EXPECT_EQ(again.SerializeAsString(), blob.SerializeAsString());
  EXPECT_FALSE(std::filesystem::exists(Path("b.tmp")));
}

TEST_F(ReadTest, TruncatedBinaryIsRefusedByName) {
  BlobProto blob;
  for (int i = 0; i < 100; ++i) blob.add_data(1.F);
  const std::string bytes = blob.SerializeAsString();
  ASSERT_TRUE(WriteFileAtomically(bytes.substr(0, bytes.size() - 3), Path("cut")).ok());
  BlobProto again;
  const Status status = ReadBinaryFile(Path("cut"), &again);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), Path("cut") + " is not a whole binary BlobProto");
}

TEST_F(ReadTest, AFailedWriteKeepsTheOldFile) {
  ASSERT_TRUE(WriteFileAtomically("old", Path("keep")).ok());
  // A folder where the draft would go makes the write fail.
  std::filesystem::create_directories(Path("keep.tmp"));
  EXPECT_FALSE(WriteFileAtomically("new", Path("keep")).ok());
  std::ifstream in(Path("keep"));
  std::string text;
  in >> text;
  EXPECT_EQ(text, "old");
}

TEST(Formats, FieldNumbersAreThoseOfCaffe) {
  // shape {dim: [2]} data: [1, 2] as Caffe writes it: fields 7 (packed int64) and 5 (packed float).
  const std::string bytes(
      "\x2a\x08\x00\x00\x80\x3f\x00\x00\x00\x40\x3a\x03\x0a\x01\x02", 15);
  BlobProto blob;
  ASSERT_TRUE(ParseBinary(bytes, "bytes", &blob).ok());
  ASSERT_EQ(blob.data_size(), 2);
  EXPECT_EQ(blob.data(1), 2.F);
  EXPECT_EQ(blob.shape().dim(0), 2);
  EXPECT_EQ(blob.SerializeAsString(), bytes);
}

}  // namespace
}  // namespace poseidon::caffe
