// SPDX-License-Identifier: Apache-2.0
// `poseidon train`: one worker in this process, or a launcher of members here and over ssh.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "frontends/caffe/train/worker.h"
#include "tools/commands.h"
#include "tools/launch/hosts.h"
#include "tools/launch/launcher.h"
#include "tools/placed.h"
#include "tools/run_dir.h"
#include "tools/signals.h"
#include "tools/task_json.h"
#include "tools/terminal.h"

namespace poseidon::tools {
namespace {

using launch::Host;
using launch::MemberProcess;
using transport::tcp::Token;

struct TrainFlags {
  caffe::TrainOptions options;
  std::string hosts;
  std::string hostfile;
  std::string gpu;
  std::string token_file;
  std::string ssh = "ssh";
  std::string program;  // where poseidon is on the other hosts
  std::vector<std::string> schemes;
  std::string stage;
};

std::string OwnProgram() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "poseidon" : path.string();
}

void CompleteOptions(TrainFlags& flags) {
  caffe::TrainOptions& options = flags.options;
  if (!options.snapshot.empty() && !options.weights.empty()) {
    Fail("give a snapshot to resume from or weights to fine-tune from, not both");
  }
  if (!flags.gpu.empty()) {
    Fail("--gpu " + flags.gpu + ": this build computes on the CPU; leave the flag out");
  }
  for (const std::string& entry : flags.schemes) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos) Fail("--scheme " + entry + ": expected LAYER=kv or LAYER=sfb");
    options.schemes[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  for (std::size_t begin = 0; begin < flags.stage.size();) {
    const std::size_t end = std::min(flags.stage.find(',', begin), flags.stage.size());
    options.stages.push_back(flags.stage.substr(begin, end - begin));
    begin = end + 1;
  }
}

// ---- one worker in this process

void RunAlone(const TrainFlags& flags, Terminal& terminal) {
  caffe::MemberTask task;
  task.host = launch::OwnName();
  task.options = flags.options;
  std::optional<Token> token;
  if (flags.options.sync) {
    Result<Token> generated = Token::Generate();
    if (!generated.ok()) Fail(generated.status().message());
    token = *generated;
  }
  const Result<caffe::RunEnd> end = caffe::RunWorker(task, {terminal, SignalRequests(), token, {}});
  if (!end.ok()) Fail(end.status().message());
  if (!end->not_finite.empty()) Fail(end->not_finite, kExitNotFinite);
}

// ---- several members

Token JobToken(const TrainFlags& flags) {
  Result<Token> token =
      flags.token_file.empty() ? Token::Generate() : Token::FromFile(flags.token_file);
  if (!token.ok()) Fail(token.status().message());
  return *token;
}

std::vector<Host> Placement(const TrainFlags& flags) {
  const std::size_t members = std::size_t{flags.options.workers} + flags.options.servers;
  if (flags.hosts.empty() && flags.hostfile.empty()) {
    return std::vector<Host>(members, Host{"localhost", 1, 0});
  }
  Result<std::vector<Host>> hosts = flags.hosts.empty() ? launch::ReadHostFile(flags.hostfile)
                                                        : launch::ParseHosts(flags.hosts);
  if (!hosts.ok()) Fail(hosts.status().message());
  Result<std::vector<Host>> placed = launch::PlaceMembers(*hosts, flags.options.workers);
  if (!placed.ok()) Fail(placed.status().message());
  // Dedicated servers go round the hosts.
  for (std::uint16_t s = 0; s < flags.options.servers; ++s) {
    Host host = (*hosts)[s % hosts->size()];
    host.port = 0;
    placed->push_back(host);
  }
  return *placed;
}

std::string ShellQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// The command that starts a member on `host`. Over ssh it changes to this folder first, so that
// relative paths mean the same; -T and BatchMode because nobody is there to type.
std::vector<std::string> CommandFor(const TrainFlags& flags, const Host& host, bool local) {
  const std::string program = flags.program.empty() ? OwnProgram() : flags.program;
  if (local) return {OwnProgram(), "member"};
  std::vector<std::string> argv;
  std::string word;
  for (const char c : flags.ssh + " ") {
    if (c != ' ') {
      word += c;
    } else if (!word.empty()) {
      argv.push_back(std::exchange(word, {}));
    }
  }
  argv.insert(argv.end(), {"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", host.name, "--",
                           "cd " + ShellQuoted(std::filesystem::current_path().string()) +
                               " && exec " + ShellQuoted(program) + " member"});
  return argv;
}

// How every member ended and whom it blames, one object a line.
void WriteMembers(const std::string& path, const launch::LaunchResult& result) {
  std::ofstream file(path, std::ios::trunc);
  for (const launch::MemberEnd& end : result.ends) {
    file << nlohmann::json{{"member", end.name},
                           {"pid", end.pid},
                           {"end", end.how},
                           {"failure", end.failure}}
         << "\n";
  }
}

void RunJob(TrainFlags& flags, Terminal& terminal) {
  const std::string own = launch::OwnName();
  const std::vector<Host> placed = Placement(flags);
  const bool spread = !flags.hosts.empty() || !flags.hostfile.empty();
  bool all_local = true;
  for (const Host& host : placed) all_local &= launch::IsLocal(host.name, own);
  const bool tls = flags.options.wire == "tls" || (flags.options.wire == "auto" && !all_local);
  // Paths must mean the same for a member in another folder of another host.
  caffe::TrainOptions options = flags.options;
  options.run_dir = std::filesystem::absolute(options.run_dir).string();
  const Token token = JobToken(flags);

  // Beyond loopback only where the user named hosts.
  std::vector<std::string> addresses(placed.size(), "127.0.0.1");
  if (!all_local) {
    Result<std::vector<std::string>> found = launch::AddressesOf(placed, own);
    if (!found.ok()) Fail(found.status().message());
    addresses = *std::move(found);
  }

  std::vector<MemberProcess> members;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    const bool server = i >= options.workers;
    caffe::MemberTask task;
    task.server = server;
    task.rank = static_cast<int>(server ? i - options.workers : i);
    task.host = spread ? placed[i].name : own;
    task.listen_host = addresses[i];
    task.listen_port = placed[i].port;
    task.tls = tls;
    task.local_members = 0;
    for (std::size_t j = 0; j < options.workers; ++j) {
      task.local_members += placed[j].name == placed[i].name ? 1 : 0;
    }
    task.options = options;
    const std::string name = server ? "server " + std::to_string(i - options.workers)
                                    : "worker " + std::to_string(i);
    const bool local = launch::IsLocal(placed[i].name, own);
    members.push_back({.name = name + " on host " + task.host,
                       .argv = CommandFor(flags, placed[i], local),
                       .task = TaskJson(task, token),
                       .remote = !local});
  }
  launch::LaunchOptions launching;
  launching.join_seconds = options.join_timeout;
  launching.interrupt_stops = options.sigint_effect == "stop";
  launching.on_event = [&terminal](const std::string& member, const nlohmann::json& event) {
    Replay(event, member, terminal);
  };
  launching.on_line = [&terminal](const std::string& line) { terminal.Print(line); };
  launching.say = [&terminal](const std::string& sentence) {
    terminal.Log(LogLevel::kNotice, sentence);
  };
  launching.stop_wished = [] { return StopSignal() != 0; };
  const launch::LaunchResult result = launch::Launch(members, launching);
  if (result.stop_wished) NoteStop();
  WriteMembers(options.run_dir + "/members.jsonl", result);
  if (result.exit_code != kExitOk) Fail(result.failure, result.exit_code);
}

}  // namespace

