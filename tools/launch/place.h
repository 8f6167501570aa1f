// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_PLACE_H_
#define POSEIDON_TOOLS_LAUNCH_PLACE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "poseidon/base/result.h"

namespace poseidon::launch {

using Environment = std::map<std::string, std::string>;
// This process's.
Environment OwnEnvironment();

// The place of this process among those that mpirun, srun or torchrun started, as they say it in
// the environment.
struct Place {
  std::string launcher;  // "mpirun", for people
  int rank = 0;
  int size = 1;
  int local_size = 1;     // processes on this host; 1 where it is not said
  bool one_host = false;  // all of them are on this host
  // Where rank 0 is to listen. Without it rank 0 listens anywhere and leaves a note.
  std::string master_host;
  std::uint16_t master_port = 0;
  std::string job;  // differs between two jobs of one launcher; empty where the launcher has no such name
  friend bool operator==(const Place&, const Place&) = default;
};

// nullopt where no launcher has started this process, or none for more than this one.
// kInvalidArgument naming a variable that is no number or out of range.
Result<std::optional<Place>> PlaceIn(const Environment& environment);

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_PLACE_H_
