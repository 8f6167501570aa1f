// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/c/job.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

#include "frontends/caffe/c/failure.h"
#include "frontends/caffe/train/aten_engine.h"
#include "frontends/caffe/train/job_options.h"
#include "poseidon/place/environment.h"
#include "poseidon/place/figures.h"
#include "poseidon/place/meeting.h"
#include "poseidon/session/tcp_session.h"
#include "poseidon/session/verdict_file.h"
#include "poseidon/transport/tcp/token.h"

namespace poseidon::caffe {
namespace {

using transport::tcp::Token;

std::atomic<bool> joined_already{false};
std::atomic<Job*> at_work{nullptr};  // the one that has joined, which ends with the process

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string OwnHost() {
  if (std::string named = Variable("POSEIDON_HOST"); !named.empty()) return named;
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

// The cores are shared with the other workers of this host, unless the user says how many threads there are.
int Threads(const MemberTask& task) {
  return Variable("OMP_NUM_THREADS").empty() ? ComputeThreads(task) : at::get_num_threads();
}

MemberTask TaskOf(const place::Place& place) {
  MemberTask task;
  task.rank = place.rank;
  task.host = OwnHost();
  task.one_machine = place.one_host();
  task.local_members = place.local.value_or(1);
  task.options.workers = static_cast<std::uint16_t>(place.workers);
  return task;
}

}  // namespace

Result<place::Place> OwnPlace() {
  POSEIDON_ASSIGN_OR_RETURN(place::Place place, place::FindPlace(place::VariablesOf(environ), {}));
  if (place.workers > 1024) return InvalidArgument(std::to_string(place.workers) + " workers, expected at most 1024");
  return place;
}

Job::~Job() {
  Job* self = this;
  at_work.compare_exchange_strong(self, nullptr);
  if (session_ && session_->failure().ok()) Abort(FailedPrecondition("the solver was given up before the job had ended"));
}

Result<std::unique_ptr<session::Session>> Job::Open(const MemberTask& task, int threads, const Solver& solver) {
  std::error_code error;
  const std::string temporary = std::filesystem::temp_directory_path(error).string();
  POSEIDON_ASSIGN_OR_RETURN(std::unique_ptr<place::Meeting> meeting,
                            place::Meeting::Begin(place_, {.token_file = Variable("POSEIDON_TOKEN_FILE"),
                                                           .temporary_folder = temporary,
                                                           .program = "python",
                                                           .otherwise = {}}));
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(task.options.join_timeout * 1000));
  POSEIDON_RETURN_IF_ERROR(meeting->Meet({.timeout = timeout, .interrupted = WantsOut}, place::SystemResolver()));
  POSEIDON_ASSIGN_OR_RETURN(Token token, Token::FromFile(meeting->token_file()));
  const place::Place& met = meeting->place();
  POSEIDON_ASSIGN_OR_RETURN(const Wanted wanted, WantedOf(task.options, {}));
  session::SessionOptions options;
  POSEIDON_ASSIGN_OR_RETURN(options.node, WorkerNodeOptionsOf(task, wanted.planning, threads));
  options.node.listen = {met.listen, static_cast<std::uint16_t>(met.rank == 0 ? met.port : 0)};
  options.node.coordinator = {met.coordinator, static_cast<std::uint16_t>(met.port)};
  options.engine = engine_.get();
  options.log = &output_;
  // A solver that gives up has been interrupted already.
  options.interrupted = [&solver] { return !solver.gives_up() && WantsOut(); };
  if (const std::string verdict = Variable("POSEIDON_VERDICT_FILE"); !verdict.empty()) {
    options.failed = [verdict](const Status& failure) { session::WriteVerdict(verdict, failure); };
    session::WriteThatItJoins(verdict);
  }
  if (const std::string figures = Variable("POSEIDON_FIGURES_FILE"); !figures.empty()) options.figures = place::FiguresInto(figures);
  Status announced;
  Result<std::unique_ptr<session::Session>> opened =
      session::OpenTcpSession({.security = {ModeOf(task), std::move(token)}}, options, [&](const transport::Address& address) {
        if (met.rank == 0) announced = meeting->Announce(address.host, address.port);
      });
  if (!announced.ok() && !opened.ok()) return announced;
  return opened;
}

Status Job::Join(Solver* solver) {
  if (session_) return session_->failure();
  if (joined_already.exchange(true)) {
    return FailedPrecondition("another solver of this process has trained in the job, expected one solver a worker");
  }
  const MemberTask task = TaskOf(place_);
  const int threads = Threads(task);
  at::set_num_threads(threads);
  engine_ = MakeAtenEngine(threads);
  POSEIDON_ASSIGN_OR_RETURN(session_, Open(task, threads, *solver));
  EndWithProcess();
  SessionSync::Options sync;
  sync.layer_seconds = [solver] { return solver->layer_clock().Means(); };
  sync.wish = [] { return session::Wish{.stop = WantsOut(), .snapshot = false}; };
  sync.iter_size = solver->parameters().iter_size();
  sync_ = std::make_unique<SessionSync>(*session_, solver->net(), solver->SyncedLayers(), std::move(sync));
  POSEIDON_RETURN_IF_ERROR(sync_->Begin());
  solver->Connect(sync_.get(), sync_.get());
  return OkStatus();
}

SolverAction Job::Agreed() {
  if (!sync_) return SolverAction::kNone;
  const Result<SolverAction> agreed = sync_->Agreed();
  return agreed.ok() ? *agreed : SolverAction::kNone;  // a job that has failed shows in the next step
}

// The culprit is this worker, by whom the others then name the failure.
void Job::Abort(const Status& failure) {
  if (!session_) return;
  if (session_->failure().ok()) {
    session_->Abort({failure.code(), failure.message(), StatusScope::kJob, session_->rank().value()});
  }
  // Gradients that are lent may be read until then.
  static_cast<void>(session_->AwaitEnd());
}

// A program in Python cannot ask with which code it will end, which tells one that gives up from one that is done. The C library
// knows, behind it. What is registered last runs first: what the session uses is still there. Forked children have no part in it.
void Job::EndWithProcess() {
  static std::atomic<pid_t> process;
  process = getpid();
  at_work = this;
  on_exit([](int exit_code, void*) {
    Job* const job = at_work;
    if (job != nullptr && process == getpid()) job->End(exit_code);
  }, nullptr);
}

// The caller's language is gone by now, and so are thread-local objects of this thread.
void Job::End(int exit_code) {
  poseidon_caffe_set_say(nullptr);
  poseidon_caffe_set_interrupted(nullptr);
  if (!session_->failure().ok()) return;
  if (exit_code != 0) return Abort({StatusCode::kAborted, "its script ended with exit code " + std::to_string(exit_code)});
  if (const Status left = session_->Leave(); !left.ok()) output_.Log(LogLevel::kError, "poseidon: " + left.message());
}

}  // namespace poseidon::caffe
