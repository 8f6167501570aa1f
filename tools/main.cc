// SPDX-License-Identifier: Apache-2.0
// The `poseidon` command: one subcommand per file.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <iostream>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "poseidon/base/listed.h"
#include "tools/commands.h"

namespace poseidon::tools {
namespace {

// Caffe's flags are written with one dash or two: "-solver x" is "--solver x".
std::vector<std::string> WithTwoDashes(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument.size() > 2 && argument[0] == '-' && argument[1] != '-' &&
        std::isalpha(static_cast<unsigned char>(argument[1])) != 0) {
      argument.insert(0, "-");
    }
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

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

// Starts the program again with these settings in its environment, unless it has them; what the
// user has set stays. Before any library starts, since the compute library takes a quarter of a
// second for that, which would be paid twice. Processes that this one starts inherit them.
__attribute__((no_sanitize("address", "undefined"))) void RestartWithComputeSettings(
    int, char** argv, char** environment) {
  std::size_t count = 0;
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

// Ends the process with what it has said. Taking the compute library apart would take a tenth of a
// second for what the kernel does at once; only sanitizers, which look for leaks then, wait for it.
int End(int code) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  _exit(code);
#endif
  return code;
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

// Memory that runs out in a thread of its own reaches nobody who could say so: the process ends here, with the
// sentence that the user is owed. Takes no memory.
[[noreturn]] void EndInOneSentence() {
  const auto say = [](std::string_view text) {
    static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
  };
  say("poseidon: ");
  try {
    if (std::current_exception()) std::rethrow_exception(std::current_exception());
    say("ended unexpectedly");
  } catch (const std::bad_alloc&) {
    say("out of memory");
  } catch (const std::exception& error) {
    const std::string_view what = error.what();
    say(what.substr(0, what.find('\n')));
  } catch (...) {
    say("ended unexpectedly");
  }
  say("\n");
  _exit(kExitFailed);
}

}  // namespace

int Main(int argc, char** argv) {
  std::set_terminate(EndInOneSentence);
  KeepTheHeap();
  CLI::App app("Trains deep networks data-parallel over ordinary Ethernet.", "poseidon");
  app.require_subcommand(1);
  AddTrain(app);
  AddTest(app);
  AddTime(app);
  AddPlan(app);
  AddProfile(app);
  AddDeviceQuery(app);
  AddConvertMnist(app);
  AddMember(app);
  try {
    std::vector<std::string> arguments = WithTwoDashes(argc, argv);
    RefuseUnknownCommand(app, arguments);
    std::reverse(arguments.begin(), arguments.end());
    app.parse(arguments);
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::cerr << "poseidon: " << error.what() << " (see poseidon --help)" << std::endl;
    return kExitFailed;
  } catch (const std::bad_alloc&) {
    std::cerr << "poseidon: out of memory" << std::endl;
    return kExitFailed;
  } catch (const std::exception& error) {
    std::cerr << "poseidon: " << error.what() << std::endl;
    return kExitFailed;
  }
  return kExitOk;
}

}  // namespace poseidon::tools

int main(int argc, char** argv) { return poseidon::tools::End(poseidon::tools::Main(argc, argv)); }
