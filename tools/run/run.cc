// SPDX-License-Identifier: Apache-2.0
// `poseidon run`: any command as the ranks of a job, here and over ssh.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "poseidon/place/environment.h"
#include "poseidon/transport/tcp/token.h"
#include "tools/console/fail.h"
#include "tools/console/line_writer.h"
#include "tools/console/stop_signal.h"
#include "tools/console/values.h"
#include "tools/console/width.h"
#include "tools/launch/cluster_flags.h"
#include "tools/launch/launcher.h"
#include "tools/run/commands.h"
#include "tools/run/rank_task.h"
#include "tools/run/run_log.h"
#include "tools/watch/watch.h"

namespace poseidon::tools {
namespace {

using place::Environment;
using launch::Host;
using launch::MemberProcess;
using transport::tcp::Token;

struct RunFlags {
  int workers = 0;
  launch::ClusterFlags cluster;
  std::vector<std::string> environment;
  std::string log_folder;
  std::uint16_t port = 0;
  double join_timeout = 120;
  WatchFlags watch;
  std::vector<std::string> command;
};

// Variables of this process's environment that ranks on other hosts get without --env: where programs and modules are,
// how they compute, and how they write. By name, or by what the name begins with.
constexpr const char* kTravels[] = {"PATH",  "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LANG", "LC_*",
                                    "TZ",    "COLUMNS",   "PYTHON*",         "OMP_*",       "MKL_*",        "OPENBLAS_*",
                                    "KMP_*", "TORCH_*",         "CUDA_*",      "NCCL_*",       "GLOO_*",
                                    "TF_*",  "XLA_*",           "KERAS_*",     "POSEIDON_*"};
// A host that is gone for so long is lost: ranks that do not use us would wait for it for ever.
const std::vector<std::string> kLosesHosts = {"-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"};

// Which is another job's, or this machine's.
constexpr const char* kStays[] = {"POSEIDON_TOKEN_FILE", "POSEIDON_VERDICT_FILE", "POSEIDON_FIGURES_FILE", "POSEIDON_PORT", "POSEIDON_HOST", "POSEIDON_PROGRAM",
                                  "POSEIDON_PYTHON"};

bool Matches(const std::string& name, const std::string& pattern) {
  return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1)) : name == pattern;
}

bool IsAmong(const std::string& name, std::span<const char* const> patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const char* pattern) { return Matches(name, pattern); });
}

// Returns the variables that --env names: NAME=VALUE, or NAME with the value that it has here.
Environment NamedEnvironment(const RunFlags& flags, const Environment& own) {
  Environment named;
  for (const std::string& entry : flags.environment) {
    const std::size_t equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    if (name.empty()) FailUsage("--env " + entry + ": expected NAME or NAME=VALUE");
    if (equals == std::string::npos && !own.contains(name)) FailUsage("--env " + name + ": it is not set here, expected NAME=VALUE");
    named[name] = equals == std::string::npos ? own.at(name) : entry.substr(equals + 1);
  }
  return named;
}

std::vector<Host> HostOfEachRank(const RunFlags& flags) {
  const std::vector<Host> hosts = launch::HostsOf(flags.cluster);
  if (hosts.empty()) {
    if (flags.workers == 0) FailUsage("give -n N, --hosts or --hostfile: how many ranks, and where");
    return std::vector<Host>(static_cast<std::size_t>(flags.workers), Host{"localhost", 1, 0});
  }
  std::size_t slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  Result<std::vector<Host>> placed =
      launch::PlaceMembers(hosts, flags.workers > 0 ? static_cast<std::size_t>(flags.workers) : slots);
  if (!placed.ok()) FailUsage(placed.status().message());
  return *std::move(placed);
}

std::vector<RankTask> TasksOf(const RunFlags& flags, const launch::Placement& placed) {
  const Environment own = place::VariablesOf(environ);
  const Environment named = NamedEnvironment(flags, own);
  Environment travelling = named;
  for (const auto& [name, value] : own) {
    if (IsAmong(name, kTravels) && !IsAmong(name, kStays)) travelling.emplace(name, value);
  }
  std::map<std::string, int> ranks_of;  // by host so far
  std::map<std::string, int> nodes;
  std::vector<RankTask> tasks;
  for (std::size_t i = 0; i < placed.hosts.size(); ++i) {
    const std::string& host = placed.hosts[i].name;
    const int node = nodes.emplace(host, static_cast<int>(nodes.size())).first->second;
    const bool hosts_named = flags.cluster.given();
    const std::string name = "rank " + std::to_string(i) + (hosts_named ? " on host " + host : "");
    tasks.push_back({.name = name,
                     .rank = static_cast<int>(i),
                     .workers = static_cast<int>(placed.hosts.size()),
                     .local_rank = ranks_of[host]++,
                     .local_workers = static_cast<int>(placed.OnHostOf(i, placed.hosts.size())),
                     .node = node,
                     .host = hosts_named ? host : "",
                     .address = placed.addresses[i],
                     .port = flags.port,
                     .argv = flags.command,
                     .environment = placed.local[i] ? named : travelling,
                     .tells_figures = flags.watch.given()});
  }
  return tasks;
}

