// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace poseidon {
namespace {

Status WriteAll(int fd, const std::string& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t wrote = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (wrote < 0) {
      if (errno == EINTR) continue;
      return ResourceExhausted(ErrnoText(errno));
    }
    done += static_cast<std::size_t>(wrote);
  }
  return OkStatus();
}

std::string FolderOf(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string DraftOf(const std::string& path) { return path + ".tmp"; }

}  // namespace

Status OpenFailure(const std::string& path) {
  const std::string text = "cannot open " + path + ": " + ErrnoText(errno);
  if (errno == ENOENT) return NotFound(text);
  if (errno == EACCES) return PermissionDenied(text);
  return InvalidArgument(text);
}

Status FlushFolderOf(const std::string& path) {
  File folder(FolderOf(path), O_RDONLY | O_DIRECTORY);
  if (folder.is_open() && ::fsync(folder.fd()) == 0) return OkStatus();
  return ResourceExhausted("cannot flush the folder of " + path + ": " + ErrnoText(errno));
}

Result<FileDraft> FileDraft::Write(const std::string& bytes, const std::string& path) {
  File file(DraftOf(path), O_WRONLY | O_CREAT | O_TRUNC);
  if (!file.is_open()) return OpenFailure(DraftOf(path));
  FileDraft draft(path);  // removes the file where the rest fails
  const auto failed = [&](const std::string& why) { return ResourceExhausted("cannot write " + path + ": " + why); };
  if (const Status written = WriteAll(file.fd(), bytes); !written.ok()) return failed(written.message());
  // Flushed before Commit renames it, or a crash could leave the new name with half of its bytes. Some file systems
  // report a write that failed only when the file is closed (close(2)).
  if (::fsync(file.fd()) != 0 || !file.Close()) return failed(ErrnoText(errno));
  return draft;
}

FileDraft::~FileDraft() {
  if (!path_.empty()) ::unlink(DraftOf(path_).c_str());
}

Status FileDraft::Commit() {
  const std::string path = std::exchange(path_, {});
  if (::rename(DraftOf(path).c_str(), path.c_str()) != 0) {
    const std::string why = ErrnoText(errno);
    ::unlink(DraftOf(path).c_str());
    return ResourceExhausted("cannot write " + path + ": " + why);
  }
  // The rename is in the folder, and a crash could take it back until the folder is flushed.
  return FlushFolderOf(path);
}

Status TryToWriteBeside(const std::string& path) {
  constexpr std::size_t kBytes = 4096;
  // Never committed, so that the draft removes its file. The process id keeps two processes from probing with one file.
  return FileDraft::Write(std::string(kBytes, '\0'), path + ".probe." + std::to_string(::getpid())).status();
}

Status WriteFileAtomically(const std::string& bytes, const std::string& path) {
  POSEIDON_ASSIGN_OR_RETURN(FileDraft draft, FileDraft::Write(bytes, path));
  return draft.Commit();
}

}  // namespace poseidon
