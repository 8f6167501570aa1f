// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/source_part.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace poseidon::caffe {
namespace {

class SourcePartTest : public testing::Test {
 protected:
  SourcePartTest() : folder_(std::filesystem::path(testing::TempDir()) / ("source_part_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~SourcePartTest() override { std::filesystem::remove_all(folder_); }
  std::string Make(const std::string& name) {
    std::ofstream(folder_ / name) << name;
    return (folder_ / name).string();
  }

  std::filesystem::path folder_;
  const std::string source_ = (folder_ / "train").string();
};

TEST_F(SourcePartTest, ASourceThatIsThereIsEverybodys) {
  Make("train");
  Make("train_1");
  EXPECT_FALSE(HasParts(source_));
  const SourcePart part = PartOf(source_, false, 1, 2).value();
  EXPECT_EQ(part.path, source_);
  EXPECT_FALSE(part.own);
}

TEST_F(SourcePartTest, WithoutItEveryWorkerHasAPart) {
  Make("train_0");
  const std::string second = Make("train_1");
  EXPECT_TRUE(HasParts(source_));
  const SourcePart part = PartOf(source_, false, 1, 2).value();
  EXPECT_EQ(part.path, second);
  EXPECT_EQ(part.suffix, "_1");
  EXPECT_TRUE(part.own);
  // Not where the file says that all see one file system.
  EXPECT_EQ(PartOf(source_, true, 1, 2)->path, source_);
}

TEST_F(SourcePartTest, AWorkerNeedsItsOwnPartAlone) {
  const std::string third = Make("train_2");
  EXPECT_EQ(PartOf(source_, false, 2, 3)->path, third);
}

TEST_F(SourcePartTest, PartsThatDoNotFitTheWorkersAreNamed) {
  Make("train_0");
  Make("train_1");
  EXPECT_EQ(PartOf(source_, false, 2, 3).status().message(),
            source_ + " is not there, so every worker has a part of its own, " + source_ + "_0 to " + source_ + "_2; there is no " +
                source_ + "_2 for worker 2");
  EXPECT_EQ(PartOf(source_, false, 0, 1).status().message(),
            source_ + " is not there, so every worker has a part of its own, " + source_ + "_0 to " + source_ + "_0; there is also " +
                source_ + "_1, expected as many parts as workers");
}

TEST_F(SourcePartTest, OtherNamesAreNoParts) {
  Make("train_");
  Make("train_1x");
  Make("train_lmdb");
  Make("train2");
  EXPECT_FALSE(HasParts(source_));
  EXPECT_EQ(PartOf(source_, false, 0, 1)->path, source_);
  EXPECT_FALSE(HasParts(""));
  EXPECT_FALSE(HasParts((folder_ / "none" / "train").string()));
}

TEST(FirstSampleOfPart, BatchesOfAWorkerFollowEachOther) {
  const DataShare share{.rank = 1, .world = 3};
  EXPECT_EQ(FirstSampleOfPart(0, true, share, 10), 0u);
  EXPECT_EQ(FirstSampleOfPart(5, true, share, 10), 50u);
  EXPECT_EQ(FirstSampleOfPart(1, false, share, 10), 0u);  // tests: its batches are 1, 4, 7
  EXPECT_EQ(FirstSampleOfPart(4, false, share, 10), 10u);
  EXPECT_EQ(FirstSampleOfPart(7, false, share, 10), 20u);
}

}  // namespace
}  // namespace poseidon::caffe
