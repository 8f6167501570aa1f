// SPDX-License-Identifier: Apache-2.0
#include "poseidon/place/note.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <optional>
#include <thread>

#include "poseidon/base/new_file.h"

namespace poseidon::place {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{20};

std::optional<Note> ReadNote(const std::string& path) {
  std::ifstream file(path);
  Note note;
  if (file >> note.host >> note.port >> note.writer) return note;
  return std::nullopt;
}

bool HasEnded(pid_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

}  // namespace

Status LeaveNote(const std::string& path, const Note& note) {
  const std::string written = path + "." + std::to_string(note.writer);
  const std::string text = note.host + " " + std::to_string(note.port) + " " + std::to_string(note.writer) + "\n";
  const Status left = ReplaceFile(path, text, written);
  if (left.ok()) return OkStatus();
  return Unavailable("the other processes cannot be told where to join: " + left.message());
}

Result<Note> AwaitNote(const std::string& path, const NoteWait& wait) {
  const auto deadline = std::chrono::steady_clock::now() + wait.timeout;
  while (std::chrono::steady_clock::now() < deadline) {
    const std::optional<Note> note = ReadNote(path);
    if (note && !(wait.same_host && HasEnded(note->writer))) return *note;
    if (wait.interrupted && wait.interrupted()) {
      return Status(StatusCode::kAborted, "waiting for rank 0 was interrupted");
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
  std::array<char, 32> seconds{};
  std::snprintf(seconds.data(), seconds.size(), "%g", std::chrono::duration<double>(wait.timeout).count());
  return Unavailable("rank 0 has not said in " + path + " within " + seconds.data() +
                     " s where it listens: it has failed, or does not share that folder");
}

Result<std::string> PrivateFolder(const std::string& parent) {
  const std::string path = parent + "/poseidon-" + std::to_string(geteuid());
  struct stat status {};
  if ((mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) || lstat(path.c_str(), &status) != 0) {
    return PermissionDenied("folder " + path + " cannot be made: " + ErrnoText(errno));
  }
  if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
    return PermissionDenied(path + " is not a folder of this user alone, expected mode 0700");
  }
  return path;
}

}  // namespace poseidon::place