// How every rank is started, and what it is told.
std::vector<MemberProcess> ProcessesOf(const RunFlags& flags, const std::vector<RankTask>& tasks,
                                       const launch::Placement& placed) {
  const Result<Token> token = Token::Generate();
  if (!token.ok()) Fail(token.status().message());
  std::vector<MemberProcess> members;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    nlohmann::json message = tasks[i];
    message["token"] = ToHex(token->bytes());
    members.push_back({.name = tasks[i].name,
                       .argv = launch::CommandOn(flags.cluster, placed.hosts[i], placed.local[i], "rank", kLosesHosts),
                       .task = std::move(message),
                       .remote = !placed.local[i]});
  }
  return members;
}

std::vector<Seat> SeatsOf(const std::vector<RankTask>& tasks) {
  std::vector<Seat> seats;
  for (const RankTask& task : tasks) seats.push_back({std::to_string(task.rank), task.host.empty() ? launch::OwnName() : task.host});
  return seats;
}

// Progress bars come from rank 0, drawn as its framework draws them on a terminal.
void LetDraw(RankTask* rank) {
  rank->draws_output = isatty(STDOUT_FILENO) == 1;
  rank->draws_errors = isatty(STDERR_FILENO) == 1;
  const int drawn_on = rank->draws_output ? STDOUT_FILENO : STDERR_FILENO;
  rank->columns = static_cast<int>(TerminalWidth(drawn_on).value_or(kPlainWidth));
}

void RunCommand(const RunFlags& flags) {
  if (flags.command.empty()) FailUsage("there is no command, expected poseidon run -n 4 python train.py");
  const launch::Placement placed = launch::PlaceOn(HostOfEachRank(flags));
  if (flags.log_folder.empty()) PassTerminalWidth(RunLog::PrefixWidth(placed.hosts.size()));
  std::vector<RankTask> tasks = TasksOf(flags, placed);
  if (flags.log_folder.empty()) LetDraw(&tasks.front());
  Watch watch(flags.watch, SeatsOf(tasks));
  RunLog log(tasks.size());
  log.Pin(watch.pinned());
  if (!flags.log_folder.empty()) {
    if (const Status status = log.WriteInto(flags.log_folder); !status.ok()) FailUsage(status.message());
  }
  const std::vector<MemberProcess> members = ProcessesOf(flags, tasks, placed);
  launch::LaunchOptions launching;
  launching.join_seconds = flags.join_timeout;
  // Within 2 s of the first failure all have ended: ranks that use us say themselves what they lost, within a second.
  launching.let_go_seconds = 1;
  launching.grace_seconds = 0.9;
  std::size_t alone = 0;
  launching.on_event = [&](const std::string&, const launch::Event& event) {
    if (std::holds_alternative<launch::Alone>(event)) ++alone;
    const auto* const line = std::get_if<launch::Line>(&event);
    if (line == nullptr || line->rank >= tasks.size()) return;
    if (line->passing.value_or(false)) {
      log.Passing(line->rank, line->error, line->line);
    } else {
      log.Line(line->rank, line->error, line->line);
    }
  };
  launching.on_line = [&log](const std::string& line) { log.Say(line); };
  launching.say = [&log](const std::string& sentence) { log.Say("poseidon: " + sentence); };
  launching.may_speak = [&log] { return log.TakesLines(); };
  watch.Follow(&launching);
  const launch::LaunchResult result = launch::Launch(members, launching);
  log.EndPassing();
  log.Pin(nullptr);
  watch.Close();
  if (result.exit_code == kExitOk) {
    if (alone == tasks.size() && alone > 1) {
      StandardError().Write("poseidon: no rank joined a job, so each of the " + std::to_string(alone) +
                            " worked alone; a script joins where it calls init() of poseidon.torch, poseidon.keras or "
                            "poseidon.tensorflow\n");
    }
    return;
  }
  if (result.stop_signal != 0) {
    NoteStop(result.stop_signal);
    Fail(std::string("stopped by ") + (result.stop_signal == SIGINT ? "SIGINT" : "SIGTERM"), 128 + result.stop_signal);
  }
  if (result.failed >= 0) {
    const auto rank = static_cast<std::size_t>(result.failed);
    log.ShowLast(rank, tasks[rank].name);
  }
  Fail(result.failure, result.exit_code);
}

}  // namespace

void AddRun(CLI::App& app) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* const c = app.add_subcommand("run", "Start a command as the ranks of a job, here or on several hosts");
  c->footer("  poseidon run -n 4 python train.py\n  poseidon run --hosts a:2,b:2 python train.py");
  c->add_option("-n,--workers", flags->workers, "Number of ranks; without it as many as the hosts have room for")
      ->type_name("N")
      ->check(WholeNumber(1, 1024))
      ->default_str("");
  launch::AddClusterFlags(*c, flags->cluster);
  c->add_option("--env", flags->environment, "A variable of the ranks' environment, with its value here or another; repeatable")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false);
  c->add_option("--log-dir", flags->log_folder, "Folder with a log of each rank, instead of one log here")->type_name("FOLDER");
  c->add_option("--port", flags->port, "MASTER_PORT of the ranks; without it a free one")
      ->type_name("PORT")
      ->check(WholeNumber(1, 65535))
      ->default_str("");
  c->add_option("--join-timeout", flags->join_timeout, "Time in which all ranks must have started")
      ->type_name("SECONDS")
      ->check(Number(0.1, 1e6));
  AddWatchFlags(*c, flags->watch);
  c->prefix_command();
  c->callback([flags, c] {
    signal(SIGPIPE, SIG_IGN);
    flags->command = c->remaining();
    RunCommand(*flags);
  });
}

}  // namespace poseidon::tools
