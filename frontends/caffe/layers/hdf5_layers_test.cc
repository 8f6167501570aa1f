// SPDX-License-Identifier: Apache-2.0
// HDF5Data and HDF5Output.
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "frontends/caffe/proto/hdf5_rows.h"
#include "tests/shared/gradient_checker.h"

namespace poseidon::caffe {
namespace {

using testing::HasSubstr;

class Hdf5LayersTest : public testing::Test {
 protected:
  Hdf5LayersTest() : folder_(std::filesystem::path(testing::TempDir()) / ("caffe_hdf5_layers_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
    auto writer = Hdf5RowWriter::Create(Path("in.h5"));
    for (int i = 0; i < 10; ++i) {
      const std::array<float, 6> x = {static_cast<float>(i), 1, 2, 3, 4, 5};
      const float y = static_cast<float>(10 + i);
      EXPECT_TRUE((*writer)->Append("x", {1, 3, 1, 2, 1, 1}, x.data()).ok());
      EXPECT_TRUE((*writer)->Append("y", {1}, &y).ok());
    }
    std::ofstream(Path("list.txt")) << "in.h5\n";
  }
  ~Hdf5LayersTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string Data(const std::string& options) const {
    return "layer { name: 'd' type: 'HDF5Data' top: 'x' top: 'y' hdf5_data_param { source: '" + Path("list.txt") + "' " + options +
           " } }";
  }
  // The rows of batch `batch` on worker `share.rank`.
  std::vector<float> Rows(const std::string& options, DataShare share, std::uint64_t batch, Phase phase = TRAIN) const {
    NetOptions net_options;
    net_options.share = share;
    const auto net = MakeNet(Data(options), phase, net_options);
    net->BeginPass({.step = batch, .pass = 0, .batch = batch});
    const auto loss = net->Forward();
    EXPECT_TRUE(loss.ok()) << loss.status().message();
    const at::Tensor first = net->blob("x")->data.flatten(1).select(1, 0).contiguous();
    EXPECT_TRUE(at::equal(first.add(10), net->blob("y")->data));
    return {first.const_data_ptr<float>(), first.const_data_ptr<float>() + first.size(0)};
  }

  std::filesystem::path folder_;
};

TEST_F(Hdf5LayersTest, TopsAreDatasetsWithAnyAxes) {
  const auto net = MakeNet(Data("batch_size: 4"));
  EXPECT_EQ(net->blob("x")->shape(), (Shape{4, 3, 1, 2, 1, 1}));
  EXPECT_EQ(net->blob("y")->shape(), (Shape{4}));
  EXPECT_THAT(WhyNoNet("layer { name: 'd' type: 'HDF5Data' top: 'z' hdf5_data_param { source: '" + Path("list.txt") +
                       "' batch_size: 1 } }"),
              HasSubstr("in.h5 has no dataset 'z'"));
  EXPECT_THAT(WhyNoNet(Data("")), HasSubstr("batch_size is 0, expected at least 1"));
}

TEST_F(Hdf5LayersTest, WorkersReadTogetherWhatOneWorkerReads) {
  for (const std::string shuffle : {"", " shuffle: true"}) {
    for (std::uint64_t batch = 0; batch < 4; ++batch) {
      std::vector<float> together;
      for (int rank = 0; rank < 3; ++rank) {
        const std::vector<float> rows = Rows("batch_size: 2" + shuffle, {rank, 3}, batch);
        together.insert(together.end(), rows.begin(), rows.end());
      }
      EXPECT_EQ(together, Rows("batch_size: 6" + shuffle, {0, 1}, batch)) << batch << shuffle;
    }
  }
  EXPECT_THAT(Rows("batch_size: 2", {1, 3}, 5, TEST), testing::ElementsAre(0, 1));  // of test batches each has its own
  EXPECT_NE(Rows("batch_size: 10 shuffle: true", {0, 1}, 0), Rows("batch_size: 10 shuffle: true", {0, 1}, 1));
}

// Two blobs of a batch are read by several layers; the next batch must not be written over what they still see.
TEST_F(Hdf5LayersTest, ABatchThatSomebodyKeepsStays) {
  const auto net = MakeNet(Data("batch_size: 2"));
  std::vector<at::Tensor> kept;
  for (std::uint64_t batch = 0; batch < 4; ++batch) {
    net->BeginPass({.step = batch, .pass = 0, .batch = batch});
    ASSERT_TRUE(net->Forward().ok());
    kept.push_back(net->blob("y")->data);
  }
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(kept[i][0].item<float>(), 10 + 2 * static_cast<float>(i));
}

TEST_F(Hdf5LayersTest, OutputsHaveTheRowsOfEveryBatchAndWorker) {
  for (int rank = 0; rank < 2; ++rank) {
    NetOptions options;
    options.share = {rank, 2};
    const auto net = MakeNet("layer { name: 'd' type: 'HDF5Data' top: 'y' hdf5_data_param { source: '" + Path("list.txt") +
                                 "' batch_size: 2 } } layer { name: 'o' type: 'HDF5Output' bottom: 'y' bottom: 'y' "
                                 "hdf5_output_param { file_name: '" + Path("out.h5") + "' } }",
                             TRAIN, options);
    for (std::uint64_t batch = 0; batch < 2; ++batch) {
      net->BeginPass({.step = batch, .pass = 0, .batch = batch});
      const auto loss = net->Forward();
      ASSERT_TRUE(loss.ok()) << loss.status().message();
    }
  }
  for (int rank = 0; rank < 2; ++rank) {
    const auto reader = Hdf5RowReader::Open(Path(rank == 0 ? "out.h5" : "out.h5.1"), {"data", "label"}, Hdf5Access::kInOrder);
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    EXPECT_EQ((*reader)->rows(), 4U);
    EXPECT_EQ((*reader)->row_shape(0), (Shape{1, 1, 1}));
    std::array<float, 4> rows{};
    ASSERT_TRUE((*reader)->Read(1, 0, 4, rows.data()).ok());
    const float first = static_cast<float>(10 + 2 * rank);
    EXPECT_THAT(rows, testing::ElementsAre(first, first + 1, first + 4, first + 5));
  }
  const std::string output = "layer { name: 'o' type: 'HDF5Output' bottom: 'data' bottom: 'data' hdf5_output_param { ";
  EXPECT_THAT(WhyNoNet("layer { name: 'in' type: 'Input' top: 'data' input_param { shape { dim: 2 } } }" + output + "} }"),
              HasSubstr("needs a file_name"));
}

}  // namespace
}  // namespace poseidon::caffe
