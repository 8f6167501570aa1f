// SPDX-License-Identifier: Apache-2.0
#include "tools/run/run_log.h"

#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "tools/console/colour.h"
#include "tools/console/line_writer.h"

namespace poseidon::tools {
namespace {

constexpr const char* kColours[] = {kCyan, kGreen, kYellow, kMagenta, kBlue, kRed};  // of ranks, in turn

const std::string kEraseLine = "\r\x1b[K";

// So many lines of others below a rank's last hide that from nobody.
constexpr std::uint64_t kSeen = 10;

LineWriter& StreamOf(bool error) { return error ? StandardError() : StandardOutput(); }

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
  return InColour(colours_[error ? 1 : 0] ? kColours[rank % std::size(kColours)] : nullptr, number);
}

void RunLog::Line(std::size_t rank, bool error, const std::string& line) {
  Rank& from = ranks_[rank];
  from.last.push_back(line);
  if (from.last.size() > kLastLines) from.last.pop_front();
  if (!into_files_) {
    from.printed_at = ++printed_;
    const bool shown = IsPassingOn(error);
    if (passing_.rank == rank && passing_.error == error) passing_.line.clear();  // this is what has become of it
    Write(error, shown, Prefix(rank, error) + line);
  } else if (!WriteAll(from.file->fd(), line + "\n").ok() && !from.lost) {
    from.lost = true;
    StandardError().Write("poseidon: file " + from.path + " cannot be written: what follows is lost\n");
  }
}

bool RunLog::IsPassingOn(bool error) const {
  return !passing_.line.empty() && &StreamOf(error) == &StreamOf(passing_.error);  // both may be one terminal
}

bool RunLog::IsPinned(bool error) const { return pinned_ != nullptr && &StreamOf(error) == &StandardOutput(); }

void RunLog::NotePassing() {
  pinned_->Note(passing_.line.empty() || !IsPinned(passing_.error) ? "" : Prefix(passing_.rank, passing_.error) + passing_.line);
}

// In one piece, so that no erased line is left where the terminal is behind.
void RunLog::Write(bool error, bool over_passing, const std::string& line) {
  if (IsPinned(error)) {
    NotePassing();
    return pinned_->Print(line + "\n");
  }
  std::string text = (over_passing ? kEraseLine : "") + line + "\n";
  if (IsPassingOn(error)) text += Prefix(passing_.rank, passing_.error) + passing_.line;
  StreamOf(error).Write(text);
}

void RunLog::Passing(std::size_t rank, bool error, const std::string& line) {
  if (!IsPassingOn(error)) EndPassing();
  passing_ = {line, rank, error};
  if (IsPinned(error)) return NotePassing();
  StreamOf(error).WriteOrDrop(kEraseLine + Prefix(rank, error) + line);
}

void RunLog::EndPassing() {
  const std::string line = std::exchange(passing_.line, {});
  if (line.empty()) return;
  if (IsPinned(passing_.error)) {
    Write(passing_.error, false, Prefix(passing_.rank, passing_.error) + line);
  } else {
    StreamOf(passing_.error).Write("\n");
  }
}

void RunLog::Say(const std::string& line) { Write(true, IsPassingOn(true), line); }

void RunLog::ShowLast(std::size_t rank, const std::string& name) {
  const Rank& from = ranks_[rank];
  const bool is_there = printed_ - from.printed_at <= kSeen && !into_files_;
  if (from.last.empty() || is_there) return;
  std::string text = "poseidon: the last lines of " + name + ":\n";
  for (const std::string& line : from.last) text += Prefix(rank, true) + line + "\n";
  StandardError().Write(text);
}

}  // namespace poseidon::tools