void AddTrain(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* c = app.add_subcommand("train", "Train or fine-tune a model");
  caffe::TrainOptions& o = flags->options;
  c->add_option("--solver", o.solver, "Solver prototxt")->required();
  c->add_option("--snapshot", o.snapshot, "Resume from this .solverstate or .solverstate.h5");
  c->add_option("--weights", o.weights, "Fine-tune from these .caffemodel or .caffemodel.h5 files, comma-separated");
  c->add_option("--gpu", flags->gpu, "GPU ids (this build computes on the CPU)");
  c->add_option("--level", o.level, "Network level");
  c->add_option("--stage", flags->stage, "Network stages, comma-separated");
  c->add_option("--sigint_effect", o.sigint_effect, "On SIGINT: stop, snapshot or none")
      ->check(CLI::IsMember({"stop", "snapshot", "none"}));
  c->add_option("--sighup_effect", o.sighup_effect, "On SIGHUP: stop, snapshot or none")
      ->check(CLI::IsMember({"stop", "snapshot", "none"}));
  c->add_option("--workers", o.workers, "Number of workers")->check(CLI::Range(1, 1024));
  c->add_option("--servers", o.servers, "Dedicated server processes (0: workers host the shards)")
      ->check(CLI::Range(0, 1024));
  c->add_option("--hosts", flags->hosts, "Hosts and workers on each: a:2,b:2");
  c->add_option("--hostfile", flags->hostfile, "File with a host a line (also old 'ID IP PORT')");
  c->add_option("--ssh", flags->ssh, "Command that reaches another host");
  c->add_option("--program", flags->program, "Path of poseidon on the other hosts");
  c->add_flag("--sync", o.sync, "With one worker: run the whole synchronisation all the same");
  c->add_flag("--global-batch", o.global_batch, "batch_size is of all workers together");
  c->add_option("--policy", o.policy, "What the plan makes least: time or bytes")
      ->check(CLI::IsMember({"time", "bytes"}));
  c->add_option("--scheme", flags->schemes, "LAYER=kv or LAYER=sfb, repeatable")
      ->allow_extra_args(false);
  c->add_option("--plan", o.plan_file, "Follow the schemes of this plan.json");
  c->add_option("--wire", o.wire, "auto (TLS between hosts), tls or auth")
      ->check(CLI::IsMember({"auto", "tls", "auth"}));
  c->add_option("--levels", o.levels,
                "host: workers of one host combine through its memory before the network; flat: each "
                "for himself; auto: host where several hosts have several workers")
      ->check(CLI::IsMember({"flat", "host", "auto"}));
  c->add_option("--machines", o.machines,
                "By rank, which machine's memory a worker shares, instead of what it sees: a,a,b,b")
      ->delimiter(',');
  c->add_option("--token-file", flags->token_file, "The job's secret, 64 hexadecimal digits");
  c->add_option("--dead-after", o.dead_after, "Seconds of silence after which a member is dead")
      ->check(CLI::Range(1.0, 86400.0));
  c->add_option("--stuck-after", o.stuck_after,
                "Seconds after which a member that is alive but keeps the others waiting ends the job; ten times as "
                "many if it computes")
      ->check(CLI::Range(1.0, 8640000.0));
  c->add_option("--join-timeout", o.join_timeout, "Seconds in which all members must have joined")
      ->check(CLI::Range(1.0, 86400.0));
  c->add_option("--threads", o.threads, "Compute threads per worker")->check(CLI::Range(1, 1024));
  c->add_option("--run-dir", o.run_dir, "Where the results go");
  c->add_option("--final-plan-step", o.final_plan_step, "Step at which the measured plan begins")
      ->check(CLI::Range(3, 1000000));
  c->add_option("--on-nan", o.on_nan, "When the loss is NaN or infinite: stop (exit code 4), or go on")
      ->check(CLI::IsMember({"stop", "go"}));
  c->add_option("--dtype", o.dtype, "f32, or f64 for numeric tests")
      ->check(CLI::IsMember({"f32", "f64"}));
  c->callback([flags, c] {
    signal(SIGPIPE, SIG_IGN);
    ReceiveSignals(flags->options);
    CompleteOptions(*flags);
    Terminal terminal;
    // What the user says counts for more than the environment.
    const bool told = c->count("--workers") + c->count("--hosts") + c->count("--hostfile") > 0;
    const auto place = told ? std::nullopt : OwnMembership();
    if (place) {
      RunPlaced(*place, flags->options, flags->token_file, terminal);
      return;
    }
    MakeRunDir(flags->options);
    const bool alone = flags->options.workers == 1 && flags->options.servers == 0 &&
                       flags->hosts.empty() && flags->hostfile.empty();
    if (alone) {
      RunAlone(*flags, terminal);
    } else {
      RunJob(*flags, terminal);
    }
  });
}

}  // namespace poseidon::tools
