// SPDX-License-Identifier: Apache-2.0
// The `poseidon` command: one subcommand per file.
#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "tools/commands.h"
#include "tools/console/arguments.h"
#include "tools/console/fail.h"
#include "tools/console/help.h"
#include "tools/console/line_writer.h"
#include "tools/console/stop_signal.h"
#include "tools/console/width.h"
#include "tools/launch/last_words.h"

namespace poseidon::tools {
namespace {

// How long a job that has failed or was asked to stop waits for a reader that takes nothing.
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

// Ends the process with a sentence about an exception that nobody caught, mostly for want of memory.
[[noreturn]] void EndUnhandled() {
  std::string sentence = "ended by an unknown exception";
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    sentence = FailureOf(error).message();
  } catch (...) {
  }
  launch::SayLastWords(sentence);
  _exit(kExitFailed);
}

// The constructors of libraries, of which the compute library's take much memory, run before main and end the process so.
[[noreturn]] void EndBeforeMain() {
  static constexpr char kSentence[] = "poseidon: too little memory to start, expected 512 MB of address space or more (ulimit -v)\n";
  static_cast<void>(!write(STDERR_FILENO, kSentence, sizeof kSentence - 1));
  _exit(kExitFailed);
}

void BeforeLibraries() { std::set_terminate(EndBeforeMain); }

// glibc loads what it unwinds with at its first need, and aborts where it cannot. An exception for want of memory that passes one of
// its frames (pthread_once has one) would be the first need, without memory to load it. So it is loaded at the start.
void LoadUnwinder() {
  void* frame = nullptr;
  static_cast<void>(::backtrace(&frame, 1));
}

// The one list of functions that runs before those constructors.
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)() = BeforeLibraries;

// The lines of a terminal that is wider than most read badly.
std::size_t HelpWidth() { return std::min<std::size_t>(OutputWidth(), 100); }

void AddShell(CLI::App& app) {
  CLI::App* const completion = app.add_subcommand("completion", "Print what completes commands and flags in bash and zsh");
  completion->footer("  source <(poseidon completion)");
  completion->callback([&app] { std::cout << BashCompletion(app); });
  CLI::App* const manual = app.add_subcommand("manual", "Print the manual page");
  manual->footer("  poseidon manual | man -l -");
  manual->callback([&app] { std::cout << ManualPage(app, POSEIDON_VERSION); });
}

// SIGINT, SIGTERM and SIGHUP wait until the command has said what they mean for it.
void HoldSignals() {
  sigset_t ours;
  sigemptyset(&ours);
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ours, s);
  sigprocmask(SIG_BLOCK, &ours, nullptr);
}

int Run(int argc, char** argv) {
  CLI::App app("Train deep networks data-parallel over ordinary Ethernet", "poseidon");
  FormatHelp(app, HelpWidth());
  app.set_help_flag("-h,--help", "Print this help");
  app.set_version_flag("--version", "poseidon " POSEIDON_VERSION, "Print the version");
  AddCommands(app);
  AddShell(app);
  app.footer("  poseidon run -n 2 python train.py\n  poseidon COMMAND --help");
  try {
    std::vector<std::string> arguments = ArgumentsOf(app, argc, argv);
    if (const std::string unknown = UnknownIn(app, arguments); !unknown.empty()) FailUsage(unknown);
    // These receive signals themselves.
    const std::string command = arguments.empty() ? "" : arguments.front();
    const bool receives = command == "train" || command == "member" || command == "run" || command == "rank";
    if (!receives) UnblockSignals();
    std::reverse(arguments.begin(), arguments.end());
    app.parse(arguments);
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const auto called = app.get_subcommands();
    StandardError().Write(std::string("poseidon: ") + error.what() + " (see poseidon " +
                          (called.empty() ? "" : called.front()->get_name() + " ") + "--help)\n");
    return kExitUsage;
  }
  return kExitOk;
}

}  // namespace

int Main(int argc, char** argv) {
  HoldSignals();
  std::set_terminate(EndUnhandled);
  LoadUnwinder();
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {
    StandardError().Write("poseidon: " + FailureOf(error).message() + "\n");
    return kExitFailed;
  }
}

}  // namespace poseidon::tools

int main(int argc, char** argv) { return poseidon::tools::End(poseidon::tools::Main(argc, argv)); }
