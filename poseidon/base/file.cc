// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "poseidon/base/new_file.h"

namespace poseidon {
namespace {

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

Result<std::unique_ptr<File>> OpenToRead(const std::string& path, std::chrono::seconds within) {
  auto file = std::make_unique<File>(path, O_RDONLY | O_NONBLOCK);
  if (!file->is_open()) return OpenFailure(path);
  struct stat known {};
  pollfd pipe{.fd = file->fd(), .events = POLLIN, .revents = 0};
  if (::fstat(file->fd(), &known) == 0 && S_ISFIFO(known.st_mode) &&
      ::poll(&pipe, 1, static_cast<int>(std::chrono::milliseconds(within).count())) == 0) {
    return InvalidArgument("cannot read " + path + ": it is a pipe, and nobody has written into it within " +
                           std::to_string(within.count()) + " s");
  }
  ::fcntl(file->fd(), F_SETFL, ::fcntl(file->fd(), F_GETFL) & ~O_NONBLOCK);
  return file;
}

Status FlushFolderOf(const std::string& path) {
  File folder(FolderOf(path), O_RDONLY | O_DIRECTORY);
  if (folder.is_open() && ::fsync(folder.fd()) == 0) return OkStatus();
  return ResourceExhausted("cannot flush the folder of " + path + ": " + ErrnoText(errno));
}

Result<FileDraft> FileDraft::Write(const std::string& bytes, const std::string& path) {
  POSEIDON_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, NewFile(DraftOf(path)));
  FileDraft draft(path);  // removes the file where the rest fails
  const auto failed = [&](const std::string& why) { return ResourceExhausted("cannot write " + path + ": " + why); };
  if (const Status written = WriteAll(file->fd(), bytes); !written.ok()) return failed(written.message());
  // Flushed before Commit renames it, or a crash could leave the new name with half of its bytes. Some file systems
  // report a write that failed only when the file is closed (close(2)).
  if (::fsync(file->fd()) != 0 || !file->Close()) return failed(ErrnoText(errno));
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
  return TakeRoomBeside(path, kBytes).status();
}

Status WriteFileAtomically(const std::string& bytes, const std::string& path) {
  POSEIDON_ASSIGN_OR_RETURN(FileDraft draft, FileDraft::Write(bytes, path));
  return draft.Commit();
}

}  // namespace poseidon
