// SPDX-License-Identifier: Apache-2.0
// A member whose launcher is not ours: it finds its place in the environment, and the others by
// files.
#include "tools/train/placed.h"

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <system_error>
#include <utility>

#include "frontends/caffe/train/worker.h"
#include "poseidon/place/environment.h"
#include "poseidon/place/figures.h"
#include "poseidon/place/meeting.h"
#include "tools/console/fail.h"
#include "tools/console/signals.h"
#include "tools/console/stop_signal.h"
#include "tools/launch/hosts.h"
#include "tools/train/run_dir.h"

namespace poseidon::tools {
namespace {

using place::Place;
using transport::Address;
using transport::tcp::Token;

constexpr const char* kWayOut = "; give --workers to train without the launcher's environment";

// To `poseidon run --watch`, where that has started this process.
place::TellFigures OwnFigures() {
  const char* const path = std::getenv("POSEIDON_FIGURES_FILE");
  return path != nullptr && *path != '\0' ? place::FiguresInto(path) : place::TellFigures();
}

// Processes of different run directories are of different jobs, should their launcher have no name for them.
std::string NameOf(const std::string& run_dir) {
  if (run_dir.empty()) return {};
  const std::string path = std::filesystem::absolute(run_dir).lexically_normal().string();
  return "in-" + std::to_string(std::hash<std::string>()(path));
}

// `run_dir` as the user gave it: all processes have the same.
Result<std::unique_ptr<place::Meeting>> BeginMeeting(const Place& place, const std::string& token_file,
                                                     const std::string& run_dir) {
  std::error_code error;
  const auto temporary = std::filesystem::temp_directory_path(error);
  if (error && place.one_host()) return Unavailable("there is no temporary folder: " + error.message());
  POSEIDON_ASSIGN_OR_RETURN(std::unique_ptr<place::Meeting> meeting,
                            place::Meeting::Begin(place, {.token_file = token_file,
                                                          .temporary_folder = temporary.string(),
                                                          .otherwise = NameOf(run_dir)}));
  for (const std::string& file : meeting->files_left()) RemoveAtSecondStop(file);
  return meeting;
}

Result<caffe::Meeting> Meet(place::Meeting& meeting, double join_timeout) {
  POSEIDON_RETURN_IF_ERROR(
      meeting.Meet({.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(join_timeout * 1000)),
                    .interrupted = [] { return StopSignal() != 0; }},
                   place::SystemResolver()));
  const Place& place = meeting.place();
  POSEIDON_ASSIGN_OR_RETURN(const Token token, Token::FromFile(meeting.token_file()));
  const Address leader{place.coordinator, static_cast<std::uint16_t>(place.port)};
  if (place.rank == 0) return caffe::Meeting{{place.listen, leader.port}, {}, token};
  return caffe::Meeting{{place.listen, 0}, leader, token};
}

}  // namespace

std::optional<Place> OwnPlace() {
  const place::Environment own = place::VariablesOf(environ);
  if (!place::IsLaunched(own)) return std::nullopt;
  Result<Place> place = place::FindPlace(own, {});
  if (!place.ok()) Fail(place.status().message() + kWayOut);
  if (place->workers == 1) return std::nullopt;
  // What a launcher does not say to be on this host may be on any.
  if (!place->local) place->local = 1;
  // On one host they meet on loopback, at any port: MASTER_PORT is for the framework's own.
  if (place->one_host()) {
    place->coordinator = "127.0.0.1";
    place->port = 0;
  }
  return *std::move(place);
}

void RunPlaced(const Place& place, caffe::TrainOptions options, const std::string& token_file,
               caffe::Output& output) {
  const std::string started = place.launcher + " started " + std::to_string(place.workers) +
                              " processes";
  if (place.workers > 1024) Fail(started + ", expected at most 1024");
  if (options.servers >= place.workers) {
    Fail(started + ", of which --servers " + std::to_string(options.servers) +
         " leaves none to work");
  }
  if (!place.one_host() && token_file.empty()) {
    Fail(started +
         " on several hosts, which need a secret in common: give --token-file FILE, a file of mode "
         "0600 with 64 hexadecimal digits that all hosts can read");
  }
  options.workers = static_cast<std::uint16_t>(place.workers - options.servers);
  const Result<std::unique_ptr<place::Meeting>> begun = BeginMeeting(place, token_file, options.run_dir);
  if (!begun.ok()) Fail(begun.status().message());
  place::Meeting& meeting = **begun;

  std::unique_ptr<RunDir> run_dir;
  if (place.rank == 0) run_dir = RunDir::Make(options);

  caffe::MemberTask task;
  task.server = place.rank >= options.workers;
  task.rank = task.server ? place.rank - options.workers : place.rank;
  task.host = launch::OwnName();
  task.one_machine = place.one_host();
  task.local_members = *place.local;
  // Where the launcher does not say it, as if ranks were numbered host by host.
  task.local_worker = place::LocalRank(place::VariablesOf(environ)).value_or(place.rank % *place.local);
  task.options = std::move(options);

  const double join_timeout = task.options.join_timeout;
  bool joined = false;
  const caffe::MemberEnvironment environment{
      .output = output,
      .requests = SignalRequests(),
      .token = {},
      .listening =
          [&](const Address& address) {
            const Status left = meeting.Announce(address.host, address.port);
            if (!left.ok()) output.Log(LogLevel::kError, left.message());
          },
      .joined =
          [&] {
            meeting.End();
            RemoveAtSecondStop("");
            joined = true;
          },
      // Until all have joined there is nothing to save, and those that are missing may never come.
      .figures = OwnFigures(),
      .interrupted = [&] { return !joined && StopSignal() != 0; },
      .meeting = [&] { return Meet(meeting, join_timeout); }};
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
