// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/lmdb_writer.h"

#include <lmdb.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "frontends/caffe/data/folder_draft.h"

namespace poseidon::caffe {
namespace {

// What a transaction may hold in memory before it goes to the file.
constexpr std::uint64_t kMostUncommitted = std::uint64_t{64} << 20;

// Keys and small values share pages with up to half a page of waste, large ones round up to whole pages: four times
// what is written, and a page for each record and its branch, is always enough. The map is address space, not disk.
constexpr std::uint64_t MapFor(std::uint64_t value_bytes) { return (std::uint64_t{64} << 20) + 4 * value_bytes; }
constexpr std::uint64_t TakenBy(std::size_t key, std::size_t value) { return key + value + 1024; }

class NewLmdb final : public DatabaseWriter {
 public:
  explicit NewLmdb(FolderDraft draft) : draft_(std::move(draft)) {}
  ~NewLmdb() override { Close(); }

  Status Start(std::uint64_t value_bytes) {
    promised_ = std::min(value_bytes, std::numeric_limits<std::uint64_t>::max() >> 8);
    int code = mdb_env_create(&environment_);
    if (code == 0) code = mdb_env_set_mapsize(environment_, MapFor(promised_));
    if (code == 0) code = mdb_env_open(environment_, draft_.folder().c_str(), MDB_NOLOCK | MDB_NOTLS | MDB_NOSYNC, 0644);
    POSEIDON_RETURN_IF_ERROR(Outcome(code));
    return Begin();
  }

  Status Put(std::string_view key, std::string_view value) override {
    const std::uint64_t bytes = TakenBy(key.size(), value.size());
    if (uncommitted_ + bytes > kMostUncommitted || taken_ + bytes > promised_ + (kMostUncommitted >> 3)) {
      POSEIDON_RETURN_IF_ERROR(CommitAndGrow(bytes));
    }
    MDB_val k{key.size(), const_cast<char*>(key.data())};
    MDB_val v{value.size(), const_cast<char*>(value.data())};
    const int code = mdb_put(transaction_, table_, &k, &v, MDB_APPEND);
    if (code == MDB_KEYEXIST) return draft_.Failure("key '" + std::string(key) + "' comes twice or too late, expected ascending keys");
    uncommitted_ += bytes;
    taken_ += bytes;
    return Outcome(code);
  }

  // Flushed once, here: until the rename nobody can see what a crash would leave.
  Status Finish() override {
    POSEIDON_RETURN_IF_ERROR(Outcome(mdb_txn_commit(std::exchange(transaction_, nullptr))));
    POSEIDON_RETURN_IF_ERROR(Outcome(mdb_env_sync(environment_, 1)));
    Close();
    return draft_.Commit();
  }

 private:
  Status Begin() {
    int code = mdb_txn_begin(environment_, nullptr, 0, &transaction_);
    if (code == 0) code = mdb_dbi_open(transaction_, nullptr, 0, &table_);
    uncommitted_ = 0;
    return Outcome(code);
  }

  // The map may grow only while nothing is under way.
  Status CommitAndGrow(std::uint64_t bytes) {
    POSEIDON_RETURN_IF_ERROR(Outcome(mdb_txn_commit(std::exchange(transaction_, nullptr))));
    if (taken_ + bytes > promised_) {
      promised_ = 2 * (taken_ + bytes) + kMostUncommitted;
      POSEIDON_RETURN_IF_ERROR(Outcome(mdb_env_set_mapsize(environment_, MapFor(promised_))));
    }
    return Begin();
  }

  void Close() {
    if (transaction_ != nullptr) mdb_txn_abort(std::exchange(transaction_, nullptr));
    if (environment_ != nullptr) mdb_env_close(std::exchange(environment_, nullptr));
  }

  Status Outcome(int code) const { return code == 0 ? OkStatus() : draft_.Failure(mdb_strerror(code)); }

  FolderDraft draft_;
  MDB_env* environment_ = nullptr;
  MDB_txn* transaction_ = nullptr;
  MDB_dbi table_ = 0;
  std::uint64_t promised_ = 0;     // the map has room for so much
  std::uint64_t taken_ = 0;        // by all records
  std::uint64_t uncommitted_ = 0;  // by those of this transaction
};

}  // namespace

Result<std::unique_ptr<DatabaseWriter>> CreateLmdb(const std::string& path, std::uint64_t value_bytes) {
  POSEIDON_ASSIGN_OR_RETURN(FolderDraft draft, FolderDraft::Create(path));
  auto writer = std::make_unique<NewLmdb>(std::move(draft));
  POSEIDON_RETURN_IF_ERROR(writer->Start(value_bytes));
  return std::unique_ptr<DatabaseWriter>(std::move(writer));
}

}  // namespace poseidon::caffe
