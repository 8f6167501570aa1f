// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/leveldb_source.h"

#if defined(POSEIDON_HAVE_LEVELDB)

#include <leveldb/db.h>

#include <utility>

namespace poseidon::caffe {
namespace {

class LevelDbSource final : public RecordSource {
 public:
  LevelDbSource(std::string path, std::unique_ptr<leveldb::DB> database)
      : path_(std::move(path)), database_(std::move(database)) {}

  Status Start() {
    leveldb::ReadOptions options;
    options.verify_checksums = true;
    cursor_.reset(database_->NewIterator(options));
    for (cursor_->SeekToFirst(); cursor_->Valid(); cursor_->Next()) ++size_;
    position_ = size_;
    if (!cursor_->status().ok()) return Broken(size_);
    if (size_ == 0) {
      return DataLoss("database " + path_ + " is empty, expected at least one record");
    }
    return OkStatus();
  }

  std::uint64_t size() const override { return size_; }
  const std::string& path() const override { return path_; }

  Result<Record> At(std::uint64_t position) override {
    POSEIDON_CHECK(position < size_, "a record is asked for that the database does not have");
    if (position < position_ || !cursor_->Valid()) {
      cursor_->SeekToFirst();
      position_ = 0;
    }
    for (; position_ < position && cursor_->Valid(); ++position_) cursor_->Next();
    if (!cursor_->Valid()) return Broken(position_);
    return Record{.key = {cursor_->key().data(), cursor_->key().size()},
                  .value = {cursor_->value().data(), cursor_->value().size()}};
  }

 private:
  Status Broken(std::uint64_t position) const {
    return DataLoss("database " + path_ + ": record " + std::to_string(position) +
                    " cannot be read: " + cursor_->status().ToString());
  }

  const std::string path_;
  std::unique_ptr<leveldb::DB> database_;
  std::unique_ptr<leveldb::Iterator> cursor_;  // of database_: destroyed before it
  std::uint64_t size_ = 0;
  std::uint64_t position_ = 0;
};

}  // namespace

Result<std::unique_ptr<RecordSource>> OpenLevelDb(const std::string& path) {
  leveldb::Options options;
  options.create_if_missing = false;
  options.max_open_files = 100;
  leveldb::DB* opened = nullptr;
  const leveldb::Status status = leveldb::DB::Open(options, path, &opened);
  if (!status.ok()) {
    return Unavailable("database " + path + " cannot be opened (LevelDB lets one process in at a " +
                       "time, several workers need an LMDB): " + status.ToString());
  }
  auto source = std::make_unique<LevelDbSource>(path, std::unique_ptr<leveldb::DB>(opened));
  POSEIDON_RETURN_IF_ERROR(source->Start());
  return std::unique_ptr<RecordSource>(std::move(source));
}

}  // namespace poseidon::caffe

#else

namespace poseidon::caffe {

Result<std::unique_ptr<RecordSource>> OpenLevelDb(const std::string& path) {
  return Unimplemented("database " + path +
                       " is a LevelDB, which this build cannot read; build it " +
                       "with libleveldb-dev installed, or convert it to an LMDB");
}

}  // namespace poseidon::caffe

#endif
