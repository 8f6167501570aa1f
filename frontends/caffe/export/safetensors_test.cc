// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/export/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "poseidon/base/file.h"

namespace poseidon::caffe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest() : path_(std::filesystem::path(testing::TempDir()) / ("tensors_" + std::to_string(::getpid()))) {}
  ~SafetensorsTest() override { std::filesystem::remove(path_); }

  Result<std::vector<NamedTensor>> Read(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return ReadSafetensors(path_);
  }
  Result<std::vector<NamedTensor>> Read(const std::string& header, const std::string& numbers) {
    return Read(Length(header.size()) + header + numbers);
  }
  std::string Refusal(const std::string& header, const std::string& numbers) {
    const auto tensors = Read(header, numbers);
    EXPECT_FALSE(tensors.ok()) << header;
    return tensors.status().message();
  }
  static std::string Length(std::uint64_t length) { return {reinterpret_cast<const char*>(&length), sizeof length}; }

  const std::string path_;
};

TEST_F(SafetensorsTest, TensorsComeBack) {
  const std::vector<float> six = {1, 2, 3, 4, 5, -6.5F};
  const std::vector<float> one = {7};
  ASSERT_TRUE(WriteSafetensors({{"conv.0", {2, 3}, six}, {"a/b.1", {1}, one}, {"number.0", {}, one}}, "net", path_).ok());
  const auto tensors = ReadSafetensors(path_);
  ASSERT_TRUE(tensors.ok()) << tensors.status().ToString();
  ASSERT_THAT(*tensors, SizeIs(3));
  EXPECT_EQ((*tensors)[0].name, "conv.0");
  EXPECT_THAT((*tensors)[0].shape, ElementsAre(2, 3));
  EXPECT_EQ((*tensors)[0].numbers, six);
  EXPECT_EQ((*tensors)[1].name, "a/b.1");
  EXPECT_THAT((*tensors)[2].shape, SizeIs(0));
}

TEST_F(SafetensorsTest, OtherWidthsBecomeFloats) {
  const auto tensors = Read(R"({"h":{"dtype":"F16","shape":[6],"data_offsets":[0,12]},
                               "b":{"dtype":"BF16","shape":[2],"data_offsets":[12,16]},
                               "d":{"dtype":"F64","shape":[1],"data_offsets":[16,24]}})",
                            std::string("\x00\x3c\x00\xc1\x01\x00\xff\x7b\x00\x7c\x00\x84", 12) + std::string("\xc0\x3f\x20\xc1", 4) +
                                std::string("\x00\x00\x00\x00\x00\x00\xd0\x3f", 8));
  ASSERT_TRUE(tensors.ok()) << tensors.status().ToString();
  EXPECT_THAT((*tensors)[0].numbers, ElementsAre(1, -2.5F, 0x1p-24F, 65504, std::numeric_limits<float>::infinity(), -0x1p-14F));
  EXPECT_THAT((*tensors)[1].numbers, ElementsAre(1.5F, -10));
  EXPECT_THAT((*tensors)[2].numbers, ElementsAre(0.25F));
}

TEST_F(SafetensorsTest, HostileHeadersAreRefusedInASentence) {
  const std::string four(4, 'x');
  EXPECT_THAT(Refusal("[]", ""), HasSubstr("not a JSON object"));
  EXPECT_THAT(Refusal(R"({"a":1})", ""), HasSubstr("no dtype"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}})", four), HasSubstr("dtype I8"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", four), HasSubstr("more numbers than"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,8]}})", four), HasSubstr("beyond"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", four), HasSubstr("no dtype"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})", four), HasSubstr("more numbers"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[0,18446744073709551615],"data_offsets":[0,0]}})", four), HasSubstr("more numbers"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", four + four), HasSubstr("8 bytes of numbers"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
                          "b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", four),
              HasSubstr("do not follow"));
  EXPECT_THAT(Refusal(std::string(100000, '['), ""), HasSubstr("not a JSON object"));
  EXPECT_THAT(Refusal(R"({"a":)" + std::string(100000, '[') + std::string(100000, ']') + "}", ""), HasSubstr("no dtype"));
  EXPECT_THAT(Read("short").status().message(), HasSubstr("5 bytes"));
  EXPECT_THAT(Read(Length(1) + "").status().message(), HasSubstr("header would have 1 bytes"));
  EXPECT_THAT(Read(Length(~std::uint64_t{0}) + "{}").status().message(), HasSubstr("header would have"));
}

// What is cut or changed is refused, or is another file that is whole.
TEST_F(SafetensorsTest, DamagedFilesDoNoHarm) {
  const std::vector<float> six = {1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(WriteSafetensors({{"conv.0", {2, 3}, six}, {"conv.1", {6}, six}}, "net", path_).ok());
  std::string whole(std::filesystem::file_size(path_), '\0');
  const File file(path_, O_RDONLY);
  ASSERT_EQ(::read(file.fd(), whole.data(), whole.size()), static_cast<ssize_t>(whole.size()));
  for (std::size_t size = 0; size < whole.size(); size += 3) EXPECT_FALSE(Read(whole.substr(0, size)).ok()) << size;
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string damaged = whole;
    for (int j = 0; j < 2; ++j) damaged[random() % (whole.size() - 48)] = static_cast<char>(random());
    refused += Read(damaged).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace poseidon::caffe
