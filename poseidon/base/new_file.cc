// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace poseidon {

Result<std::unique_ptr<File>> NewFile(const std::string& path) {
  // Somebody else may put something there between the two calls, but not without end.
  for (int attempt = 0; attempt < 8; ++attempt) {
    auto file = std::make_unique<File>(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND);
    if (file->is_open()) return file;
    if (errno != EEXIST) break;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) break;
  }
  return OpenFailure(path);
}

Status WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
    if (wrote < 0) {
      if (errno == EINTR) continue;
      return ResourceExhausted(ErrnoText(errno));
    }
    bytes.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return OkStatus();
}

Status ReplaceFile(const std::string& path, std::string_view bytes, const std::string& draft) {
  const std::string failure = "cannot write " + path;
  const Result<std::unique_ptr<File>> file = NewFile(draft);
  if (!file.ok()) return file.status().WithPrefix(failure);
  Status written = WriteAll((*file)->fd(), bytes);
  if (written.ok() && (!(*file)->Close() || std::rename(draft.c_str(), path.c_str()) != 0)) {
    written = ResourceExhausted(ErrnoText(errno));
  }
  if (!written.ok()) std::remove(draft.c_str());
  return written.WithPrefix(failure);
}

Result<std::unique_ptr<File>> TakeRoomBeside(const std::string& path, std::size_t bytes) {
  // The process id keeps two processes from using one name at once.
  const std::string name = path + ".room." + std::to_string(::getpid());
  POSEIDON_ASSIGN_OR_RETURN(std::unique_ptr<File> file, NewFile(name));
  ::unlink(name.c_str());
  const auto failed = [&](const std::string& why) { return ResourceExhausted("cannot write " + path + ": " + why); };
  if (const Status written = WriteAll(file->fd(), std::string(bytes, '\0')); !written.ok()) return failed(written.message());
  if (::fsync(file->fd()) != 0) return failed(ErrnoText(errno));
  return file;
}

}  // namespace poseidon
