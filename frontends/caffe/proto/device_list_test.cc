// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/proto/device_list.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "frontends/caffe/proto/upgrade.h"

namespace poseidon::caffe {
namespace {

TEST(WithFirstDevice, TakesTheFirstOfAListAndKeepsAllElseInItsPlace) {
  EXPECT_EQ(WithFirstDevice("device_id: \"0,1\"\nmax_iter: 7\n"), "device_id: 0    \nmax_iter: 7\n");
  EXPECT_EQ(WithFirstDevice("a: 1 device_id:'12, 3' b: 2"), "a: 1 device_id:12      b: 2");
  EXPECT_EQ(WithFirstDevice("device_id \n : \"3\""), "device_id \n : 3  ");
}

TEST(WithFirstDevice, LeavesEverythingElse) {
  for (const char* text : {"", "device_id: 0", "device_id: \"\"", "device_id: \"gpu\"", "device_id: \"-1\"", "device_id: \"0,x\"",
                           "# device_id: \"0\"", "net: \"device_id: '0'\"", "net_param { device_id: \"0\" }", "my_device_id: \"0\"",
                           "device_id", "device_id:", "device_id: \"0", "device_id: \"0\nx: 1", "device_id: '", "device_ids: \"0\"", "}}device_id: \"0\""}) {
    EXPECT_FALSE(WithFirstDevice(text)) << text;
  }
}

class SolverFile : public testing::Test {
 protected:
  std::string Write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  ~SolverFile() override { std::filesystem::remove(path_); }
  const std::string path_ = testing::TempDir() + "/device_list_" + std::to_string(::getpid());
};

TEST_F(SolverFile, BothFormsOfDeviceIdAreRead) {
  EXPECT_EQ(ReadSolver(Write("device_id: 2\nmax_iter: 7"))->device_id(), 2);
  const Result<SolverParameter> listed = ReadSolver(Write("device_id: \"3,1\"\nmax_iter: 7"));
  ASSERT_TRUE(listed.ok()) << listed.status().message();
  EXPECT_EQ(listed->device_id(), 3);
  EXPECT_EQ(listed->max_iter(), 7);
}

TEST_F(SolverFile, AMistakeBesideAListIsFoundInItsLine) {
  const std::string message = ReadSolver(Write("device_id: \"0,1\"\nmax_iter: x\n")).status().message();
  EXPECT_NE(message.find(":2: "), std::string::npos) << message;
  EXPECT_NE(ReadSolver(Write("device_id: \"all\"\n")).status().message().find(":1: "), std::string::npos);
}

// Its fields in files of its own: what nobody looks at is passed over.
TEST_F(SolverFile, FieldsOfPoseidonCaffeAreRead) {
  const Result<SolverParameter> solver = ReadSolver(Write(R"(
    layer_blobs_global_idx { layer_name: "ip" table_id: 1 table_id: 2 }
    net_param {
      layers { name: "d" type: DATA top: "d" data_param { source: "x" shared_file_system: true backend: LMDB } }
      layers { name: "i" type: IMAGE_DATA top: "i" image_data_param { source: "x" shared_file_system: false } }
      layers { name: "f" type: INNER_PRODUCT bottom: "d" top: "f" blobs { blob_mode: GLOBAL global_id: 3 data: 1 } }
    })"));
  ASSERT_TRUE(solver.ok()) << solver.status().message();
  EXPECT_TRUE(solver->net_param().layer(0).data_param().shared_file_system());
}

// In its binary files blob_mode and global_id have the numbers that shape and double_data have here, as varints.
TEST(PoseidonCaffesModel, BlobsAreReadFromItsBinaryForm) {
  BlobProto old;
  old.set_num(1);
  old.set_channels(1);
  old.set_height(2);
  old.set_width(2);
  for (const float x : {1.F, 2.F, 3.F, 4.F}) old.add_data(x);
  const std::string bytes = old.SerializeAsString() + std::string("\x38\x00\x40\x05", 4);  // 7: GLOBAL, 8: 5
  BlobProto blob;
  ASSERT_TRUE(blob.ParseFromString(bytes));
  EXPECT_FALSE(blob.has_shape());
  EXPECT_EQ(blob.double_data_size(), 0);
  EXPECT_EQ(blob.data_size(), 4);
  EXPECT_EQ(blob.width(), 2);
}

}  // namespace
}  // namespace poseidon::caffe
