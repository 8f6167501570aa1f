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

}  // namespace
}  // namespace poseidon::caffe
