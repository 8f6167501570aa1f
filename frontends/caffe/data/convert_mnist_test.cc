// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/convert_mnist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>

#include "frontends/caffe/data/record_source.h"
#include "frontends/caffe/data/test_database.h"

namespace poseidon::caffe {
namespace {

using ::testing::HasSubstr;

std::string BigEndian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
  return bytes;
}

std::string Images(std::uint32_t count, std::uint32_t rows, std::uint32_t columns) {
  std::string file = BigEndian(2051) + BigEndian(count) + BigEndian(rows) + BigEndian(columns);
  for (std::uint32_t i = 0; i < count * rows * columns; ++i) file.push_back(static_cast<char>(i));
  return file;
}
std::string Labels(std::uint32_t count) {
  std::string file = BigEndian(2049) + BigEndian(count);
  for (std::uint32_t i = 0; i < count; ++i) file.push_back(static_cast<char>(i % 10));
  return file;
}

class ConvertMnistTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes, bool packed = false) {
    const std::string path = folder_ / name;
    if (packed) {
      gzFile file = gzopen(path.c_str(), "wb");
      EXPECT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())),
                static_cast<int>(bytes.size()));
      gzclose(file);
    } else {
      std::ofstream(path, std::ios::binary) << bytes;
    }
    return path;
  }
  std::string Refusal(const std::string& images, const std::string& labels) {
    const auto result =
        ConvertMnist(Write("images", images), Write("labels", labels), folder_ / "db");
    EXPECT_FALSE(std::filesystem::exists(folder_ / "db"));
    return result.status().message();
  }
  TestFolder folder_;
};

TEST_F(ConvertMnistTest, WritesDatumsInOrder) {
  for (const bool packed : {false, true}) {
    const std::string database = folder_ / (packed ? "packed" : "plain");
    const auto count = ConvertMnist(Write("i", Images(300, 5, 4), packed),
                                    Write("l", Labels(300), packed), database);
    ASSERT_TRUE(count.ok()) << count.status().ToString();
    EXPECT_EQ(*count, 300u);
    auto source = OpenRecords(Database::kLmdb, database);
    ASSERT_TRUE(source.ok());
    ASSERT_EQ((*source)->size(), 300u);
    auto record = (*source)->At(257);
    ASSERT_TRUE(record.ok());
    EXPECT_EQ(record->key, "00000257");
    Datum datum;
    ASSERT_TRUE(datum.ParseFromString(std::string(record->value)));
    EXPECT_EQ(datum.label(), 7);
    EXPECT_EQ(datum.channels(), 1);
    EXPECT_EQ(datum.height(), 5);
    EXPECT_EQ(datum.width(), 4);
    EXPECT_EQ(datum.data(), Images(300, 5, 4).substr(16 + 257 * 20, 20));
  }
}

TEST_F(ConvertMnistTest, SaysWhatIsWrong) {
  EXPECT_THAT(Refusal(Labels(3), Labels(3)),
              HasSubstr("begins with the number 2049, expected 2051"));
  EXPECT_THAT(Refusal(Images(3, 2, 2), Images(3, 2, 2)), HasSubstr("expected 2049"));
  EXPECT_THAT(Refusal(Images(3, 2, 2), Labels(4)), HasSubstr("3 images, but"));
  EXPECT_THAT(Refusal(Images(0, 2, 2), Labels(0)), HasSubstr("no images"));
  EXPECT_THAT(Refusal(Images(3, 2, 2).substr(0, 25), Labels(3)),
              HasSubstr("ends within image 2 of 3"));
  EXPECT_THAT(Refusal(Images(3, 2, 2) + "x", Labels(3)), HasSubstr("goes on after"));
  EXPECT_THAT(Refusal(Images(3, 2, 2), Labels(3).substr(0, 9)), HasSubstr("ends within the label"));
  EXPECT_THAT(Refusal(BigEndian(2051) + BigEndian(1) + BigEndian(1u << 31) + BigEndian(1u << 31),
                      Labels(1)),
              HasSubstr("expected sides"));
  EXPECT_THAT(ConvertMnist("/nowhere/i", "/nowhere/l", folder_ / "db").status().message(),
              HasSubstr("/nowhere/i cannot be opened"));
}

}  // namespace
}  // namespace poseidon::caffe
