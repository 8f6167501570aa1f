// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/place.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <vector>

extern char** environ;

namespace poseidon::launch {
namespace {

// Empty where the variable is not set.
const std::string& Value(const Environment& environment, const std::string& name) {
  static const std::string kNothing;
  const auto found = environment.find(name);
  return found == environment.end() ? kNothing : found->second;
}

const std::string& FirstValue(const Environment& environment,
                              std::initializer_list<const char*> names) {
  const std::string* value = nullptr;
  for (const char* name : names) {
    value = &Value(environment, name);
    if (!value->empty()) break;
  }
  return *value;
}

struct Bounds {
  int least = 0;
  int most = std::numeric_limits<int>::max();
};

Result<int> NumberIn(const Environment& environment, const std::string& name, Bounds bounds) {
  const std::string& text = Value(environment, name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < bounds.least ||
      value > bounds.most) {
    return InvalidArgument("environment variable " + name + " is '" + text +
                           "', expected a number from " + std::to_string(bounds.least) + " to " +
                           std::to_string(bounds.most) +
                           "; give --workers to train without the launcher's environment");
  }
  return value;
}

// How one launcher says it.
struct Dialect {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_size;  // of the processes on this host
};

constexpr Dialect kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"};
constexpr Dialect kOpenMpi{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_SIZE"};
// The variables of a Slurm step come before those of its allocation.
constexpr Dialect kSlurmStep{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ""};
constexpr Dialect kSlurm{"srun", "SLURM_PROCID", "SLURM_NTASKS", ""};
constexpr Dialect kHydra{"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"};

bool Speaks(const Environment& environment, const Dialect& dialect) {
  return !Value(environment, dialect.rank).empty() && !Value(environment, dialect.size).empty();
}

// The one process of a batch script inherits numbers that are meant for the steps it will start.
bool IsBatchScript(const Environment& environment) {
  return Value(environment, "ENVIRONMENT") == "BATCH" &&
         FirstValue(environment, {"SLURM_STEP_ID", "SLURM_STEPID"}).empty();
}

// The innermost first: torchrun runs under srun, mpirun under srun, and not the other way round.
const Dialect* DialectOf(const Environment& environment) {
  if (Speaks(environment, kTorchrun) && !Value(environment, "MASTER_ADDR").empty()) {
    return &kTorchrun;
  }
  if (Speaks(environment, kOpenMpi)) return &kOpenMpi;
  if (!IsBatchScript(environment)) {
    if (Speaks(environment, kSlurmStep)) return &kSlurmStep;
    if (Speaks(environment, kSlurm)) return &kSlurm;
  }
  return Speaks(environment, kHydra) ? &kHydra : nullptr;
}

bool IsLoopbackName(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// Entry `node` of Slurm's "4(x2),3", the tasks of each node; 1 where there is no such entry.
int SlurmTasksOfNode(const std::string& text, int node) {
  int first = 0;  // node of the entry
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const char* const stop = text.data() + end;
    int tasks = 0;
    int nodes = 1;
    const auto [rest, error] = std::from_chars(text.data() + begin, stop, tasks);
    if (error != std::errc()) return 1;
    if (rest + 2 < stop && rest[0] == '(' && rest[1] == 'x') std::from_chars(rest + 2, stop, nodes);
    first += nodes;
    if (node < first) return tasks;
    begin = end + 1;
  }
  return 1;
}

// A list of one host has neither commas nor ranges.
bool IsOneSlurmNode(const Environment& environment) {
  const std::string& nodes =
      FirstValue(environment, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  return !nodes.empty() && nodes.find_first_of(",[") == std::string::npos;
}

void CountSlurmTasks(const Environment& environment, Place* place) {
  if (IsOneSlurmNode(environment)) {
    place->local_size = place->size;
    return;
  }
  const Result<int> node = NumberIn(environment, "SLURM_NODEID", {});
  place->local_size = SlurmTasksOfNode(
      FirstValue(environment, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}),
      node.ok() ? *node : 0);
}

std::string Joined(const Environment& environment, const std::vector<const char*>& names) {
  std::string joined;
  for (const char* name : names) {
    const std::string& value = Value(environment, name);
    if (!value.empty()) joined += (joined.empty() ? "" : "-") + value;
  }
  return joined;
}

std::string JobOf(const Environment& environment, const Dialect& dialect) {
  if (&dialect == &kTorchrun) {
    return Joined(environment, {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT",
                                "TORCHELASTIC_RESTART_COUNT"});
  }
  if (&dialect == &kSlurm || &dialect == &kSlurmStep) {
    return Joined(environment, {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"});
  }
  return FirstValue(environment, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"});
}

}  // namespace

Environment OwnEnvironment() {
  Environment own;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) own[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return own;
}

Result<std::optional<Place>> PlaceIn(const Environment& environment) {
  const Dialect* const dialect = DialectOf(environment);
  if (dialect == nullptr) return std::optional<Place>();
  Place place{.launcher = dialect->launcher};
  POSEIDON_ASSIGN_OR_RETURN(place.size, NumberIn(environment, dialect->size, {.least = 1}));
  if (place.size == 1) return std::optional<Place>();
  POSEIDON_ASSIGN_OR_RETURN(place.rank,
                            NumberIn(environment, dialect->rank, {0, place.size - 1}));
  if (dialect == &kSlurm || dialect == &kSlurmStep) {
    CountSlurmTasks(environment, &place);
  } else if (!Value(environment, dialect->local_size).empty()) {
    POSEIDON_ASSIGN_OR_RETURN(
        place.local_size,
        NumberIn(environment, dialect->local_size, {.least = 1, .most = place.size}));
  }
  const std::string& master = Value(environment, "MASTER_ADDR");
  if (IsLoopbackName(master)) place.local_size = place.size;
  place.one_host = place.local_size == place.size;
  // Under torchrun its own agent may be what listens at that port.
  if (!master.empty() && !Value(environment, "MASTER_PORT").empty() &&
      Value(environment, "TORCHELASTIC_USE_AGENT_STORE") != "True") {
    POSEIDON_ASSIGN_OR_RETURN(const int port, NumberIn(environment, "MASTER_PORT", {1, 65535}));
    place.master_host = master;
    place.master_port = static_cast<std::uint16_t>(port);
  }
  place.job = JobOf(environment, *dialect);
  return std::optional<Place>(std::move(place));
}

}  // namespace poseidon::launch
