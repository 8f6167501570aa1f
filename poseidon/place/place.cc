// SPDX-License-Identifier: Apache-2.0
#include "poseidon/place/place.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <limits>
#include <utility>

namespace poseidon::place {
namespace {

// Empty where the variable is not set.
const std::string& Value(const Environment& environment, const std::string& name) {
  static const std::string kNothing;
  const auto found = environment.find(name);
  return found == environment.end() ? kNothing : found->second;
}

bool IsSet(const Environment& environment, const std::string& name) { return !Value(environment, name).empty(); }

const std::string& FirstValue(const Environment& environment, std::initializer_list<const char*> names) {
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
  if (error != std::errc() || end != text.data() + text.size() || value < bounds.least || value > bounds.most) {
    return InvalidArgument("environment variable " + name + " is '" + text + "', expected a number from " +
                           std::to_string(bounds.least) + " to " + std::to_string(bounds.most));
  }
  return value;
}

// How one launcher says it.
struct Dialect {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_size;  // of the processes on this host
  const char* local_rank;  // among them
};

constexpr Dialect kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK"};
constexpr Dialect kOpenMpi{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_RANK"};
// The variables of a Slurm step come before those of its allocation.
constexpr Dialect kSlurmStep{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "", "SLURM_LOCALID"};
constexpr Dialect kSlurm{"srun", "SLURM_PROCID", "SLURM_NTASKS", "", "SLURM_LOCALID"};
constexpr Dialect kHydra{"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"};

bool IsOfSlurm(const Dialect& dialect) { return &dialect == &kSlurmStep || &dialect == &kSlurm; }

// Whether the dialect says what the arguments leave open.
bool Speaks(const Environment& environment, const Wanted& wanted, const Dialect& dialect) {
  return (wanted.rank || IsSet(environment, dialect.rank)) && (wanted.workers || IsSet(environment, dialect.size));
}

// RANK and WORLD_SIZE are plain words. Beside them stands where to meet, or how many processes are here.
bool IsPlainlyTorchrun(const Environment& environment, const Wanted& wanted) {
  return wanted.port != 0 || !wanted.coordinator.empty() ||
         !FirstValue(environment, {"LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "POSEIDON_PORT"}).empty();
}

// The one process of a batch script inherits numbers that are meant for the steps it will start.
bool IsBatchScript(const Environment& environment) {
  return Value(environment, "ENVIRONMENT") == "BATCH" &&
         FirstValue(environment, {"SLURM_STEP_ID", "SLURM_STEPID"}).empty();
}

// The innermost first: torchrun runs under srun, mpirun under srun, and not the other way round.
const Dialect* DialectOf(const Environment& environment, const Wanted& wanted) {
  if (IsPlainlyTorchrun(environment, wanted) && Speaks(environment, wanted, kTorchrun)) return &kTorchrun;
  for (const Dialect* dialect : {&kOpenMpi, &kSlurmStep, &kSlurm, &kHydra, &kTorchrun}) {
    if (IsOfSlurm(*dialect) && IsBatchScript(environment)) continue;
    if (Speaks(environment, wanted, *dialect)) return dialect;
  }
  return nullptr;
}

// Where no dialect says everything: whether one says a part.
Status CheckHalfSaid(const Environment& environment) {
  for (const auto& [one, other] : {std::pair("RANK", "WORLD_SIZE"), std::pair("WORLD_SIZE", "RANK")}) {
    if (IsSet(environment, one)) {
      return InvalidArgument("environment variable " + std::string(one) + " is set and " + other +
                             " is not, expected both or neither");
    }
  }
  if (!IsSet(environment, "PMIX_RANK")) return OkStatus();
  return InvalidArgument(
      "environment variable PMIX_RANK is set and nothing says how many processes there are, expected RANK and "
      "WORLD_SIZE, or rank= and workers=");
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
    if (error != std::errc() || tasks < 1) return 1;
    if (rest + 2 < stop && rest[0] == '(' && rest[1] == 'x') std::from_chars(rest + 2, stop, nodes);
    if (nodes < 1 || node - first < nodes) return tasks;
    first += nodes;
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

// 1 where Slurm does not say how many tasks are on this host.
int SlurmLocalSize(const Environment& environment, int workers) {
  if (IsOneSlurmNode(environment)) return workers;
  const std::string& tasks = FirstValue(environment, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (!IsSet(environment, "SLURM_NODEID")) return SlurmTasksOfNode(tasks, 0);
  const Result<int> node = NumberIn(environment, "SLURM_NODEID", {});
  return node.ok() ? SlurmTasksOfNode(tasks, *node) : 1;
}

// How many processes of the job are on this host. `dialect` is nullptr where the arguments say everything.
Result<std::optional<int>> LocalSize(const Environment& environment, const Dialect* dialect, const Wanted& wanted,
                                     int workers) {
  // Of a job of one process there are no others here, whatever an outer launcher's words say.
  if (dialect != nullptr && !wanted.workers && workers == 1) return std::optional<int>(1);
  // Nobody reaches rank 0 on loopback from another host.
  if (dialect != nullptr && wanted.coordinator.empty() && IsLoopbackName(Value(environment, "MASTER_ADDR"))) {
    return std::optional<int>(workers);
  }
  if (dialect != nullptr && IsOfSlurm(*dialect)) return std::optional<int>(SlurmLocalSize(environment, workers));
  const std::string name = (dialect != nullptr ? *dialect : kTorchrun).local_size;
  if (!IsSet(environment, name)) return std::optional<int>();
  // A program that names its workers may have fewer than its launcher started.
  const bool bounded = dialect != nullptr && !wanted.workers;
  POSEIDON_ASSIGN_OR_RETURN(const int local,
                            NumberIn(environment, name, bounded ? Bounds{1, workers} : Bounds{.least = 1}));
  return std::optional<int>(local);
}

Result<int> PortOf(const Environment& environment) {
  // `poseidon run` keeps MASTER_PORT for the framework's own process group.
  if (IsSet(environment, "POSEIDON_PORT")) return NumberIn(environment, "POSEIDON_PORT", {0, 65535});
  // Under torchrun its own agent may be what listens at that port.
  const bool agent = Value(environment, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (agent || !IsSet(environment, "MASTER_PORT")) return 0;
  return NumberIn(environment, "MASTER_PORT", {0, 65535});
}

std::string Joined(const Environment& environment, std::initializer_list<const char*> names) {
  std::string joined;
  for (const char* name : names) {
    const std::string& value = Value(environment, name);
    if (!value.empty()) joined += (joined.empty() ? "" : "-") + value;
  }
  return joined;
}

std::string JobOf(const Environment& environment, const Dialect& dialect) {
  if (&dialect == &kTorchrun) {
    return Joined(environment,
                  {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"});
  }
  if (IsOfSlurm(dialect)) return Joined(environment, {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"});
  return FirstValue(environment, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"});
}

Result<int> WorkersOf(const Environment& environment, const Dialect* dialect, const Wanted& wanted) {
  if (wanted.workers && *wanted.workers < 1) {
    return InvalidArgument("workers is " + std::to_string(*wanted.workers) + ", expected at least 1");
  }
  if (wanted.workers) return *wanted.workers;
  return dialect != nullptr ? NumberIn(environment, dialect->size, {.least = 1}) : Result<int>(1);
}

Result<int> RankOf(const Environment& environment, const Dialect* dialect, const Wanted& wanted, int workers) {
  if (wanted.rank && (*wanted.rank < 0 || *wanted.rank >= workers)) {
    return InvalidArgument("the rank is " + std::to_string(*wanted.rank) + ", expected 0 to " +
                           std::to_string(workers - 1));
  }
  if (wanted.rank) return *wanted.rank;
  return dialect != nullptr ? NumberIn(environment, dialect->rank, {0, workers - 1}) : Result<int>(0);
}

}  // namespace

Result<Place> FindPlace(const Environment& environment, const Wanted& wanted) {
  const bool said = wanted.rank && wanted.workers;
  const Dialect* const dialect = said ? nullptr : DialectOf(environment, wanted);
  if (!said && dialect == nullptr) POSEIDON_RETURN_IF_ERROR(CheckHalfSaid(environment));
  Place place{.coordinator = wanted.coordinator, .port = wanted.port, .listen = wanted.listen};
  POSEIDON_ASSIGN_OR_RETURN(place.workers, WorkersOf(environment, dialect, wanted));
  POSEIDON_ASSIGN_OR_RETURN(place.rank, RankOf(environment, dialect, wanted, place.workers));
  POSEIDON_ASSIGN_OR_RETURN(place.local, LocalSize(environment, dialect, wanted, place.workers));
  if (place.coordinator.empty()) place.coordinator = Value(environment, "MASTER_ADDR");
  if (place.port == 0) {
    POSEIDON_ASSIGN_OR_RETURN(place.port, PortOf(environment));
  }
  if (dialect != nullptr) {
    place.launcher = dialect->launcher;
    place.job = JobOf(environment, *dialect);
  }
  return place;
}

std::optional<int> LocalRank(const Environment& environment) {
  const Dialect* const dialect = DialectOf(environment, {});
  if (dialect == nullptr) return std::nullopt;
  const Result<int> rank = NumberIn(environment, dialect->local_rank, {});
  return rank.ok() ? std::optional(*rank) : std::nullopt;
}

bool IsLaunched(const Environment& environment) {
  const Dialect* const dialect = DialectOf(environment, {});
  return dialect != nullptr && (dialect != &kTorchrun || IsPlainlyTorchrun(environment, {}));
}

}  // namespace poseidon::place
