// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/hdf5_list.h"

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <set>

namespace poseidon::caffe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Hdf5ListTest : public testing::Test {
 protected:
  Hdf5ListTest() : folder_(std::filesystem::path(testing::TempDir()) / ("caffe_list_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~Hdf5ListTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  // Rows `first` to first + rows - 1: data [2] holds the row's number twice, label [] a hundred more.
  std::string Write(const std::string& name, int first, int rows, const std::vector<std::int64_t>& row = {2}) const {
    auto writer = Hdf5RowWriter::Create(Path(name));
    EXPECT_TRUE(writer.ok()) << writer.status().message();
    for (int i = first; i < first + rows; ++i) {
      std::vector<std::int64_t> shape = row;
      shape.insert(shape.begin(), 1);
      std::int64_t numbers = 1;
      for (const std::int64_t extent : shape) numbers *= extent;
      const std::vector<float> data(static_cast<std::size_t>(numbers), static_cast<float>(i));
      const double label = 100 + i;
      EXPECT_TRUE((*writer)->Append("data", shape, data.data()).ok());
      EXPECT_TRUE((*writer)->Append("label", {1}, &label).ok());
    }
    return name;
  }
  std::string List(const std::string& text) const {
    std::ofstream(Path("list.txt")) << text;
    return Path("list.txt");
  }
  std::unique_ptr<Hdf5List> Open(const std::string& list, ListDraw shuffle = {}) const {
    auto opened = Hdf5List::Open({.list = list, .datasets = {"data", "label"}, .shuffle = std::move(shuffle)});
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return std::move(opened).value();
  }
  std::string WhyNot(const std::string& list) const {
    const auto opened = Hdf5List::Open({.list = list, .datasets = {"data", "label"}});
    return opened.ok() ? "it can be read" : opened.status().message();
  }

  std::filesystem::path folder_;
};

// The rows' numbers of a batch; data and label agree.
std::vector<int> Batch(Hdf5List* list, std::uint64_t first, std::int64_t rows) {
  const at::Tensor data = at::empty({rows, 2}, at::kFloat);
  const at::Tensor label = at::empty({rows}, at::kDouble);
  const Status read = list->Read(first, {data, label});
  EXPECT_TRUE(read.ok()) << read.message();
  std::vector<int> numbers;
  for (std::int64_t i = 0; i < rows; ++i) {
    numbers.push_back(static_cast<int>(data[i][1].item<float>()));
    EXPECT_EQ(label[i].item<double>(), 100 + numbers.back());
  }
  return numbers;
}

TEST_F(Hdf5ListTest, RowsComeInTheFilesOrderOverAndOver) {
  const auto list = Open(List(Write("a.h5", 0, 3) + "\n" + Write("b.h5", 3, 1) + "\n\n  " + Write("c.h5", 4, 2) + " \n"));
  EXPECT_EQ(list->rows(), 6U);
  EXPECT_THAT(list->row_shape(0), ElementsAre(2));
  EXPECT_THAT(Batch(list.get(), 0, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Batch(list.get(), 4, 9), ElementsAre(4, 5, 0, 1, 2, 3, 4, 5, 0));
  EXPECT_THAT(Batch(list.get(), 600 + 3, 2), ElementsAre(3, 4));
  EXPECT_EQ(list->NameOf(6 + 5), "row 1 of " + Path("c.h5") + ", counted from 0");
}

EpochBits Mixed(std::uint64_t epoch, std::uint64_t list) {
  return [=](std::uint64_t number) {
    std::seed_seq seed = {epoch, list, number};
    return static_cast<std::uint32_t>(std::mt19937(seed)());
  };
}

TEST_F(Hdf5ListTest, ShuffledEpochsHaveEveryRowOnceInAnOrderOfTheirOwn) {
  const std::string path = List(Write("a.h5", 0, 40) + " " + Write("b.h5", 40, 30) + " " + Write("c.h5", 70, 30));
  const auto list = Open(path, Mixed);
  std::set<std::vector<int>> epochs;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int> rows = Batch(list.get(), 100 * epoch, 100);
    epochs.insert(rows);
    EXPECT_FALSE(std::is_sorted(rows.begin(), rows.end()));
    std::sort(rows.begin(), rows.end());
    std::vector<int> all(100);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(rows, all);
  }
  EXPECT_EQ(epochs.size(), 3U);
  // Three readers that take turns read the same, wherever they begin.
  const std::vector<int> whole = Batch(list.get(), 0, 150);
  std::vector<int> parts;
  for (std::uint64_t batch = 0; batch < 15; ++batch) {
    const std::vector<int> part = Batch(Open(path, Mixed).get(), 10 * batch, 10);
    parts.insert(parts.end(), part.begin(), part.end());
  }
  EXPECT_EQ(parts, whole);
}

TEST_F(Hdf5ListTest, WhatDoesNotFitIsNamed) {
  EXPECT_EQ(WhyNot(Path("none.txt")), "cannot open the list of HDF5 files " + Path("none.txt"));
  EXPECT_THAT(WhyNot(folder_.string()), HasSubstr("cannot open the list"));
  EXPECT_EQ(WhyNot(List(" \n")), "the list of HDF5 files " + Path("list.txt") + " names no file");
  EXPECT_EQ(WhyNot(List("none.h5")), "list " + Path("list.txt") + ": cannot open none.h5");
  Write("a.h5", 0, 3);
  EXPECT_EQ(WhyNot(List("a.h5 " + Write("b.h5", 3, 1, {2, 3}))),
            "list " + Path("list.txt") + ": " + Path("b.h5") + ": dataset 'data' has rows of shape 2x3, expected shape 2 as in " +
                Path("a.h5"));
  std::ofstream(Path("c.h5")) << "no HDF5";
  EXPECT_EQ(WhyNot(List("a.h5 c.h5")), "list " + Path("list.txt") + ": " + Path("c.h5") + " is not a whole HDF5 file");
}

TEST_F(Hdf5ListTest, AFileThatChangesMeanwhileIsNoticed) {
  const auto list = Open(List(Write("a.h5", 0, 3) + " " + Write("b.h5", 3, 3)));
  EXPECT_THAT(Batch(list.get(), 0, 2), ElementsAre(0, 1));
  Write("b.h5", 3, 2);
  const at::Tensor data = at::empty({4, 2}, at::kFloat);
  const at::Tensor label = at::empty({4}, at::kFloat);
  EXPECT_THAT(list->Read(2, {data, label}).message(), HasSubstr("b.h5 has other rows than when training began"));
  std::filesystem::resize_file(Path("b.h5"), 100);
  EXPECT_THAT(list->Read(2, {data, label}).message(), HasSubstr("b.h5 is not a whole HDF5 file"));
}

}  // namespace
}  // namespace poseidon::caffe
