// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/lmdb_writer.h"

#include <fcntl.h>
#include <lmdb.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

namespace poseidon::caffe {
namespace {

namespace fs = std::filesystem;

class Writer final : public LmdbWriter {
 public:
  Writer(std::string path, std::string folder)
      : path_(std::move(path)), folder_(std::move(folder)) {}
  ~Writer() override {
    Close();
    std::error_code ignored;
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
  }

  // Keys and small values share pages with up to half a page of waste, large ones round up to whole
  // pages: four times the net size is always enough. The map is address space, not disk.
  Status Start(std::uint64_t value_bytes) {
    const std::size_t map = std::size_t{64} << 20;
    int code = mdb_env_create(&environment_);
    if (code == 0) code = mdb_env_set_mapsize(environment_, map + 4 * value_bytes);
    if (code == 0)
      code = mdb_env_open(environment_, folder_.c_str(), MDB_NOLOCK | MDB_NOTLS | MDB_NOSYNC, 0644);
    if (code == 0) code = mdb_txn_begin(environment_, nullptr, 0, &transaction_);
    if (code == 0) code = mdb_dbi_open(transaction_, nullptr, 0, &table_);
    return Outcome(code);
  }

  Status Put(std::string_view key, std::string_view value) override {
    MDB_val k{key.size(), const_cast<char*>(key.data())};
    MDB_val v{value.size(), const_cast<char*>(value.data())};
    return Outcome(mdb_put(transaction_, table_, &k, &v, MDB_APPEND));
  }

  // Flushed once, here: until the rename nobody can see what a crash would leave.
  Status Finish() override {
    POSEIDON_RETURN_IF_ERROR(Outcome(mdb_txn_commit(std::exchange(transaction_, nullptr))));
    POSEIDON_RETURN_IF_ERROR(Outcome(mdb_env_sync(environment_, 1)));
    Close();
    if (std::rename(folder_.c_str(), path_.c_str()) != 0) return Outcome(errno);
    folder_.clear();
    return FlushParent();
  }

 private:
  void Close() {
    if (transaction_ != nullptr) mdb_txn_abort(std::exchange(transaction_, nullptr));
    if (environment_ != nullptr) mdb_env_close(std::exchange(environment_, nullptr));
  }

  Status Outcome(int code) const {
    if (code == 0) return OkStatus();
    return ResourceExhausted("database " + path_ + " cannot be written: " + mdb_strerror(code));
  }

  // The new name survives a power failure only once its folder is on the device.
  Status FlushParent() const {
    const fs::path parent = fs::absolute(path_).parent_path();
    const int folder = ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return Outcome(errno);
    const int code = ::fsync(folder) == 0 ? 0 : errno;
    ::close(folder);
    return Outcome(code);
  }

  const std::string path_;
  std::string folder_;  // empty once it has become path_
  MDB_env* environment_ = nullptr;
  MDB_txn* transaction_ = nullptr;
  MDB_dbi table_ = 0;
};

}  // namespace

Result<std::unique_ptr<LmdbWriter>> LmdbWriter::Create(const std::string& path,
                                                       std::uint64_t value_bytes) {
  std::string target = path;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  std::error_code error;
  if (target.empty()) return InvalidArgument("a database to be written needs a path");
  if (fs::exists(target, error)) {
    return FailedPrecondition("database " + target + " exists already, expected a new path");
  }
  const std::string folder = target + ".tmp." + std::to_string(::getpid());
  fs::remove_all(folder, error);
  if (!fs::create_directory(folder, error)) {
    return PermissionDenied("database " + target +
                            " cannot be written: " + (error ? error.message() : ErrnoText(EEXIST)));
  }
  auto writer = std::make_unique<Writer>(target, folder);
  POSEIDON_RETURN_IF_ERROR(writer->Start(value_bytes));
  return std::unique_ptr<LmdbWriter>(std::move(writer));
}

}  // namespace poseidon::caffe
