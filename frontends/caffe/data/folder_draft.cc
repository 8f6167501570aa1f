// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/folder_draft.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "poseidon/base/file.h"

namespace poseidon::caffe {
namespace {

namespace fs = std::filesystem;

// 0, or an errno.
int FlushFolder(const fs::path& path) {
  const File folder(path.string(), O_RDONLY | O_DIRECTORY);
  return folder.is_open() && ::fsync(folder.fd()) == 0 ? 0 : errno;
}

}  // namespace

Result<FolderDraft> FolderDraft::Create(const std::string& path) {
  std::string target = path;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  std::error_code error;
  if (target.empty()) return InvalidArgument("a database to be written needs a path");
  if (fs::exists(target, error)) {
    return FailedPrecondition("database " + target + " exists already, expected a new path");
  }
  std::string folder = target + ".tmp.XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) {
    return PermissionDenied("database " + target + " cannot be written: " + ErrnoText(errno));
  }
  // mkdtemp gives it to its owner alone.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::chmod(folder.c_str(), 0777 & ~mask);
  return FolderDraft(target, folder);
}

FolderDraft::~FolderDraft() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

Status FolderDraft::Commit() {
  int code = FlushFolder(folder_);
  if (code == 0) code = std::rename(folder_.c_str(), path_.c_str()) == 0 ? 0 : errno;
  if (code != 0) return Failure(ErrnoText(code));
  folder_.clear();
  // The new name survives a power failure only once its folder is on the device.
  code = FlushFolder(fs::absolute(path_).parent_path());
  return code == 0 ? OkStatus() : Failure(ErrnoText(code));
}

Status FolderDraft::Failure(const std::string& why) const {
  return ResourceExhausted("database " + path_ + " cannot be written: " + why);
}

}  // namespace poseidon::caffe
