// SPDX-License-Identifier: Apache-2.0
#include "poseidon/place/left_token.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace poseidon::place {
namespace {

namespace fs = std::filesystem;

// Until it is closed, no other process is between writing a token and holding it, or removes any. Where the file system has no
// locks, nobody gets one, and nothing is removed.
std::unique_ptr<File> LockFolder(const std::string& folder) {
  auto locked = std::make_unique<File>(folder, O_RDONLY | O_DIRECTORY);
  if (locked->is_open() && flock(locked->fd(), LOCK_EX) != 0) locked->Close();
  return locked;
}

}  // namespace

Result<std::unique_ptr<File>> WriteHeldToken(const transport::tcp::Token& token, const std::string& path) {
  const auto locked = LockFolder(fs::path(path).parent_path().string());
  POSEIDON_RETURN_IF_ERROR(token.WriteFile(path));
  auto file = std::make_unique<File>(path, O_RDONLY | O_NOFOLLOW);
  if (!file->is_open()) return OpenFailure(path);
  flock(file->fd(), LOCK_EX);
  return file;
}

void RemoveLeftTokens(const std::string& folder) {
  const auto locked = LockFolder(folder);
  if (!locked->is_open()) return;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    const fs::path& path = entry->path();
    if (path.extension() != ".token") continue;
    const File file(path.string(), O_RDONLY | O_NOFOLLOW);
    if (!file.is_open() || flock(file.fd(), LOCK_EX | LOCK_NB) != 0) continue;
    unlink(fs::path(path).replace_extension(".address").c_str());
    unlink(path.c_str());
  }
}

}  // namespace poseidon::place
