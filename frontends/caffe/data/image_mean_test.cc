// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/image_mean.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "frontends/caffe/data/test_database.h"

namespace poseidon::caffe {
namespace {

using ::testing::HasSubstr;

// A database of `datums`, read.
class ImageMeanTest : public ::testing::Test {
 protected:
  Result<ImageMean> MeanOf(const std::vector<Datum>& datums) {
    const std::string path = folder_ / ("db" + std::to_string(databases_++));
    auto writer = CreateLmdb(path, 1 << 20);
    EXPECT_TRUE(writer.ok());
    for (std::size_t i = 0; i < datums.size(); ++i) EXPECT_TRUE((*writer)->Put(TestKey(i), datums[i].SerializeAsString()).ok());
    EXPECT_TRUE((*writer)->Finish().ok());
    auto records = OpenRecords(Database::kLmdb, path);
    EXPECT_TRUE(records.ok());
    return ComputeImageMean(records->get(), {});
  }
  std::string Refusal(const std::vector<Datum>& datums) { return MeanOf(datums).status().message(); }

  TestFolder folder_;
  int databases_ = 0;
};

TEST_F(ImageMeanTest, IsThatOfTheRecords) {
  std::vector<Datum> datums;
  for (std::uint64_t i = 0; i < 100; ++i) datums.push_back(TestDatum(i, 2, 3, 4));
  const auto mean = MeanOf(datums);
  ASSERT_TRUE(mean.ok()) << mean.status().ToString();
  EXPECT_EQ(mean->records, 100u);
  EXPECT_EQ(mean->image.num(), 1);
  EXPECT_EQ(mean->image.channels(), 2);
  EXPECT_EQ(mean->image.height(), 3);
  EXPECT_EQ(mean->image.width(), 4);
  ASSERT_EQ(mean->image.data_size(), 24);
  std::vector<double> channels(2);
  for (int i = 0; i < 24; ++i) {
    double sum = 0;
    for (int n = 0; n < 100; ++n) sum += (n * 31 + i) & 255;
    EXPECT_EQ(mean->image.data(i), static_cast<float>(sum / 100));
    channels[static_cast<std::size_t>(i / 12)] += sum / 100 / 12;
  }
  ASSERT_EQ(mean->channels.size(), 2u);
  for (std::size_t c = 0; c < 2; ++c) EXPECT_NEAR(mean->channels[c], channels[c], 1e-5);
}

// In f32 the small numbers would be lost.
TEST_F(ImageMeanTest, SumsAreExact) {
  std::vector<Datum> datums(1001, TestDatum(0, 1, 1, 1));
  for (Datum& datum : datums) {
    datum.clear_data();
    datum.add_float_data(1);
  }
  datums[0].set_float_data(0, 1 << 24);
  const auto mean = MeanOf(datums);
  ASSERT_TRUE(mean.ok()) << mean.status().ToString();
  EXPECT_EQ(mean->image.data(0), static_cast<float>(((1 << 24) + 1000) / 1001.0));
}

TEST_F(ImageMeanTest, SaysWhatIsWrong) {
  EXPECT_THAT(Refusal({TestDatum(0, 1, 2, 3), TestDatum(1, 1, 3, 2)}), HasSubstr("record 1 is 1x3x2, expected 1x2x3"));
  Datum cut = TestDatum(1, 1, 2, 3);
  cut.mutable_data()->pop_back();
  EXPECT_THAT(Refusal({TestDatum(0, 1, 2, 3), cut}), HasSubstr("record 1 is corrupt"));
  Datum huge = TestDatum(1, 1, 2, 3);
  huge.set_height(1 << 30);
  EXPECT_THAT(Refusal({huge}), HasSubstr("record 0 is corrupt"));
}

}  // namespace
}  // namespace poseidon::caffe
