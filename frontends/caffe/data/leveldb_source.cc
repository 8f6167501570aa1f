// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/leveldb_source.h"

#if defined(POSEIDON_HAVE_LEVELDB)

#include <leveldb/db.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

namespace poseidon::caffe {
namespace {

namespace fs = std::filesystem;

// LevelDB lets one process at a time into a folder, because it writes and deletes files there even when it is only to
// be read. So every reader opens a folder of its own with links to the files of the database: what LevelDB writes is
// written beside the links, what it deletes is a link. Gone with the object.
class PrivateView {
 public:
  PrivateView() = default;
  ~PrivateView() {
    std::error_code ignored;
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
  }
  PrivateView(const PrivateView&) = delete;
  PrivateView& operator=(const PrivateView&) = delete;

  Status Open(const std::string& path) {
    std::error_code error;
    std::string pattern = (fs::temp_directory_path(error) / "poseidon-leveldb-XXXXXX").string();
    if (error || ::mkdtemp(pattern.data()) == nullptr) {
      return Unavailable("database " + path + " cannot be opened: no folder can be made in " + pattern);
    }
    folder_ = pattern;
    for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (name == "LOCK" || name == "LOG" || name == "LOG.old") continue;
      fs::create_symlink(fs::absolute(entry->path()), fs::path(folder_) / name, error);
      if (error) break;
    }
    return error ? Unavailable("database " + path + " cannot be opened: " + error.message()) : OkStatus();
  }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

class LevelDbSource final : public RecordSource {
 public:
  LevelDbSource(std::string path, std::unique_ptr<PrivateView> view, std::unique_ptr<leveldb::DB> database)
      : path_(std::move(path)), view_(std::move(view)), database_(std::move(database)) {}

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
  const std::unique_ptr<PrivateView> view_;  // destroyed after the database
  std::unique_ptr<leveldb::DB> database_;
  std::unique_ptr<leveldb::Iterator> cursor_;  // of database_: destroyed before it
  std::uint64_t size_ = 0;
  std::uint64_t position_ = 0;
};

}  // namespace

Result<std::unique_ptr<RecordSource>> OpenLevelDb(const std::string& path) {
  auto view = std::make_unique<PrivateView>();
  POSEIDON_RETURN_IF_ERROR(view->Open(path));
  leveldb::Options options;
  options.create_if_missing = false;
  options.max_open_files = 100;
  leveldb::DB* opened = nullptr;
  const leveldb::Status status = leveldb::DB::Open(options, view->folder(), &opened);
  if (!status.ok()) {
    std::string why = status.ToString();
    for (std::size_t at; (at = why.find(view->folder())) != std::string::npos;) {
      why.replace(at, view->folder().size(), path);
    }
    std::replace(why.begin(), why.end(), '\n', ' ');  // from a damaged file's content
    return Unavailable("database " + path + " cannot be opened: " + why);
  }
  auto source = std::make_unique<LevelDbSource>(path, std::move(view), std::unique_ptr<leveldb::DB>(opened));
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
