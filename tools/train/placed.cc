// SPDX-License-Identifier: Apache-2.0
// A member whose launcher is not ours: it finds its place in the environment, and the others by
// files.
#include "tools/train/placed.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <utility>

#include "frontends/caffe/train/worker.h"
#include "tools/console/fail.h"
#include "tools/console/signals.h"
#include "tools/console/stop_signal.h"
#include "tools/launch/hosts.h"
#include "tools/launch/note.h"
#include "tools/train/run_dir.h"

namespace poseidon::tools {
namespace {

using launch::Place;
using transport::Address;
using transport::tcp::Token;

// The files by which the processes of one job meet. Those that rank 0 left go with it.
class MeetingFiles {
 public:
  MeetingFiles(const Place& place, std::string token_file, double join_timeout)
      : place_(place),
        own_token_(token_file.empty()),
        token_(std::move(token_file)),
        join_timeout_(static_cast<std::int64_t>(join_timeout * 1000)) {}
  ~MeetingFiles() { Remove(); }
  MeetingFiles(const MeetingFiles&) = delete;
  MeetingFiles& operator=(const MeetingFiles&) = delete;

  // Chooses the paths. `run_dir` as the user gave it: all processes have the same.
  Status Begin(const std::string& run_dir) {
    const std::string job = JobName(run_dir);
    if (own_token_) {
      std::error_code error;
      const auto temporary = std::filesystem::temp_directory_path(error);
      if (error) return Unavailable("there is no temporary folder: " + error.message());
      POSEIDON_ASSIGN_OR_RETURN(const std::string folder,
                                launch::PrivateFolder(temporary.string()));
      token_ = folder + "/" + job + ".token";
      note_ = folder + "/" + job + ".address";
    } else {
      note_ = token_ + "." + job + ".address";
    }
    if (place_.rank > 0) return OkStatus();
    std::remove(note_.c_str());  // of an earlier job
    const std::string folder = std::filesystem::absolute(note_).parent_path().string();
    if (access(folder.c_str(), W_OK) == 0) return OkStatus();
    return Unavailable("the other processes cannot be told where to join: folder " + folder +
                       " cannot be written: " + ErrnoText(errno));
  }

  // Rank 0 makes the secret where the user gave none; the others read it once they have its note.
  Result<Token> Secret() {
    if (!own_token_ || place_.rank > 0) return Token::FromFile(token_);
    POSEIDON_ASSIGN_OR_RETURN(Token token, Token::Generate());
    POSEIDON_RETURN_IF_ERROR(token.WriteFile(token_));
    left_token_ = true;
    RemoveAtSecondStop(token_);
    return token;
  }
  Status Leave(const Address& address) {
    left_note_ = true;
    RemoveAtSecondStop(note_);
    return launch::LeaveNote(note_, {address.host, address.port, getpid()});
  }
  Result<Address> Await() {
    POSEIDON_ASSIGN_OR_RETURN(const launch::Note note,
                              launch::AwaitNote(note_, {.timeout = join_timeout_,
                                                        .same_host = place_.one_host,
                                                        .interrupted = [] { return StopSignal() != 0; }}));
    return Address{note.host, note.port};
  }
  void Remove() {
    if (std::exchange(left_note_, false)) std::remove(note_.c_str());
    if (std::exchange(left_token_, false)) std::remove(token_.c_str());
    RemoveAtSecondStop("");
  }

 private:
  // Returns a part of this job's file names that other jobs' do not have. Where the launcher has no name for
  // the job: the run directory, else the process that started all of them.
  std::string JobName(const std::string& run_dir) const {
    std::string job = place_.job;
    if (job.empty() && !run_dir.empty()) {
      const std::string path = std::filesystem::absolute(run_dir).lexically_normal().string();
      job = "in-" + std::to_string(std::hash<std::string>()(path));
    } else if (job.empty()) {
      job = place_.one_host ? "of-" + std::to_string(getppid()) : "job";
    }
    std::replace_if(
        job.begin(), job.end(),
        [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '.'; }, '_');
    return place_.launcher + "-" + job;
  }

