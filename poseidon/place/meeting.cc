// SPDX-License-Identifier: Apache-2.0
#include "poseidon/place/meeting.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "poseidon/place/left_token.h"
#include "poseidon/transport/tcp/token.h"

namespace poseidon::place {
namespace {

using transport::tcp::Token;

bool SaysEverything(const Place& place, const std::string& token_file) {
  return !place.coordinator.empty() && place.port != 0 && !token_file.empty();
}

// A part of this job's file names that other jobs' do not have.
std::string JobName(const Place& place, const MeetingOptions& options) {
  std::string job = place.job.empty() ? options.otherwise : place.job;
  if (job.empty()) job = place.one_host() ? "of-" + std::to_string(getppid()) : "job";
  std::replace_if(
      job.begin(), job.end(), [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '.'; }, '_');
  return place.launcher + (options.program.empty() ? "-" : "-" + options.program + "-") + job;
}

}  // namespace

Result<bool> IsLeftOpen(const Place& place, const std::string& token_file) {
  if (place.workers == 1 || SaysEverything(place, token_file)) return false;
  // Variables alone may be those of a launcher that has none of these, or set by hand.
  const bool launched = !place.launcher.empty() && place.local;
  const std::string started =
      place.launcher.empty() ? "" : place.launcher + " started " + std::to_string(place.workers) + " processes and ";
  if (!launched && place.port == 0) {
    return InvalidArgument(started + "rank 0's port is not known, expected MASTER_PORT or port=");
  }
  if (!launched) {
    return PermissionDenied(
        "the job's token is missing, expected POSEIDON_TOKEN_FILE or token_file= to name a file written by "
        "poseidon.make_token_file");
  }
  if (!place.one_host() && token_file.empty()) {
    return PermissionDenied(started +
                            "not all are on this host, expected POSEIDON_TOKEN_FILE or token_file= to name a file written "
                            "by poseidon.make_token_file that all hosts can read");
  }
  return true;
}

Meeting::Meeting(const Place& place, const MeetingOptions& options)
    : place_(place), token_file_(options.token_file), makes_token_(options.token_file.empty()) {}

Result<std::unique_ptr<Meeting>> Meeting::Begin(const Place& place, const MeetingOptions& options) {
  std::unique_ptr<Meeting> meeting(new Meeting(place, options));
  if (SaysEverything(place, options.token_file)) return meeting;
  POSEIDON_RETURN_IF_ERROR(meeting->ChooseFiles(options));
  if (place.rank > 0) return meeting;
  unlink(meeting->note_.c_str());  // of an earlier job
  const std::string folder = std::filesystem::path(meeting->note_).parent_path().string();
  if (access(folder.c_str(), W_OK) == 0) return meeting;
  return Unavailable("the other processes cannot be told where to join: folder " + folder + " cannot be written: " +
                     ErrnoText(errno));
}

Status Meeting::ChooseFiles(const MeetingOptions& options) {
  const std::string job = JobName(place_, options);
  if (!makes_token_ && !place_.one_host()) {
    note_ = std::filesystem::absolute(token_file_ + "." + job + ".address").string();
    return OkStatus();
  }
  POSEIDON_ASSIGN_OR_RETURN(const std::string folder, PrivateFolder(options.temporary_folder));
  note_ = folder + "/" + job + ".address";
  if (!makes_token_) return OkStatus();
  token_file_ = folder + "/" + job + ".token";
  RemoveLeftTokens(folder);  // of jobs that were killed as they met
  return OkStatus();
}

Status Meeting::Meet(NoteWait wait, const Resolver& resolver) {
  POSEIDON_RETURN_IF_ERROR(Locate(resolver, &place_));
  if (note_.empty()) return OkStatus();
  if (place_.rank > 0) {
    wait.same_host = place_.one_host();
    POSEIDON_ASSIGN_OR_RETURN(const Note note, AwaitNote(note_, wait));
    return MeetAt(note.host, note.port, resolver, &place_);
  }
  if (place_.coordinator.empty()) {
    POSEIDON_ASSIGN_OR_RETURN(const std::string own, NetworkAddress(resolver));
    POSEIDON_RETURN_IF_ERROR(MeetAt(own, place_.port, resolver, &place_));
  }
  if (!makes_token_) return OkStatus();
  POSEIDON_ASSIGN_OR_RETURN(const Token token, Token::Generate());
  POSEIDON_ASSIGN_OR_RETURN(held_token_, WriteHeldToken(token, token_file_));
  return OkStatus();
}

Status Meeting::Announce(const std::string& host, std::uint16_t port) {
  if (place_.rank > 0 || note_.empty()) return OkStatus();
  left_note_ = true;
  return LeaveNote(note_, {host, port, getpid()});
}

void Meeting::End() {
  if (std::exchange(left_note_, false)) unlink(note_.c_str());
  if (held_token_) {
    unlink(token_file_.c_str());
    held_token_.reset();
  } else if (makes_token_ && !note_.empty()) {
    RemoveLeftTokens(std::filesystem::path(note_).parent_path().string());  // if rank 0 was killed
  }
}

std::vector<std::string> Meeting::files_left() const {
  if (place_.rank > 0 || note_.empty()) return {};
  if (makes_token_) return {token_file_, note_};
  return {note_};
}

}  // namespace poseidon::place
