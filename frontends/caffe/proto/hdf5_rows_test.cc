// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/proto/hdf5_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <hdf5_hl.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

namespace poseidon::caffe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Hdf5RowsTest : public testing::Test {
 protected:
  Hdf5RowsTest() : folder_(std::filesystem::path(testing::TempDir()) / ("caffe_rows_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~Hdf5RowsTest() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  // "data" [rows, 2, 3] of floats that count up, "label" [rows] of ints from 100, as Caffe's users write them; packed
  // in chunks of three rows, plain or packed.
  enum class Stored { kInOnePiece, kInChunks, kPacked, kShuffled };
  static constexpr Stored kAll[] = {Stored::kInOnePiece, Stored::kInChunks, Stored::kPacked, Stored::kShuffled};
  std::string Write(const std::string& name, hsize_t rows, Stored stored = Stored::kInOnePiece) const {
    const hid_t file = H5Fcreate(Path(name).c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    std::vector<float> numbers(rows * 6);
    std::iota(numbers.begin(), numbers.end(), 0.0F);
    std::vector<int> labels(rows);
    std::iota(labels.begin(), labels.end(), 100);
    const std::array<hsize_t, 3> shape = {rows, 2, 3};
    const hid_t how = H5Pcreate(H5P_DATASET_CREATE);
    const std::array<hsize_t, 3> chunk = {3, 1, 2};
    if (stored != Stored::kInOnePiece) H5Pset_chunk(how, 3, chunk.data());
    if (stored == Stored::kShuffled) H5Pset_shuffle(how);
    if (stored == Stored::kShuffled || stored == Stored::kPacked) H5Pset_deflate(how, 4);
    const hid_t space = H5Screate_simple(3, shape.data(), nullptr);
    const hid_t data = H5Dcreate2(file, "data", H5T_IEEE_F32LE, space, H5P_DEFAULT, how, H5P_DEFAULT);
    H5Dwrite(data, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers.data());
    H5Dclose(data);
    H5Sclose(space);
    H5Pclose(how);
    H5LTmake_dataset_int(file, "label", 1, shape.data(), labels.data());
    H5Fclose(file);
    return Path(name);
  }
  std::string WhyNot(const std::string& path, const std::vector<std::string>& names = {"data", "label"}) const {
    const auto reader = Hdf5RowReader::Open(path, names, Hdf5Access::kInOrder);
    return reader.ok() ? "it can be read" : reader.status().message();
  }

  std::filesystem::path folder_;
};

TEST_F(Hdf5RowsTest, RowsComeFromAnywhereInEitherType) {
  for (const Stored stored : kAll) {
    for (const Hdf5Access access : {Hdf5Access::kInOrder, Hdf5Access::kAtRandom}) {
      const auto reader = Hdf5RowReader::Open(Write("a.h5", 7, stored), {"data", "label"}, access);
      ASSERT_TRUE(reader.ok()) << reader.status().message();
      EXPECT_EQ((*reader)->rows(), 7U);
      EXPECT_THAT((*reader)->row_shape(0), ElementsAre(2, 3));
      EXPECT_TRUE((*reader)->row_shape(1).empty());
      std::array<float, 12> data{};
      ASSERT_TRUE((*reader)->Read(0, 5, 2, data.data()).ok());
      EXPECT_EQ(data[0], 30);
      EXPECT_EQ(data[11], 41);
      ASSERT_TRUE((*reader)->Read(0, 0, 2, data.data()).ok());
      EXPECT_THAT(data, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
      std::array<double, 3> labels{};
      ASSERT_TRUE((*reader)->Read(1, 2, 3, labels.data()).ok());
      EXPECT_THAT(labels, ElementsAre(102, 103, 104));
    }
  }
}

TEST_F(Hdf5RowsTest, FilesThatDoNotFitAreNamed) {
  EXPECT_EQ(WhyNot(Path("none.h5")), "cannot open " + Path("none.h5"));
  EXPECT_EQ(WhyNot(folder_.string()), folder_.string() + " is no file");
  std::ofstream(Path("text.h5")) << "no HDF5";
  EXPECT_EQ(WhyNot(Path("text.h5")), Path("text.h5") + " is not a whole HDF5 file");
  const std::string good = Write("a.h5", 4);
  EXPECT_EQ(WhyNot(good, {"data", "labels"}), good + " has no dataset 'labels'");
  const hid_t file = H5Fopen(good.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hsize_t five = 5;
  const float number = 1;
  H5LTmake_dataset_string(file, "text", "text");
  H5LTmake_dataset_float(file, "scalar", 0, nullptr, &number);
  H5Gclose(H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  const std::array<int, 5> five_labels{};
  H5LTmake_dataset_int(file, "five", 1, &five, five_labels.data());
  Write("b.h5", 4);
  H5Lcreate_external("b.h5", "data", file, "elsewhere", H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t huge = hsize_t{1} << 50;
  const hid_t space = H5Screate_simple(1, &huge, nullptr);
  const hsize_t thousand = 1000;
  const hid_t how = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(how, 1, &thousand);
  H5Dclose(H5Dcreate2(file, "huge", H5T_IEEE_F32LE, space, H5P_DEFAULT, how, H5P_DEFAULT));
  H5Fclose(file);
  EXPECT_EQ(WhyNot(good, {"data", "five"}), good + ": dataset 'five' has 5 rows, dataset 'data' has 4");
  EXPECT_EQ(WhyNot(good, {"text"}), good + ": dataset 'text' does not hold floats or integers");
  EXPECT_EQ(WhyNot(good, {"scalar"}), good + ": dataset 'scalar' has no axes, expected one or more, the first of rows");
  EXPECT_EQ(WhyNot(good, {"group"}), good + " has no dataset 'group'");
  EXPECT_EQ(WhyNot(good, {"elsewhere"}), good + ": dataset 'elsewhere' is in another file, expected it in this one");
  EXPECT_EQ(WhyNot(good, {"huge"}), good + ": dataset 'huge' has more numbers than the file");
  std::filesystem::resize_file(good, std::filesystem::file_size(good) - 1);
  EXPECT_EQ(WhyNot(good), good + " is not a whole HDF5 file");
}

TEST_F(Hdf5RowsTest, WhatIsAppendedComesBack) {
  const std::string path = Path("out.h5");
  {
    auto writer = Hdf5RowWriter::Create(path);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    EXPECT_THAT(Hdf5RowWriter::Create(path).status().message(), HasSubstr("cannot make " + path));
    const std::array<float, 6> numbers = {1, 2, 3, 4, 5, 6};
    ASSERT_TRUE((*writer)->Append("data", {1, 3}, numbers.data()).ok());
    ASSERT_TRUE((*writer)->Append("data", {2, 3}, numbers.data()).ok());
    EXPECT_THAT((*writer)->Append("data", {3, 2}, numbers.data()).message(), HasSubstr("dataset 'data' has rows of one shape"));
    const double one = 1;
    ASSERT_TRUE((*writer)->Append("label", {1}, &one).ok());
    ASSERT_TRUE((*writer)->Flush().ok());
  }
  const auto reader = Hdf5RowReader::Open(path, {"data"}, Hdf5Access::kInOrder);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  std::array<float, 9> read{};
  ASSERT_TRUE((*reader)->Read(0, 0, 3, read.data()).ok());
  EXPECT_THAT(read, ElementsAre(1, 2, 3, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Hdf5RowWriter::Create(Path("no/such/folder.h5")).status().message(), HasSubstr("cannot make"));
}

// A file that was cut off or whose bytes changed ends in a sentence or in numbers.
TEST_F(Hdf5RowsTest, MutatedFilesEndInASentence) {
  std::mt19937 random(1);
  int refused = 0;
  for (const Stored stored : kAll) {
    const std::string path = Write("whole.h5", 9, stored);
    std::ifstream file(path, std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    for (int round = 0; round < 250; ++round) {
      std::string bytes = whole;
      if (round % 5 == 0) bytes.resize(random() % bytes.size());
      for (auto changes = 1 + random() % 6; changes > 0 && !bytes.empty(); --changes) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      std::ofstream(Path("x.h5"), std::ios::binary) << bytes;
      const auto reader = Hdf5RowReader::Open(Path("x.h5"), {"data", "label"}, Hdf5Access::kInOrder);
      Status status = reader.status();
      if (reader.ok() && (*reader)->rows() <= 100 && (*reader)->row_shape(0).size() < 9) {
        std::size_t numbers = (*reader)->rows();
        for (const std::int64_t extent : (*reader)->row_shape(0)) numbers *= static_cast<std::size_t>(extent);
        if (numbers > 100000) continue;
        std::vector<float> read(numbers);
        status = (*reader)->Read(0, 0, (*reader)->rows(), read.data());
      }
      if (status.ok()) continue;
      ++refused;
      EXPECT_THAT(status.message(), HasSubstr("x.h5"));
    }
  }
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace poseidon::caffe
