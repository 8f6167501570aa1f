// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/convert_cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "frontends/caffe/data/test_database.h"

namespace poseidon::caffe {
namespace {

using ::testing::HasSubstr;

// Images whose label and pixels begin with their number.
std::string CifarFile(int first, int count) {
  std::string file;
  for (int i = first; i < first + count; ++i) {
    file.push_back(static_cast<char>(i % 10));
    for (int pixel = 0; pixel < 3072; ++pixel) file.push_back(static_cast<char>(i * 7 + pixel));
  }
  return file;
}

class ConvertCifarTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  std::string Refusal(const std::string& bytes) {
    const auto converted = ConvertCifar({Write("bad", bytes)}, folder_ / "bad-db", Database::kLmdb);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "bad-db"));
    return converted.status().message();
  }
  TestFolder folder_;
};

TEST_F(ConvertCifarTest, PutsTheFilesBehindEachOther) {
  const auto count = ConvertCifar({Write("1", CifarFile(0, 7)), Write("2", CifarFile(7, 5))}, folder_ / "db", Database::kLmdb);
  ASSERT_TRUE(count.ok()) << count.status().ToString();
  EXPECT_EQ(*count, 12u);
  auto source = OpenRecords(Database::kLmdb, folder_ / "db");
  ASSERT_TRUE(source.ok());
  ASSERT_EQ((*source)->size(), 12u);
  for (int i = 0; i < 12; ++i) {
    auto record = (*source)->At(static_cast<std::uint64_t>(i));
    ASSERT_TRUE(record.ok());
    EXPECT_EQ(record->key, (i < 10 ? "0000" : "000") + std::to_string(i));
    Datum datum;
    ASSERT_TRUE(datum.ParseFromString(std::string(record->value)));
    EXPECT_EQ(datum.label(), i % 10);
    EXPECT_EQ(datum.channels(), 3);
    EXPECT_EQ(datum.height(), 32);
    EXPECT_EQ(datum.width(), 32);
    EXPECT_EQ(datum.data(), CifarFile(i, 1).substr(1));
  }
}

TEST_F(ConvertCifarTest, SaysWhatIsWrong) {
  EXPECT_THAT(Refusal(""), HasSubstr("bad has 0 bytes, expected 3073 for each image"));
  EXPECT_THAT(Refusal(CifarFile(0, 2).substr(0, 6000)), HasSubstr("has 6000 bytes"));
  EXPECT_THAT(Refusal(CifarFile(0, 1) + "\x0a" + CifarFile(0, 1).substr(1)), HasSubstr("image 1 has label 10, expected 0 to 9"));
  EXPECT_THAT(ConvertCifar({"/nowhere/b"}, folder_ / "db", Database::kLmdb).status().message(), HasSubstr("/nowhere/b cannot be opened"));
}

}  // namespace
}  // namespace poseidon::caffe
