// SPDX-License-Identifier: Apache-2.0
// The `poseidon` command: one subcommand per file.
#include <malloc.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iostream>
#include <string>
#include <unistd.h>
#include <vector>

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
void RestartWithComputeSettings(char** argv) {
  if (std::getenv("POSEIDON_COMPUTE_SETTINGS") != nullptr) return;
  setenv("POSEIDON_COMPUTE_SETTINGS", "1", 1);
  setenv("OMP_WAIT_POLICY", "passive", 0);
  setenv("MKL_CBWR", "AUTO,STRICT", 0);
  execv("/proc/self/exe", argv);
  // Without /proc everything works, only slower.
}

// The library would say that a subcommand is missing.
void RefuseUnknownCommand(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front().starts_with('-')) return;
  std::string known;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == arguments.front()) return;
    if (command->get_group().empty()) continue;
    known += (known.empty() ? "" : ", ") + command->get_name();
  }
  Fail("unknown command '" + arguments.front() + "', expected one of " + known);
}

// Every iteration takes and frees the same blocks. Left alone, the C library gives the top of the heap
// back whenever nothing happens to lie above it, and the kernel clears it anew each time: a third of a
// step of LeNet.
void KeepTheHeap() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 16 << 20);
}

}  // namespace

void Fail(const std::string& sentence, int code) {
  std::cerr << "poseidon: " << sentence << std::endl;
  throw CLI::RuntimeError(code);
}

int Main(int argc, char** argv) {
  RestartWithComputeSettings(argv);
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
  }
  return kExitOk;
}

}  // namespace poseidon::tools

int main(int argc, char** argv) { return poseidon::tools::Main(argc, argv); }
