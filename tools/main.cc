// SPDX-License-Identifier: Apache-2.0
// The `poseidon` command: one subcommand per file.
#include <malloc.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "poseidon/base/exception.h"
#include "poseidon/base/listed.h"
#include "tools/arguments.h"
#include "tools/commands.h"
#include "tools/line_writer.h"
#include "tools/signals.h"

namespace poseidon::tools {
namespace {

// Idle threads of the compute library must sleep, not spin: beside a busy neighbour a spinning
// two-thread product is a hundred times slower. And its products must have the same bits in every
// process. Both are read from the environment when the library loads, before main.
const char kMark[] = "POSEIDON_COMPUTE_SETTINGS=1";
const char* const kComputeSettings[] = {kMark, "OMP_WAIT_POLICY=passive", "MKL_CBWR=AUTO,STRICT"};

// Whether `entry` of an environment has the name that `setting` has. (No library has started yet,
// the sanitizers' neither: strncmp might be theirs.)
__attribute__((no_sanitize("address", "undefined"))) bool SameName(const char* entry,
                                                                   const char* setting) {
  while (*entry == *setting && *entry != '=' && *entry != '\0') ++entry, ++setting;
  return *entry == '=' && *setting == '=';
}

// Keeps SIGINT, SIGTERM and SIGHUP until main knows what they mean for this command (signals.h): what
// is blocked stays so, and what has come stays there, when the program starts again.
__attribute__((no_sanitize("address", "undefined"))) void BlockSignals() {
  unsigned long ours = 0;
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) ours |= 1UL << (s - 1);
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &ours, nullptr, sizeof(ours));
}

// Starts the program again with these settings in its environment, unless it has them; what the
// user has set stays. Before any library starts, since the compute library takes a quarter of a
// second for that, which would be paid twice. Processes that this one starts inherit them.
__attribute__((no_sanitize("address", "undefined"))) void RestartWithComputeSettings(
    int, char** argv, char** environment) {
  std::size_t count = 0;
  BlockSignals();
  for (; environment[count] != nullptr; ++count) {
    if (SameName(environment[count], kMark)) return;
  }
  const char** const with = static_cast<const char**>(
      __builtin_alloca((count + std::size(kComputeSettings) + 1) * sizeof(char*)));
  std::size_t all = 0;
  for (; all < count; ++all) with[all] = environment[all];
  for (const char* setting : kComputeSettings) {
    bool is_set = false;
    for (std::size_t i = 0; i < count; ++i) is_set |= SameName(environment[i], setting);
    if (!is_set) with[all++] = setting;
  }
  with[all] = nullptr;
  execve("/proc/self/exe", argv, const_cast<char**>(with));
  // Without /proc everything works, only slower.
}
[[gnu::section(".preinit_array"),
  gnu::used]] void (*const kBeforeLibraries)(int, char**, char**) = RestartWithComputeSettings;

// What a reader who takes nothing gets of a job that has failed or was asked to stop.
constexpr std::chrono::seconds kPatience{2};

// Ends the process with what it has said. After success it waits for a paused terminal, until a
// signal says that nobody needs the words. Taking the compute library apart would take a tenth of a
// second for what the kernel does at once; only sanitizers, which look for leaks then, wait for it.
int End(int code) {
  if (code == kExitOk) {
    DrainStandardStreams([] { return StopSignal() != 0; });
  }
  if (code != kExitOk || StopSignal() != 0) DrainStandardStreams(kPatience);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  _exit(code);
#endif
  return code;
}

// What a thread threw and nobody caught, mostly for want of memory: a sentence and an end.
[[noreturn]] void EndUnhandled() {
  std::string sentence = "ended by an unknown exception";
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    sentence = ThrownStatus(error).message();
  } catch (...) {
  }
  SayLastWords(sentence);
  _exit(kExitFailed);
}

// The library would say that a subcommand is missing.
void RefuseUnknownCommand(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front().starts_with('-')) return;
  std::string known;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == arguments.front()) return;
    if (command->get_group().empty()) continue;
    AddListed(command->get_name(), &known);
  }
  Fail("unknown command '" + arguments.front() + "', expected one of " + known);
}

// Every iteration takes and frees the same blocks. Left alone, the C library gives the top of the
// heap back whenever nothing happens to lie above it, and the kernel clears it anew each time: a
// third of a step of LeNet.
void KeepTheHeap() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 16 << 20);
}

int Run(int argc, char** argv) {
  CLI::App app("Trains deep networks data-parallel over ordinary Ethernet.", "poseidon");
  app.require_subcommand(1);
  app.set_version_flag("--version", "poseidon " POSEIDON_VERSION, "Print the version");
  AddTrain(app);
  AddTest(app);
  AddTime(app);
  AddPlan(app);
  AddProfile(app);
  AddDeviceQuery(app);
  AddConvertMnist(app);
  AddMember(app);
  try {
    std::vector<std::string> arguments = ArgumentsOf(app, argc, argv);
    RefuseUnknownCommand(app, arguments);
    // These two receive signals themselves.
    const bool receives = !arguments.empty() && (arguments[0] == "train" || arguments[0] == "member");
    if (!receives) LeaveSignalsToTheSystem();
    std::reverse(arguments.begin(), arguments.end());
    app.parse(arguments);
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    StandardError().Write(std::string("poseidon: ") + error.what() + " (see poseidon --help)\n");
    return kExitFailed;
  }
  return kExitOk;
}

}  // namespace

int Main(int argc, char** argv) {
  KeepTheHeap();
  std::set_terminate(EndUnhandled);
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {
    StandardError().Write("poseidon: " + ThrownStatus(error).message() + "\n");
    return kExitFailed;
  }
}

}  // namespace poseidon::tools

int main(int argc, char** argv) { return poseidon::tools::End(poseidon::tools::Main(argc, argv)); }
