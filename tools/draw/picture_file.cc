// SPDX-License-Identifier: Apache-2.0
#include "tools/draw/picture_file.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "poseidon/base/file.h"
#include "poseidon/base/result.h"

namespace poseidon::draw {
namespace {

constexpr char kProgram[] = "rsvg-convert";
constexpr std::string_view kPngBegins = "\x89PNG\r\n\x1a\n";

bool IsInPath(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access(((folder.empty() ? "." : folder) + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

Status NoProgram(const std::string& path) {
  return NotFound(path + " is a PNG, which the program rsvg-convert draws: it is not in PATH; install librsvg2-bin (Debian, Ubuntu), librsvg2-tools "
                         "(Fedora) or librsvg (Homebrew), or name an *.svg");
}

// A file in memory, closed with the object.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : fd_(memfd_create(name, MFD_CLOEXEC)) {}
  ~MemoryFile() {
    if (fd_ >= 0) close(fd_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int fd() const { return fd_; }

  Status Write(const std::string& bytes) const {
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t wrote = pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return ResourceExhausted("no memory for a picture of " + std::to_string(bytes.size()) + " bytes");
      done += static_cast<std::size_t>(wrote);
    }
    return OkStatus();
  }
  std::string Bytes() const {
    std::string bytes;
    std::array<char, 65536> part{};
    for (ssize_t got = 0; (got = pread(fd_, part.data(), part.size(), static_cast<off_t>(bytes.size()))) > 0;) {
      bytes.append(part.data(), static_cast<std::size_t>(got));
    }
    return bytes;
  }

 private:
  const int fd_;
};

// Its standard error is ours, so that what it says is seen.
Result<std::string> PngOf(const std::string& svg, const std::string& path) {
  const MemoryFile document("svg"), picture("png");
  if (document.fd() < 0 || picture.fd() < 0) return ResourceExhausted("no memory for a picture: " + ErrnoText(errno));
  POSEIDON_RETURN_IF_ERROR(document.Write(svg));
  posix_spawn_file_actions_t streams;
  posix_spawn_file_actions_init(&streams);
  posix_spawn_file_actions_adddup2(&streams, document.fd(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&streams, picture.fd(), STDOUT_FILENO);
  std::array<std::string, 3> words = {kProgram, "--format=png", "--background-color=white"};
  std::array<char*, 4> arguments = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawnp(&child, kProgram, &streams, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&streams);
  if (failed != 0) return NoProgram(path);
  int ended = 0;
  while (waitpid(child, &ended, 0) < 0 && errno == EINTR) {
  }
  std::string bytes = picture.Bytes();
  if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0 || !bytes.starts_with(kPngBegins)) {
    return Unavailable("rsvg-convert made no PNG for " + path + ": it " +
                       (WIFEXITED(ended) ? "exited with code " + std::to_string(WEXITSTATUS(ended)) : "was killed by signal " + std::to_string(WTERMSIG(ended))) +
                       "; an *.svg needs no other program");
  }
  return bytes;
}

}  // namespace

Status CheckPictureFile(const std::string& path) {
  if (path.ends_with(".svg")) return OkStatus();
  if (!path.ends_with(".png")) return InvalidArgument(path + " is no *.svg and no *.png, the formats that pictures are drawn in");
  return IsInPath(kProgram) ? OkStatus() : NoProgram(path);
}

Status WritePicture(const std::string& svg, const std::string& path) {
  if (!path.ends_with(".png")) return WriteFileAtomically(svg, path);
  POSEIDON_ASSIGN_OR_RETURN(const std::string png, PngOf(svg, path));
  return WriteFileAtomically(png, path);
}

}  // namespace poseidon::draw
