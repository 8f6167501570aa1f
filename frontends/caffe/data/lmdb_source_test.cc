// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "frontends/caffe/data/record_source.h"
#include "frontends/caffe/data/test_database.h"

#if defined(POSEIDON_HAVE_LEVELDB)
#include <leveldb/db.h>

#include <filesystem>
#include <map>
#endif

namespace poseidon::caffe {
namespace {

using ::testing::HasSubstr;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void WriteRecords(const std::string& path, std::uint64_t count, std::size_t value_bytes) {
  auto writer = CreateLmdb(path, count * value_bytes);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string value(value_bytes + i % 7, static_cast<char>('a' + i % 26));
    ASSERT_TRUE((*writer)->Put(TestKey(i), value).ok());
  }
  ASSERT_TRUE((*writer)->Finish().ok());
}

// Values inside leaf pages, on one overflow page and on several; one leaf up to a tree of depth 3.
TEST(LmdbSource, ReadsWhatLmdbWrote) {
  struct Size {
    std::size_t value_bytes;
    std::uint64_t count;
  };
  for (const auto [value_bytes, count] :
       {Size{1, 1}, Size{1, 5000}, Size{800, 300}, Size{3000, 2000}, Size{20000, 150}}) {
    TestFolder folder;
    WriteRecords(folder / "db", count, value_bytes);
    auto source = OpenRecords(Database::kLmdb, folder / "db");
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    ASSERT_EQ((*source)->size(), count);
    for (std::uint64_t i = 0; i < count; ++i) {
      auto record = (*source)->At(i);
      ASSERT_TRUE(record.ok()) << record.status().ToString();
      ASSERT_EQ(record->key, TestKey(i));
      ASSERT_EQ(record->value, std::string(value_bytes + i % 7, static_cast<char>('a' + i % 26)));
    }
    for (const std::uint64_t i : {count - 1, count / 2, std::uint64_t{0}, count / 3}) {
      auto record = (*source)->At(i);
      ASSERT_TRUE(record.ok());
      EXPECT_EQ(record->key, TestKey(i));
    }
  }
}

TEST(LmdbSource, LeavesNoLockFileAndReadsAReadOnlyFolder) {
  TestFolder folder;
  WriteRecords(folder / "db", 3, 10);
  std::filesystem::permissions(
      folder / "db", std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  EXPECT_TRUE(OpenRecords(Database::kLmdb, folder / "db").ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "db/lock.mdb"));
  std::filesystem::permissions(folder / "db", std::filesystem::perms::owner_all);
}

TEST(LmdbSource, SaysWhatIsWrongWithTheFolder) {
  TestFolder folder;
  const auto error = [&](Database database, const std::string& path) {
    return OpenRecords(database, path).status().message();
  };
  EXPECT_THAT(error(Database::kLmdb, folder / "no"), HasSubstr("does not exist"));
  EXPECT_THAT(error(Database::kLmdb, folder.path()), HasSubstr("holds no data.mdb"));
  EXPECT_THAT(error(Database::kLmdb, ""), HasSubstr("source is empty"));
  WriteRecords(folder / "db", 3, 10);
  EXPECT_THAT(error(Database::kLevelDb, folder / "db"), HasSubstr("is an LMDB"));
  auto writer = CreateLmdb(folder / "empty", 0);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Finish().ok());
  EXPECT_THAT(error(Database::kLmdb, folder / "empty"), HasSubstr("is empty"));
  std::filesystem::create_directory(folder / "zero");
  WriteAll(folder / "zero/data.mdb", "");
  EXPECT_THAT(error(Database::kLmdb, folder / "zero"), HasSubstr("corrupt"));
  std::filesystem::create_directory(folder / "text");
  WriteAll(folder / "text/data.mdb", std::string(100'000, 'x'));
  EXPECT_THAT(error(Database::kLmdb, folder / "text"), HasSubstr("corrupt"));
  std::string bytes = ReadAll(folder / "db/data.mdb");
  bytes.resize(bytes.size() - 4096);
  WriteAll(folder / "db/data.mdb", bytes);
  EXPECT_THAT(error(Database::kLmdb, folder / "db"), HasSubstr("truncated"));
}

// Whatever bytes are turned, reading ends, in records or in a sentence that names one. Run under
// ASan this also shows that nothing is read outside a page.
TEST(LmdbSource, SurvivesCorruption) {
  for (const std::size_t value_bytes : {50, 9000}) {
    TestFolder folder;
    WriteRecords(folder / "db", value_bytes > 4096 ? 60 : 500, value_bytes);
    const std::string whole = ReadAll(folder / "db/data.mdb");
    std::mt19937 random(1);
    int refused = 0;
    for (int i = 0; i < 300; ++i) {
      std::string bytes = whole;
      const std::size_t length = i % 3 == 0 ? 1 : i % 3 == 1 ? 64 : 4096;
      const std::size_t page = random() % (bytes.size() / 4096) * 4096;
      const std::size_t at = length == 4096 ? page : page + random() % 64;
      for (std::size_t k = at; k < at + length; ++k) bytes[k] = static_cast<char>(random());
      WriteAll(folder / "db/data.mdb", bytes);
      auto source = OpenRecords(Database::kLmdb, folder / "db");
      if (!source.ok()) {
        ++refused;
        continue;
      }
      const std::uint64_t most = std::min<std::uint64_t>((*source)->size(), 1000);
      for (std::uint64_t k = 0; k < most; ++k) {
        auto record = (*source)->At(k);
        if (record.ok()) continue;
        ++refused;
        EXPECT_THAT(record.status().message(), HasSubstr("record "));
        break;
      }
    }
    EXPECT_GT(refused, 30);
  }
}

TEST(LmdbSource, NoticesAWriter) {
  TestFolder folder;
  WriteRecords(folder / "db", 100, 500);
  auto source = OpenRecords(Database::kLmdb, folder / "db");
  ASSERT_TRUE(source.ok());
  ASSERT_TRUE((*source)->At(0).ok());
  std::string bytes = ReadAll(folder / "db/data.mdb");
  // The transaction number of the first meta page, as a later commit would leave it.
  bytes[16 + 24 + 48 + 56] = 100;
  WriteAll(folder / "db/data.mdb", bytes);
  EXPECT_THAT((*source)->At(99).status().message(), HasSubstr("was written to"));
}

TEST(LmdbWriter, AppearsCompleteOrNotAtAll) {
  TestFolder folder;
  {
    auto writer = CreateLmdb(folder / "db", 100);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Put("a", "1").ok());
    EXPECT_FALSE(std::filesystem::exists(folder / "db"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  WriteRecords(folder / "db", 3, 10);
  EXPECT_THAT(CreateLmdb(folder / "db", 10).status().message(),
              HasSubstr("exists already"));
  EXPECT_THAT(CreateLmdb(folder / "no/db", 10).status().message(),
              HasSubstr("cannot be written"));
}

#if defined(POSEIDON_HAVE_LEVELDB)
TEST(LevelDbSource, ReadsInKeyOrder) {
  TestFolder folder;
  {
    leveldb::Options options;
    options.create_if_missing = true;
    leveldb::DB* opened = nullptr;
    ASSERT_TRUE(leveldb::DB::Open(options, folder / "db", &opened).ok());
    const std::unique_ptr<leveldb::DB> database(opened);
    for (std::uint64_t i : {2, 0, 1}) {
      ASSERT_TRUE(database->Put({}, TestKey(i), std::to_string(i)).ok());
    }
  }
  auto source = OpenRecords(Database::kLevelDb, folder / "db");
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  ASSERT_EQ((*source)->size(), 3u);
  for (const std::uint64_t i : {0, 1, 2, 1, 0}) {
    auto record = (*source)->At(i);
    ASSERT_TRUE(record.ok());
    EXPECT_EQ(record->value, std::to_string(i));
  }
  // Every worker opens it for itself, at the same time.
  auto another = OpenRecords(Database::kLevelDb, folder / "db");
  ASSERT_TRUE(another.ok()) << another.status().ToString();
  EXPECT_EQ((*another)->At(2)->value, "2");
  EXPECT_EQ((*source)->At(2)->value, "2");
}

TEST(LevelDbSource, LeavesTheDatabaseAsItIs) {
  TestFolder folder;
  leveldb::Options options;
  options.create_if_missing = true;
  leveldb::DB* opened = nullptr;
  ASSERT_TRUE(leveldb::DB::Open(options, folder / "db", &opened).ok());
  ASSERT_TRUE(opened->Put({}, "key", "value").ok());
  delete opened;
  const auto files = [&] {
    std::map<std::string, std::uintmax_t> sizes;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "db")) {
      sizes[entry.path().filename().string()] = entry.file_size();
    }
    return sizes;
  };
  const auto before = files();
  ASSERT_TRUE(OpenRecords(Database::kLevelDb, folder / "db").ok());
  EXPECT_EQ(files(), before);
  EXPECT_THAT(OpenRecords(Database::kLevelDb, folder / "none").status().message(), HasSubstr(folder / "none"));
}
#endif

}  // namespace
}  // namespace poseidon::caffe