  const Place& place_;
  const bool own_token_;
  std::string token_;
  std::string note_;
  const std::chrono::milliseconds join_timeout_;
  bool left_note_ = false;
  bool left_token_ = false;
};

// Where rank 0 listens. Its name may mean loopback on its own host.
Result<Address> OwnMeetingPlace(const Place& place) {
  if (place.one_host) return Address{"127.0.0.1", 0};
  if (!place.master_host.empty()) {
    POSEIDON_ASSIGN_OR_RETURN(const std::string host, launch::AddressOf(place.master_host));
    if (!launch::IsLoopbackAddress(host)) return Address{host, place.master_port};
  }
  POSEIDON_ASSIGN_OR_RETURN(const std::string host, launch::OwnNetworkAddress(launch::OwnName()));
  return Address{host, place.master_port};
}

Result<Address> FindRankZero(const Place& place, MeetingFiles& files) {
  if (place.one_host || place.master_host.empty()) return files.Await();
  POSEIDON_ASSIGN_OR_RETURN(const std::string host, launch::AddressOf(place.master_host));
  return Address{host, place.master_port};
}

Result<caffe::Meeting> Meet(const Place& place, MeetingFiles& files) {
  if (place.rank == 0) {
    POSEIDON_ASSIGN_OR_RETURN(const Address own, OwnMeetingPlace(place));
    POSEIDON_ASSIGN_OR_RETURN(const Token token, files.Secret());
    return caffe::Meeting{own, {}, token};
  }
  POSEIDON_ASSIGN_OR_RETURN(const Address leader, FindRankZero(place, files));
  POSEIDON_ASSIGN_OR_RETURN(const std::string host, launch::OwnAddressTowards(leader.host));
  POSEIDON_ASSIGN_OR_RETURN(const Token token, files.Secret());
  return caffe::Meeting{{host, 0}, leader, token};
}

}  // namespace

std::optional<launch::Place> OwnPlace() {
  Result<std::optional<launch::Place>> place = launch::PlaceIn(launch::OwnEnvironment());
  if (!place.ok()) Fail(place.status().message());
  return *std::move(place);
}

void RunPlaced(const Place& place, caffe::TrainOptions options, const std::string& token_file,
               caffe::Output& output) {
  const std::string started = place.launcher + " started " + std::to_string(place.size) +
                              " processes";
  if (place.size > 1024) Fail(started + ", expected at most 1024");
  if (options.servers >= place.size) {
    Fail(started + ", of which --servers " + std::to_string(options.servers) +
         " leaves none to work");
  }
  if (!place.one_host && token_file.empty()) {
    Fail(started +
         " on several hosts, which need a secret in common: give --token-file FILE, a file of mode "
         "0600 with 64 hexadecimal digits that all hosts can read");
  }
  options.workers = static_cast<std::uint16_t>(place.size - options.servers);
  MeetingFiles files(place, token_file, options.join_timeout);
  if (const Status status = files.Begin(options.run_dir); !status.ok()) Fail(status.message());

  if (place.rank == 0) MakeRunDir(options);

  caffe::MemberTask task;
  task.server = place.rank >= options.workers;
  task.rank = task.server ? place.rank - options.workers : place.rank;
  task.host = launch::OwnName();
  task.tls = options.wire == "tls" || (options.wire == "auto" && !place.one_host);
  task.local_members = place.local_size;
  task.options = std::move(options);

  bool joined = false;
  const bool leaves_note = place.rank == 0 && (place.one_host || place.master_host.empty());
  const caffe::MemberEnvironment environment{
      .output = output,
      .requests = SignalRequests(),
      .token = {},
      .listening =
          [&](const Address& address) {
            const Status left = leaves_note ? files.Leave(address) : OkStatus();
            if (!left.ok()) output.Log(LogLevel::kError, left.message());
          },
      .joined =
          [&] {
            files.Remove();
            joined = true;
          },
      // Until all have joined there is nothing to save, and those that are missing may never come.
      .interrupted = [&] { return !joined && StopSignal() != 0; },
      .meeting = [&] { return Meet(place, files); }};
  Status status;
  std::string not_finite;
  if (task.server) {
    status = caffe::RunServer(task, environment);
  } else if (Result<caffe::RunEnd> end = caffe::RunWorker(task, environment); end.ok()) {
    not_finite = end->not_finite;
  } else {
    status = end.status();
  }
  if (!not_finite.empty()) Fail(not_finite, kExitNotFinite);
  if (!joined && StopSignal() != 0) {
    // The launcher takes it for what the signal would have done by itself.
    Fail("stopped before all processes had joined", 128 + StopSignal());
  }
  if (!status.ok()) {
    Fail(status.message(), IsMemberLost(status) ? kExitMemberLost : kExitFailed);
  }
}

}  // namespace poseidon::tools
