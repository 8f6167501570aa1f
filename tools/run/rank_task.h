// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_RUN_RANK_TASK_H_
#define POSEIDON_TOOLS_RUN_RANK_TASK_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace poseidon::tools {

// One rank of `poseidon run`, as its launcher sends it. The token travels beside it.
struct RankTask {
  std::string name;  // "rank 2 on host b"
  int rank = 0;
  int workers = 1;
  int local_rank = 0;     // among those of its host
  int local_workers = 1;  // on its host
  int node = 0;           // number of its host
  std::string host;       // as the user calls it; empty where no hosts were named
  std::string address;    // numeric, of its host
  std::uint16_t port = 0;  // MASTER_PORT; 0: rank 0 takes a free one
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment;  // beside what the host's own is
  bool draws_output = false;  // standard output is a terminal of `columns`
  bool draws_errors = false;  // standard error
  int columns = 0;
  bool tells_figures = false;  // how its command does travels too (poseidon/place/figures.h)
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankTask, name, rank, workers, local_rank, local_workers, node, host, address, port,
                                   argv, environment, draws_output, draws_errors, columns, tells_figures)

// Where the ranks of a job meet, as rank 0 has found out on its host.
struct MeetingPlace {
  std::string host;                // MASTER_ADDR
  std::uint16_t port = 0;          // MASTER_PORT: for the framework's own process group
  std::uint16_t poseidon_port = 0;  // for ours, so that a script may use both
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MeetingPlace, host, port, poseidon_port)

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_RUN_RANK_TASK_H_
