// SPDX-License-Identifier: Apache-2.0
#include "tools/run/run_log.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tools/console/line_writer.h"

namespace poseidon::tools {
namespace {

// Those that are read well on dark and on bright ground.
constexpr const char* kColours[] = {"\x1b[36m", "\x1b[32m", "\x1b[33m", "\x1b[35m", "\x1b[34m", "\x1b[31m"};

// So many lines of others below a rank's last hide that from nobody.
constexpr std::uint64_t kSeen = 10;

bool ShowsColours(int fd) { return isatty(fd) == 1 && std::getenv("NO_COLOR") == nullptr; }

}  // namespace

std::size_t RunLog::PrefixWidth(std::size_t ranks) { return std::to_string(ranks - 1).size() + 3; }

RunLog::RunLog(std::size_t ranks)
    : ranks_(ranks), colours_{ShowsColours(STDOUT_FILENO), ShowsColours(STDERR_FILENO)} {}

Status RunLog::WriteInto(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Unavailable("folder " + folder + " cannot be made: " + error.message());
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    ranks_[i].path = folder + "/rank-" + std::to_string(i) + ".log";
    Result<std::unique_ptr<File>> file = NewFile(ranks_[i].path);
    if (!file.ok()) return file.status().WithPrefix("no log of rank " + std::to_string(i));
    ranks_[i].file = *std::move(file);
  }
  into_files_ = true;
  return OkStatus();
}

bool RunLog::TakesLines() const { return StandardOutput().HasRoom() && StandardError().HasRoom(); }

std::string RunLog::Prefix(std::size_t rank, bool error) const {
  const std::string number = "[" + std::to_string(rank) + "] ";
  return colours_[error ? 1 : 0] ? kColours[rank % std::size(kColours)] + number + "\x1b[0m" : number;
}

void RunLog::Line(std::size_t rank, bool error, const std::string& line) {
  Rank& from = ranks_[rank];
  from.last.push_back(line);
  if (from.last.size() > kLastLines) from.last.pop_front();
  if (!into_files_) {
    from.printed_at = ++printed_;
    (error ? StandardError() : StandardOutput()).Write(Prefix(rank, error) + line + "\n");
  } else if (!WriteAll(from.file->fd(), line + "\n").ok() && !from.lost) {
    from.lost = true;
    StandardError().Write("poseidon: file " + from.path + " cannot be written: what follows is lost\n");
  }
}

void RunLog::ShowLast(std::size_t rank, const std::string& name) {
  const Rank& from = ranks_[rank];
  const bool is_there = printed_ - from.printed_at <= kSeen && !into_files_;
  if (from.last.empty() || is_there) return;
  std::string text = "poseidon: the last lines of " + name + ":\n";
  for (const std::string& line : from.last) text += Prefix(rank, true) + line + "\n";
  StandardError().Write(text);
}

}  // namespace poseidon::tools
