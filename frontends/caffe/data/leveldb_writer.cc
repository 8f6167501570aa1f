// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/leveldb_writer.h"

#if defined(POSEIDON_HAVE_LEVELDB)

#include <leveldb/db.h>
#include <leveldb/write_batch.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "frontends/caffe/data/folder_draft.h"

namespace poseidon::caffe {
namespace {

// Caffe's block; its memory for what is not yet in a table, 256 MB, is more than files of 64 MB gain from.
constexpr std::size_t kBlockBytes = std::size_t{1} << 16, kTableBytes = std::size_t{64} << 20;

class NewLevelDb final : public DatabaseWriter {
 public:
  explicit NewLevelDb(FolderDraft draft) : draft_(std::move(draft)) {}

  Status Start() {
    leveldb::Options options;
    options.create_if_missing = true;
    options.error_if_exists = true;
    options.block_size = kBlockBytes;
    options.write_buffer_size = kTableBytes;
    options.max_file_size = kTableBytes;
    options.max_open_files = 100;
    leveldb::DB* opened = nullptr;
    POSEIDON_RETURN_IF_ERROR(Outcome(leveldb::DB::Open(options, draft_.folder(), &opened)));
    database_.reset(opened);
    return OkStatus();
  }

  Status Put(std::string_view key, std::string_view value) override {
    if (any_ && key <= last_) return draft_.Failure("key '" + std::string(key) + "' comes twice or too late, expected ascending keys");
    any_ = true;
    last_ = key;
    return Outcome(database_->Put({}, {key.data(), key.size()}, {value.data(), value.size()}));
  }

  // What is still in the log goes into a table, which every reader would else have to do for itself: a range that holds
  // no key makes nothing else.
  Status Finish() override {
    leveldb::WriteOptions flushed;
    flushed.sync = true;
    leveldb::WriteBatch nothing;
    POSEIDON_RETURN_IF_ERROR(Outcome(database_->Write(flushed, &nothing)));
    const leveldb::Slice before_all;
    database_->CompactRange(&before_all, &before_all);
    database_.reset();
    for (const char* name : {"LOCK", "LOG", "LOG.old"}) {  // of this process's writing alone
      std::error_code ignored;
      std::filesystem::remove(std::filesystem::path(draft_.folder()) / name, ignored);
    }
    return draft_.Commit();
  }

 private:
  Status Outcome(const leveldb::Status& status) const {
    if (status.ok()) return OkStatus();
    std::string why = status.ToString();
    for (std::size_t at; (at = why.find(draft_.folder())) != std::string::npos;) why.replace(at, draft_.folder().size(), "it");
    return draft_.Failure(why);
  }

  FolderDraft draft_;  // destroyed after the database
  std::unique_ptr<leveldb::DB> database_;
  bool any_ = false;
  std::string last_;
};

}  // namespace

Result<std::unique_ptr<DatabaseWriter>> CreateLevelDb(const std::string& path) {
  POSEIDON_ASSIGN_OR_RETURN(FolderDraft draft, FolderDraft::Create(path));
  auto writer = std::make_unique<NewLevelDb>(std::move(draft));
  POSEIDON_RETURN_IF_ERROR(writer->Start());
  return std::unique_ptr<DatabaseWriter>(std::move(writer));
}

}  // namespace poseidon::caffe

#else

namespace poseidon::caffe {

Result<std::unique_ptr<DatabaseWriter>> CreateLevelDb(const std::string& path) {
  return Unimplemented("database " + path + " cannot be a LevelDB: this build has none; build it with libleveldb-dev installed, or write an LMDB");
}

}  // namespace poseidon::caffe

#endif
