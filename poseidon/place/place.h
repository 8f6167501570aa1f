// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLACE_PLACE_H_
#define POSEIDON_PLACE_PLACE_H_

#include <map>
#include <optional>
#include <string>

#include "poseidon/base/result.h"

// The place of this process in a job: from arguments, or from the variables that mpirun, srun or torchrun set. Pure
// functions: who calls them reads the environment.
namespace poseidon::place {

using Environment = std::map<std::string, std::string>;

// What the program says by itself. It comes before the environment.
struct Wanted {
  std::optional<int> rank;
  std::optional<int> workers;
  std::string coordinator;  // rank 0's host or address; empty: as the environment says
  int port = 0;             // where rank 0 listens; 0: as the environment says
  std::string listen;       // numeric, of this process; empty: the address from which rank 0's host is reached
};

struct Place {
  std::string launcher;  // "torchrun", "mpirun" or "srun"; empty: none, or the arguments said everything
  int rank = 0;
  int workers = 1;
  std::optional<int> local;  // processes of the job on this host, where that is known
  // Rank 0's host or address as it was said, its numeric address once located (address.h); empty: not known before the
  // processes meet.
  std::string coordinator;
  int port = 0;        // where rank 0 listens; 0: not known
  std::string listen;  // of this process; empty: not known before rank 0's address is
  std::string job;     // differs between two jobs of the launcher; empty: it has no such name

  // Whether all processes are known to be on this host.
  bool one_host() const { return local == workers; }
  friend bool operator==(const Place&, const Place&) = default;
};

// Returns the place that the arguments and the environment say: worker 0 of 1 where they say nothing. Rank 0 listens at
// MASTER_ADDR, and at POSEIDON_PORT or MASTER_PORT; not at the latter where torchrun's own agent does.
// kInvalidArgument names what is no number, out of range, or half said.
Result<Place> FindPlace(const Environment& environment, const Wanted& wanted);

// The number of this process among those of its host, in the words of the launcher that FindPlace finds; nothing where that does not say it.
std::optional<int> LocalRank(const Environment& environment);

// Whether a launcher has started this process, by its variables. RANK and WORLD_SIZE alone are words that others use as
// well.
bool IsLaunched(const Environment& environment);

}  // namespace poseidon::place

#endif  // POSEIDON_PLACE_PLACE_H_
