// SPDX-License-Identifier: Apache-2.0
// `poseidon train`: one worker in this process, or a launcher of members here and over ssh.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "frontends/caffe/train/job_options.h"
#include "frontends/caffe/train/worker.h"
#include "poseidon/base/new_file.h"
#include "poseidon/base/quantities.h"
#include "poseidon/plan/lanes.h"
#include "poseidon/sync/strategy.h"
#include "tools/console/fail.h"
#include "tools/console/line_writer.h"
#include "tools/console/shared_flags.h"
#include "tools/console/signals.h"
#include "tools/console/stop_signal.h"
#include "tools/console/terminal.h"
#include "tools/console/values.h"
#include "tools/console/width.h"
#include "tools/launch/cluster_flags.h"
#include "tools/launch/hosts.h"
#include "tools/launch/launcher.h"
#include "tools/train/commands.h"
#include "tools/train/event_output.h"
#include "tools/train/net_flags.h"
#include "tools/train/placed.h"
#include "tools/train/poseidon_caffe_flags.h"
#include "tools/train/run_dir.h"
#include "tools/train/task_json.h"
#include "tools/watch/watch.h"

namespace poseidon::tools {
namespace {

using launch::Host;
using launch::MemberProcess;
using transport::tcp::Token;

struct TrainFlags {
  caffe::TrainOptions options;
  launch::ClusterFlags cluster;
  bool members_given = false;  // by a flag that says how many workers there are
  std::string token_file;
  std::vector<std::string> schemes;
  std::string stage;
  std::string log;  // caffe, poseidon; empty: by where standard error goes
  PoseidonCaffeFlags poseidon_caffe;
  WatchFlags watch;
};

// As with Caffe, there is a worker for each GPU that is named, where nothing else says how many there are.
void ApplyGpu(TrainFlags& flags) {
  caffe::TrainOptions& options = flags.options;
  if (options.gpu.empty() || flags.cluster.given()) return;  // which other hosts have, their members find
  const Result<std::vector<int>> gpus = caffe::GpusIn(options.gpu);
  if (!gpus.ok()) FailUsage(gpus.status().message());
  if (!flags.members_given) options.workers = static_cast<std::uint16_t>(std::min<std::size_t>(gpus->size(), 1024));
}

void CompleteOptions(TrainFlags& flags) {
  caffe::TrainOptions& options = flags.options;
  if (!options.snapshot.empty() && !options.weights.empty()) {
    FailUsage("give a snapshot to resume from or weights to fine-tune from, not both");
  }
  options.one_stream = LeadToOnePlace(STDOUT_FILENO, STDERR_FILENO);
  options.caffe_log = flags.log.empty() ? isatty(STDERR_FILENO) == 0 : flags.log == "caffe";
  for (const std::string& entry : flags.schemes) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos) FailUsage("--scheme " + entry + ": expected " + plan::SchemeNames("LAYER="));
    options.schemes[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  options.stages = CommaParts(flags.stage);
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
  if (!token.ok()) FailUsage(token.status().message());
  return *token;
}

// Where the workers run, then the dedicated servers.
std::vector<Host> Members(const TrainFlags& flags) {
  std::vector<Host> hosts = launch::HostsOf(flags.cluster);
  for (Host& host : hosts) {  // a line of a host file of Poseidon-Caffe's is a client, with its worker threads
    if (host.port != 0) host.slots = WorkersPerClient(flags.poseidon_caffe);
  }
  if (hosts.empty()) {
    return std::vector<Host>(std::size_t{flags.options.workers} + flags.options.servers, Host{"localhost", 1, 0});
  }
  Result<std::vector<Host>> placed = launch::PlaceMembers(hosts, flags.options.workers);
  if (!placed.ok()) FailUsage(placed.status().message());
  // Dedicated servers go round the hosts.
  for (std::uint16_t s = 0; s < flags.options.servers; ++s) {
    Host host = hosts[s % hosts.size()];
    host.port = 0;
    placed->push_back(host);
  }
  return *std::move(placed);
}

// How every member ended and whom it blames, one object a line.
Status WriteMembers(const std::string& path, const launch::LaunchResult& result) {
  std::string lines;
  for (const launch::MemberEnd& end : result.ends) {
    const nlohmann::json line{{"member", end.name},
                              {"pid", end.pid},
                              {"end", end.how},
                              {"failure", end.failure ? launch::EventJson(*end.failure) : nlohmann::json()}};
    lines += line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  // Not flushed: a disk that hangs is why some jobs end.
  return ReplaceFile(path, lines, path + ".tmp");
}

// How every member is started, and its task.
std::vector<MemberProcess> ProcessesOf(const TrainFlags& flags, const caffe::TrainOptions& options) {
  const launch::Placement placed = launch::PlaceOn(Members(flags));
  const Token token = JobToken(flags);
  std::vector<MemberProcess> members;
  for (std::size_t i = 0; i < placed.hosts.size(); ++i) {
    const bool server = i >= options.workers;
    caffe::MemberTask task;
    task.server = server;
    task.rank = static_cast<int>(server ? i - options.workers : i);
    task.host = flags.cluster.given() ? placed.hosts[i].name : launch::OwnName();
    task.listen_host = placed.addresses[i];
    task.listen_port = placed.hosts[i].port;
    task.one_machine = placed.all_local;
    task.local_members = static_cast<int>(placed.OnHostOf(i, options.workers));
    task.local_worker = server ? 0 : static_cast<int>(placed.OnHostOf(i, i));
    task.tells_figures = flags.watch.given();
    task.options = options;
    const std::string name = server ? "server " + std::to_string(i - options.workers)
                                    : "worker " + std::to_string(i);
    members.push_back({.name = name + " on host " + task.host,
                       .argv = launch::CommandOn(flags.cluster, placed.hosts[i], placed.local[i], "member"),
                       .task = TaskJson(task, token),
                       .remote = !placed.local[i]});
  }
  return members;
}

std::vector<Seat> SeatsOf(const std::vector<MemberProcess>& members) {
  std::vector<Seat> seats;
  for (const MemberProcess& member : members) {
    const std::string number = std::to_string(member.task.at("rank").get<int>());
    seats.push_back({member.task.at("server").get<bool>() ? "server " + number : number, member.task.at("host").get<std::string>()});
  }
  return seats;
}

void RunJob(const TrainFlags& flags, Terminal& terminal) {
  // Paths must mean the same for a member in another folder of another host.
  caffe::TrainOptions options = flags.options;
  options.run_dir = std::filesystem::absolute(options.run_dir).string();
  PassTerminalWidth();
  const std::vector<MemberProcess> members = ProcessesOf(flags, options);
  Watch watch(flags.watch, SeatsOf(members));
  terminal.Pin(watch.pinned());
  launch::LaunchOptions launching;
  launching.join_seconds = options.join_timeout;
  launching.interrupt_stops = options.sigint_effect == "stop";
  launching.on_event = [&terminal](const std::string& member, const launch::Event& event) {
    Replay(event, member, terminal);
  };
  launching.on_line = [&terminal](const std::string& line) { terminal.Print(line); };
  launching.say = [&terminal](const std::string& sentence) {
    terminal.Log(LogLevel::kNotice, sentence);
  };
  launching.stop_wished = [] { return StopSignal() != 0; };
  watch.Follow(&launching);
  const launch::LaunchResult result = launch::Launch(members, launching);
  terminal.Pin(nullptr);
  watch.Close();
  if (result.stop_signal != 0) NoteStop(result.stop_signal);
  const Status written = WriteMembers(options.run_dir + "/members.jsonl", result);
  if (result.exit_code != kExitOk) Fail(result.failure, result.exit_code);
  // The other results were in that folder, which may be gone.
  if (!written.ok()) Fail("the job ended well, and its results are not complete: " + written.message());
}

// ---- the flags, in the order of the help

// Caffe's.
void AddCaffeFlags(CLI::App& c, TrainFlags& flags) {
  caffe::TrainOptions& o = flags.options;
  c.option_defaults()->group("Model");
  c.add_option("--solver", o.solver, "Solver, as Caffe has it")->type_name("PROTOTXT")->required()->check(InputFile());
  c.add_option("--snapshot", o.snapshot, "Go on from this .solverstate or .solverstate.h5")->type_name("FILE")->check(SnapshotFiles());
  c.add_option("--weights", o.weights, "Fine-tune from these .caffemodel or .caffemodel.h5 files")->type_name("FILE[,FILE...]")->check(SnapshotFiles());
  AddStateFlags(c, o.level, flags.stage);
  c.add_option("--dtype", o.dtype, "Numbers to compute with; f64 is for numeric tests")->check(OneOf({"f32", "f64"}));
  c.add_flag("--global-batch", o.global_batch, "batch_size is of all workers together");
  c.option_defaults()->group("Running");
  c.add_option("--iterations", o.iterations, "Train so many, without tests and snapshots; without it as the solver says")
      ->type_name("N")
      ->check(WholeNumber(1, 1000000000))
      ->excludes("--snapshot")
      ->default_str("");
  c.add_option("--threads", o.threads, "Compute threads of a worker; without it its share of the cores")
      ->type_name("N")
      ->check(WholeNumber(1, 1024))
      ->default_str("");
  AddGpuFlag(c, o.gpu);
  AddTf32Flag(c, o.tf32);
  c.add_option("--run-dir", o.run_dir, "Folder of the results, which is made")->type_name("FOLDER");
  c.add_option("--log", flags.log,
               "caffe: Caffe's log too, on standard error, for parse_log and scripts like it; poseidon: our own lines alone; "
               "without it caffe where standard error is no terminal")
      ->check(OneOf({"caffe", "poseidon"}));
  c.add_option("--on-nan", o.on_nan, "When the loss is NaN or infinite: end with exit code 4, or go on")->check(OneOf({"stop", "go"}));
  c.add_option("--sigint_effect", o.sigint_effect, "On SIGINT (Ctrl-C)")->check(OneOf({"stop", "snapshot", "none"}));
  c.add_option("--sighup_effect", o.sighup_effect, "On SIGHUP")->check(OneOf({"stop", "snapshot", "none"}));
}

void AddMemberFlags(CLI::App& c, TrainFlags& flags) {
  caffe::TrainOptions& o = flags.options;
  c.option_defaults()->group("Members");
  c.add_option("--workers", o.workers, "Number of workers")->type_name("N")->check(WholeNumber(1, 1024));
  c.add_option("--servers", o.servers, "Number of dedicated servers; with 0 the workers keep the shards")
      ->type_name("N")
      ->check(WholeNumber(0, 1024));
  launch::AddClusterFlags(c, flags.cluster);
  c.add_option("--token-file", flags.token_file, "The job's secret, 64 hexadecimal digits; without it one is drawn")
      ->type_name("FILE")
      ->check(InputFile());
}

void AddExchangeFlags(CLI::App& c, TrainFlags& flags) {
  caffe::TrainOptions& o = flags.options;
  c.option_defaults()->group("Exchange of gradients");
  c.add_option("--policy", o.policy, "What the plan makes least: the time of a step, or its bytes")->check(OneOf({"time", "bytes"}));
  c.add_option("--strategy", o.strategy,
               "How layers are scheduled: Poseidon's way, or that of a published system, to compare with")
      ->check(OneOf(sync::StrategyNames()));
  c.add_option("--bandwidth", o.bandwidth,
               "What a member may use of its link each way, headers included, as in 400Mbit or 2.5Gbps; without it all of it")
      ->type_name("RATE")
      ->check(Quantity(ParseRate));
  c.add_option("--scheme", flags.schemes, plan::SchemeNames("LAYER=") + ": how this layer goes; repeatable")
      ->type_name("LAYER=SCHEME")
      ->allow_extra_args(false);
  c.add_option("--plan", o.plan_file, "Follow the schemes of this plan.json")->type_name("FILE")->check(InputFile());
  c.add_option("--final-plan-step", o.final_plan_step, "Step at which the plan from measured times begins")
      ->type_name("STEP")
      ->check(WholeNumber(3, 1000000));
  c.add_option("--levels", o.levels,
               "host: workers of one host combine through its memory before the network; flat: each for himself; auto: host where "
               "several hosts have several workers")
      ->check(OneOf({"flat", "host", "auto"}));
  c.add_option("--zero-compression", o.zero_compression,
               "auto: factors leave without their zeros where that takes less time than sending them; off: never; "
               "always: for tests")
      ->check(OneOf({"auto", "off", "always"}));
  c.add_option("--lanes", o.lanes,
               "Threads of the network of every member, each with connections of its own; without it as many as the links need and "
               "the cores have to spare")
      ->type_name("N")
      ->check(WholeNumber(1, plan::kMaxLanes));
  c.add_option("--machines", o.machines, "By rank, which machine's memory a worker shares, instead of what it sees, as in a,a,b,b")
      ->type_name("NAME,...")
      ->delimiter(',');
  c.add_option("--wire", o.wire, "tls: encrypted; auth: changes are found, nothing is encrypted; plain: neither; auto: tls between hosts, plain on one")
      ->check(OneOf({"auto", "tls", "auth", "plain"}));
  c.add_flag("--sync", o.sync, "With one worker: run the whole exchange all the same");
}

// How long members wait for each other.
void AddPatienceFlags(CLI::App& c, caffe::TrainOptions& o) {
  c.option_defaults()->group("Patience");
  c.add_option("--dead-after", o.dead_after, "Silence after which a member is dead")->type_name("SECONDS")->check(Number(1, 86400));
  c.add_option("--stuck-after", o.stuck_after,
               "Time after which a member that lives but keeps the others waiting ends the job; ten times as long if it computes")
      ->type_name("SECONDS")
      ->check(Number(1, 8640000));
  c.add_option("--join-timeout", o.join_timeout, "Time in which all members must have joined")
      ->type_name("SECONDS")
      ->check(Number(1, 86400));
}

void Train(TrainFlags& flags) {
  signal(SIGPIPE, SIG_IGN);
  ReceiveSignals(flags.options);
  Terminal terminal;
  if (ApplyPoseidonCaffe(flags.poseidon_caffe, flags.options, terminal) == ClientPart::kNothing) return;
  CompleteOptions(flags);
  // The user's flags come before the environment.
  const auto place = flags.members_given ? std::nullopt : OwnPlace();
  if (place) {
    if (flags.watch.given()) FailUsage("--watch and --metrics-port are for a job that this command launches, and " + place->launcher + " has launched this one");
    RunPlaced(*place, flags.options, flags.token_file, terminal);
    return;
  }
  ApplyGpu(flags);
  const bool alone = flags.options.workers == 1 && flags.options.servers == 0 && !flags.cluster.given();
  if (alone && flags.watch.given()) FailUsage("--watch and --metrics-port show the members of a job, expected --workers 2 or more, or --hosts");
  const std::unique_ptr<RunDir> run_dir = RunDir::Make(flags.options);
  if (alone) {
    RunAlone(flags, terminal);
  } else {
    RunJob(flags, terminal);
  }
}

}  // namespace

void AddTrain(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* c = app.add_subcommand("train", "Train or fine-tune a Caffe model");
  c->footer("  poseidon train --solver solver.prototxt --workers 4\n"
            "  poseidon train --solver solver.prototxt --hosts a:2,b:2 --workers 4\n"
            "  poseidon train --solver solver.prototxt --snapshot model_iter_1000.solverstate");
  AddCaffeFlags(*c, *flags);
  AddMemberFlags(*c, *flags);
  AddExchangeFlags(*c, *flags);
  AddPatienceFlags(*c, flags->options);
  c->option_defaults()->group("Watching");
  AddWatchFlags(*c, flags->watch);
  AddPoseidonCaffeFlags(*c, flags->poseidon_caffe);
  c->callback([flags, c] {
    flags->members_given = c->count("--workers") + c->count("--hosts") + c->count("--hostfile") + c->count("--num_clients") > 0;
    Train(*flags);
  });
}

}  // namespace poseidon::tools
