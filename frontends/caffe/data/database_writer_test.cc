// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/database_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "frontends/caffe/data/test_database.h"

namespace poseidon::caffe {
namespace {

using ::testing::HasSubstr;

std::vector<Database> Backends() {
#if defined(POSEIDON_HAVE_LEVELDB)
  return {Database::kLmdb, Database::kLevelDb};
#else
  return {Database::kLmdb};
#endif
}

std::string ValueOf(std::uint64_t i, std::size_t bytes) { return std::string(bytes + i % 7, static_cast<char>('a' + i % 26)); }

// Also far beyond what was promised: the LMDB's map grows, and several transactions or tables are written.
TEST(DatabaseWriter, WritesWhatIsRead) {
  struct Size {
    std::uint64_t count;
    std::size_t bytes;
    std::uint64_t promised;
  };
  for (const Database backend : Backends()) {
    for (const auto [count, bytes, promised] : {Size{3, 10, 100}, Size{2000, 100, 0}, Size{90, 1000000, 1}}) {
      TestFolder folder;
      auto writer = DatabaseWriter::Create(backend, folder / "db", promised);
      ASSERT_TRUE(writer.ok()) << writer.status().ToString();
      for (std::uint64_t i = 0; i < count; ++i) {
        const Status put = (*writer)->Put(TestKey(i), ValueOf(i, bytes));
        ASSERT_TRUE(put.ok()) << put.ToString();
      }
      const Status finished = (*writer)->Finish();
      ASSERT_TRUE(finished.ok()) << finished.ToString();
      ASSERT_TRUE(DatabaseIn(folder / "db").ok());
      EXPECT_EQ(*DatabaseIn(folder / "db"), backend);
      auto source = OpenRecords(backend, folder / "db");
      ASSERT_TRUE(source.ok()) << source.status().ToString();
      ASSERT_EQ((*source)->size(), count);
      for (std::uint64_t i = 0; i < count; ++i) {
        auto record = (*source)->At(i);
        ASSERT_TRUE(record.ok()) << record.status().ToString();
        EXPECT_EQ(record->key, TestKey(i));
        EXPECT_TRUE(record->value == ValueOf(i, bytes));
      }
    }
  }
}

TEST(DatabaseWriter, AppearsCompleteOrNotAtAll) {
  for (const Database backend : Backends()) {
    TestFolder folder;
    {
      auto writer = DatabaseWriter::Create(backend, folder / "db", 100);
      ASSERT_TRUE(writer.ok());
      ASSERT_TRUE((*writer)->Put("a", "1").ok());
      EXPECT_FALSE(std::filesystem::exists(folder / "db"));
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    std::filesystem::create_directory(folder / "db");
    EXPECT_THAT(DatabaseWriter::Create(backend, folder / "db", 10).status().message(), HasSubstr("exists already"));
    EXPECT_THAT(DatabaseWriter::Create(backend, folder / "no/db", 10).status().message(), HasSubstr("cannot be written"));
    EXPECT_THAT(DatabaseWriter::Create(backend, "", 10).status().message(), HasSubstr("needs a path"));
  }
}

TEST(DatabaseWriter, TakesAscendingKeysOnly) {
  for (const Database backend : Backends()) {
    TestFolder folder;
    for (const char* second : {"b", "a"}) {
      auto writer = DatabaseWriter::Create(backend, folder / "db", 100);
      ASSERT_TRUE(writer.ok());
      ASSERT_TRUE((*writer)->Put("b", "1").ok());
      EXPECT_THAT((*writer)->Put(second, "2").message(), HasSubstr("comes twice or too late"));
    }
  }
}

TEST(DatabaseWriter, BackendsHaveCaffesNames) {
  EXPECT_EQ(*DatabaseNamed("lmdb"), Database::kLmdb);
  EXPECT_EQ(*DatabaseNamed("leveldb"), Database::kLevelDb);
  EXPECT_THAT(DatabaseNamed("hdf5").status().message(), HasSubstr("'hdf5'"));
  TestFolder folder;
  EXPECT_THAT(DatabaseIn(folder.path()).status().message(), HasSubstr("neither data.mdb nor CURRENT"));
  EXPECT_THAT(DatabaseIn(folder / "no").status().message(), HasSubstr("does not exist"));
}

}  // namespace
}  // namespace poseidon::caffe
