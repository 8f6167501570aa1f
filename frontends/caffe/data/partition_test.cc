// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "frontends/caffe/data/test_database.h"

namespace poseidon::caffe {
namespace {

using ::testing::HasSubstr;

TEST(Partition, DealsRecordsOut) {
  TestFolder folder;
  WriteTestDatabase(folder / "db", 20);
  auto all = OpenRecords(Database::kLmdb, folder / "db/");
  ASSERT_TRUE(all.ok());
  const Status done = Partition(all->get(), Database::kLmdb, 3);
  ASSERT_TRUE(done.ok()) << done.ToString();
  std::uint64_t found = 0;
  for (int part = 0; part < 3; ++part) {
    auto records = OpenRecords(Database::kLmdb, folder / ("db_" + std::to_string(part)));
    ASSERT_TRUE(records.ok());
    for (std::uint64_t i = 0; i < (*records)->size(); ++i, ++found) {
      const auto record = (*records)->At(i);
      ASSERT_TRUE(record.ok());
      const std::uint64_t number = 3 * i + static_cast<std::uint64_t>(part);
      EXPECT_EQ(record->key, TestKey(number));
      EXPECT_EQ(record->value, TestDatum(number, 1, 2, 3).SerializeAsString());
    }
  }
  EXPECT_EQ(found, 20u);
}

TEST(Partition, LeavesWhatIsThere) {
  TestFolder folder;
  WriteTestDatabase(folder / "db", 2);
  auto all = OpenRecords(Database::kLmdb, folder / "db");
  ASSERT_TRUE(all.ok());
  EXPECT_THAT(Partition(all->get(), Database::kLmdb, 3).message(), HasSubstr("2 records, expected one or more for each of 3 parts"));
  std::filesystem::create_directory(folder / "db_1");
  EXPECT_THAT(Partition(all->get(), Database::kLmdb, 2).message(), HasSubstr("db_1 exists already"));
  EXPECT_FALSE(std::filesystem::exists(folder / "db_0"));
}

// Its records cannot be read from the fourth on.
class HalfADatabase final : public RecordSource {
 public:
  explicit HalfADatabase(RecordSource* whole) : whole_(whole) {}
  std::uint64_t size() const override { return whole_->size(); }
  const std::string& path() const override { return whole_->path(); }
  Result<Record> At(std::uint64_t position) override {
    return position < 3 ? whole_->At(position) : Result<Record>(DataLoss("record " + std::to_string(position) + " is gone"));
  }

 private:
  RecordSource* const whole_;
};

TEST(Partition, LeavesNothingOfItsOwnWhereItFails) {
  TestFolder folder;
  WriteTestDatabase(folder / "db", 4);
  auto all = OpenRecords(Database::kLmdb, folder / "db");
  ASSERT_TRUE(all.ok());
  HalfADatabase half(all->get());
  EXPECT_EQ(Partition(&half, Database::kLmdb, 4).message(), "record 3 is gone");
  EXPECT_FALSE(std::filesystem::exists(folder / "db_0"));
  EXPECT_TRUE(std::filesystem::exists(folder / "db"));
  EXPECT_TRUE(Partition(all->get(), Database::kLmdb, 4).ok());
}

}  // namespace
}  // namespace poseidon::caffe
