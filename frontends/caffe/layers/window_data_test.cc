// SPDX-License-Identifier: Apache-2.0
// WindowData among several workers. tests/process/test_windows.py has its crops.
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "frontends/caffe/data/test_database.h"
#include "frontends/caffe/data/test_images.h"
#include "tests/shared/gradient_checker.h"

namespace poseidon::caffe {
namespace {

using testing::HasSubstr;

// How many labels are not that of the background.
int Foreground(const at::Tensor& labels) {
  const float* const label = labels.const_data_ptr<float>();
  return static_cast<int>(std::count_if(label, label + labels.numel(), [](float each) { return each > 0; }));
}

class WindowDataTest : public testing::Test {
 protected:
  WindowDataTest() {
    std::ofstream(folder_ / "a.jpg", std::ios::binary) << ColourJpeg();
    std::string windows;
    for (int i = 0; i < 40; ++i) {
      windows += std::to_string(1 + i % 20) + (i < 20 ? " 0.6 " : " 0.4 ") + std::to_string(i % 10) + " " +
                 std::to_string(i % 7) + " " + std::to_string(10 + i % 11) + " " + std::to_string(7 + i % 6) + "\n";
    }
    std::ofstream(folder_ / "windows.txt") << "# 0\na.jpg\n3\n13\n21\n40\n" << windows;
  }

  std::string Windows(int batch, const std::string& options = "") const {
    return "layer { name: 'w' type: 'WindowData' top: 'data' top: 'label' transform_param { crop_size: 9 mirror: true "
           "} window_data_param { source: '" +
           folder_ / "windows.txt" + "' root_folder: '" + folder_ / "" + "' batch_size: " + std::to_string(batch) +
           " context_pad: 1 " + options + " } }";
  }
  struct Tops {
    at::Tensor data, label;
  };
  // Of global batch `batch`, on worker `share.rank`.
  Tops Batch(int rows, DataShare share, std::uint64_t batch, Phase phase = TRAIN, std::uint64_t seed = 1) const {
    NetOptions options;
    options.share = share;
    options.seed = seed;
    const auto net = MakeNet(Windows(rows), phase, options);
    net->BeginPass({.step = batch, .pass = 0, .batch = batch});
    const auto loss = net->Forward();
    EXPECT_TRUE(loss.ok()) << loss.status().message();
    return {net->blob("data")->data.clone(), net->blob("label")->data.clone()};
  }

  TestFolder folder_;
};

TEST_F(WindowDataTest, ThreeWorkersReadTheBatchThatOneReads) {
  for (const std::uint64_t batch : {0, 1, 7}) {
    const Tops one = Batch(12, {}, batch);
    EXPECT_EQ(Foreground(one.label), 3);
    EXPECT_EQ(Foreground(one.label.narrow(0, 9, 3)), 3);
    for (int rank = 0; rank < 3; ++rank) {
      const Tops own = Batch(4, {.rank = rank, .world = 3}, batch);
      EXPECT_TRUE(at::equal(own.data, one.data.narrow(0, 4 * rank, 4))) << batch << " " << rank;
      EXPECT_TRUE(at::equal(own.label, one.label.narrow(0, 4 * rank, 4))) << batch << " " << rank;
    }
  }
}

// Three workers had read five batches of four when two went on: the first of theirs has its foreground at its end too.
TEST_F(WindowDataTest, AnotherNumberOfWorkersGoesOnWithWholeBatches) {
  for (const std::uint64_t batch : {5, 6}) {
    const Tops left = Batch(4, {.rank = 0, .world = 2, .since = 5, .taken = 15}, batch);
    const Tops right = Batch(4, {.rank = 1, .world = 2, .since = 5, .taken = 15}, batch);
    EXPECT_EQ(Foreground(left.label), 0);
    EXPECT_EQ(Foreground(right.label.narrow(0, 2, 2)), 2);
    EXPECT_EQ(Foreground(right.label), 2);
  }
}

// A test's batch is one worker's alone.
TEST_F(WindowDataTest, ATestBatchIsTheSameForAnyNumberOfWorkers) {
  const Tops one = Batch(8, {}, 2, TEST);
  EXPECT_TRUE(at::equal(Batch(8, {.rank = 1, .world = 3}, 2, TEST).data, one.data));
  EXPECT_EQ(Foreground(one.label), 2);
  EXPECT_FALSE(at::equal(Batch(8, {}, 2).data, one.data));
}

TEST_F(WindowDataTest, DrawsDependOnTheSeedAndTheBatch) {
  const Tops one = Batch(8, {}, 2);
  EXPECT_TRUE(at::equal(Batch(8, {}, 2).data, one.data));
  EXPECT_FALSE(at::equal(Batch(8, {}, 3).data, one.data));
  EXPECT_FALSE(at::equal(Batch(8, {}, 2, TRAIN, 2).data, one.data));
}

TEST_F(WindowDataTest, SaysWhichWindowHasABadLabel) {
  const std::string net =
      Windows(4, "fg_fraction: 1") +
      "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { num_output: 1 } }"
      "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }";
  const auto made = MakeNet(net);
  made->BeginPass({});
  EXPECT_THAT(made->Forward().status().message(), HasSubstr("the window in line "));
}

}  // namespace
}  // namespace poseidon::caffe
