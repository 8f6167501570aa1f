// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_FILE_H_
#define POSEIDON_BASE_FILE_H_

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "poseidon/base/result.h"

// Whole files. Failures name the path. Thread: any.
namespace poseidon {

// A descriptor that closes itself.
class File {
 public:
  File(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { Close(); }
  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  bool Close() {
    const int fd = fd_;
    fd_ = -1;
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

// Returns errno after a failed open as a status: kNotFound, kPermissionDenied or kInvalidArgument.
Status OpenFailure(const std::string& path);

// A file to read from its beginning. Of a pipe the first bytes are there: it waits for them, at most for `within`, where opening one
// would wait without end for somebody who writes into it. kInvalidArgument then.
Result<std::unique_ptr<File>> OpenToRead(const std::string& path, std::chrono::seconds within = std::chrono::seconds(10));

// The future content of a file, whole and flushed to the device under "PATH.tmp". Commit renames it to PATH and
// flushes the folder; without it the destructor removes it. After a failure or a crash at any moment PATH is as it
// was before, or new.
class FileDraft {
 public:
  static Result<FileDraft> Write(const std::string& bytes, const std::string& path);
  FileDraft(FileDraft&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  FileDraft& operator=(FileDraft&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~FileDraft();
  Status Commit();

 private:
  explicit FileDraft(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty: committed
};

// OK where files beside `path` can be written: writes one and removes it. A full disk lets files be made and refuses
// their bytes, so it holds some.
Status TryToWriteBeside(const std::string& path);

// A draft and its commit at once.
Status WriteFileAtomically(const std::string& bytes, const std::string& path);

// Flushes the folder of `path`, so that what was renamed, linked or removed in it stays so.
Status FlushFolderOf(const std::string& path);

}  // namespace poseidon

#endif  // POSEIDON_BASE_FILE_H_
