// SPDX-License-Identifier: Apache-2.0
// `poseidon member`: one process of a job, started by a launcher. Its task comes as one JSON line on
// standard input, the secret included; what follows are commands; the end of the input means that
// the launcher is gone, and then so is this process.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <thread>
#include <utility>

#include "frontends/caffe/engine/engine_failure.h"
#include "frontends/caffe/train/worker.h"
#include "tools/console/fail.h"
#include "tools/console/signals.h"
#include "tools/console/stop_signal.h"
#include "tools/launch/beats.h"
#include "tools/launch/events.h"
#include "tools/launch/last_words.h"
#include "tools/train/commands.h"
#include "tools/train/event_output.h"
#include "tools/train/task_json.h"

namespace poseidon::tools {
namespace {

using nlohmann::json;

// Set from signal handlers, so lock-free; lives as long as the process.
caffe::Requests* signal_requests = nullptr;

extern "C" void OnTerminate(int) {
  if (signal_requests != nullptr) signal_requests->terminate.store(true);
}

void Obey(const std::string& command, const caffe::TrainOptions& options,
          caffe::Requests& requests) {
  if (command == "terminate") requests.terminate.store(true);
  const std::string effect = command == "interrupt" ? options.sigint_effect
                             : command == "hangup"  ? options.sighup_effect
                                                    : "none";
  if (effect == "stop") requests.stop.store(true);
  if (effect == "snapshot") requests.snapshot.store(true);
}

// Ends the process once the launcher's machine is gone. A process that was stopped itself has missed beats, which Watch
// reads first when it goes on.
void AwaitMissedBeat(const launch::Beats* beats) {
  for (int missed = 0; missed < 5; missed = beats->Missed() ? missed + 1 : 0) {
    std::this_thread::sleep_for(launch::Beats::kBetweenLooks);
  }
  _exit(kExitFailed);
}

// Reads the launcher's commands until it is gone. Without it nobody would notice this process, so it
// ends at once; the others see a lost member.
void Watch(const caffe::TrainOptions& options, caffe::Requests& requests, EventOutput& output) {
  launch::Beats beats;
  bool beats_expected = false;
  for (std::string line; std::getline(std::cin, line);) {
    const json command = json::parse(line, nullptr, false);
    if (!command.is_object()) continue;
    const std::string word = command.value("command", "");
    if (word == "end") _exit(command.value("code", kExitFailed));
    if (word == "answer") output.Emit(launch::Here{});
    beats.Take(command);
    if (beats.Expected() && !std::exchange(beats_expected, true)) std::thread(AwaitMissedBeat, &beats).detach();
    Obey(word, options, requests);
  }
  _exit(kExitFailed);
}

// The member's task, with its secret, as its launcher sends it first.
MemberInput ReadInput() {
  std::string line;
  if (!std::getline(std::cin, line)) Fail("poseidon member is started by poseidon train");
  Result<MemberInput> input = ParseMemberInput(line);
  std::fill(line.begin(), line.end(), '\0');  // it held the secret
  if (!input.ok()) Fail(input.status().message());
  return *std::move(input);
}

// Commands of the launcher and signals become requests to the worker from here on. Lifetime: what it gets lives as long
// as the process.
void BeginToObey(const caffe::TrainOptions& options, caffe::Requests& requests, EventOutput& output) {
  signal_requests = &requests;
  signal(SIGTERM, OnTerminate);
  signal(SIGINT, SIG_IGN);
  UnblockSignals();
  std::thread(Watch, std::cref(options), std::ref(requests), std::ref(output)).detach();
}

void EmitFigures(const place::Figures& figures, EventOutput& output) {
  std::string line = place::EncodeFigures(figures);
  line.pop_back();  // its end
  output.Emit(launch::Figures{line});
}

caffe::MemberEnvironment EnvironmentOf(const MemberInput& input, caffe::Requests& requests, EventOutput& output) {
  return {.output = output,
          .requests = requests,
          .token = input.token,
          .listening =
              [&](const transport::Address& address) {
                output.Emit(launch::Listening{input.task.listen_host, address.port});
              },
          .joined = [&output] { output.Emit(launch::Joined{}); },
          .saving =
              [&output](bool begins) {
                output.Emit(begins ? launch::Event(launch::Saving{}) : launch::Event(launch::Saved{}));
              },
          .figures = input.task.tells_figures ? place::TellFigures([&output](const place::Figures& figures) { EmitFigures(figures, output); })
                                              : place::TellFigures()};
}

// Lives the member's life to its end. What a library throws becomes a failure with the member's name.
Result<caffe::RunEnd> Live(const caffe::MemberTask& task, const std::string& name,
                           const caffe::MemberEnvironment& environment) {
  try {
    if (!task.server) return caffe::RunWorker(task, environment);
    POSEIDON_RETURN_IF_ERROR(caffe::RunServer(task, environment));
    return caffe::RunEnd{};
  } catch (const std::exception& error) {
    return caffe::EngineFailure(error).WithPrefix(name);
  }
}

// Tells the launcher what went wrong, if anything did, and returns the exit code.
int Report(const Result<caffe::RunEnd>& end, EventOutput& output) {
  if (!end.ok()) {
    const Status& failure = end.status();
    const bool lost = IsMemberLost(failure);
    output.Emit(launch::Failed{
        .message = failure.message(), .culprit = failure.culprit(), .lost = lost, .code = failure.code()});
    return lost ? kExitMemberLost : kExitFailed;
  }
  if (end->not_finite.empty()) return kExitOk;
  output.Emit(launch::Failed{.message = end->not_finite, .culprit = kNoCulprit, .exit = kExitNotFinite});
  return kExitNotFinite;
}

void RunMember() {
  signal(SIGPIPE, SIG_IGN);
  EventOutput output;
  const MemberInput input = ReadInput();
  // What caffe.solver_rank() and solver_count() of a layer in Python say.
  setenv("RANK", std::to_string(input.task.rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(input.task.options.workers).c_str(), 1);
  const auto requests = std::make_unique<caffe::Requests>();
  BeginToObey(input.task.options, *requests, output);
  const std::string name = (input.task.server ? "server " : "worker ") + std::to_string(input.task.rank) + " on host " +
                           input.task.host;
  launch::TellLauncherLastWords(name);
  const int code = Report(Live(input.task, name, EnvironmentOf(input, *requests, output)), output);
  std::cout.flush();
  // The watching thread sits in a read; nothing else is left to do.
  _exit(code);
}

}  // namespace

void AddMember(CLI::App& app) {
  CLI::App* command = app.add_subcommand("member", "One process of a job (started by train)");
  command->group("");  // not for people
  command->callback(RunMember);
}

}  // namespace poseidon::tools
