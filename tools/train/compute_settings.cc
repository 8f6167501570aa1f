// SPDX-License-Identifier: Apache-2.0
// Settings that the trainer makes before its libraries load, and before it allocates.
#include <malloc.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <iterator>

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

// Keeps SIGINT, SIGTERM and SIGHUP until main knows what they mean for this command (console/signals.h): what
// is blocked stays so, and what has come stays there, when the program starts again.
__attribute__((no_sanitize("address", "undefined"))) void BlockSignals() {
  unsigned long ours = 0;
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) ours |= 1UL << (s - 1);
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &ours, nullptr, sizeof(ours));
}

// Commands that become or start somebody else's, whose environment is the user's.
const char* const kOthersCommands[] = {"run", "rank", "doctor", "demo", "compare"};

__attribute__((no_sanitize("address", "undefined"))) bool RunsAnotherCommand(char** argv) {
  if (argv[0] == nullptr || argv[1] == nullptr) return false;
  for (const char* name : kOthersCommands) {
    const char* word = argv[1];
    while (*word == *name && *word != '\0') ++word, ++name;
    if (*word == *name) return true;
  }
  return false;
}

// Starts the program again with these settings in its environment, unless it has them; what the
// user has set stays. Before any library starts, since the compute library takes a quarter of a
// second for that, which would be paid twice. Processes that this one starts inherit them.
__attribute__((no_sanitize("address", "undefined"))) void RestartWithComputeSettings(
    int, char** argv, char** environment) {
  std::size_t count = 0;
  BlockSignals();
  if (RunsAnotherCommand(argv)) return;
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

// Every iteration takes and frees the same blocks. By default the C library gives the top of the
// heap back whenever its last block is freed, and the kernel clears those pages anew each time: a
// third of a step of LeNet.
__attribute__((constructor)) void KeepTheHeap() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 16 << 20);
}

}  // namespace
}  // namespace poseidon::tools
