// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLACE_ENVIRONMENT_H_
#define POSEIDON_PLACE_ENVIRONMENT_H_

#include "poseidon/place/place.h"

namespace poseidon::place {

// The variables of a process, of its "NAME=value" entries up to a null: what <unistd.h> declares as a process's own.
Environment VariablesOf(const char* const* entries);

}  // namespace poseidon::place

#endif  // POSEIDON_PLACE_ENVIRONMENT_H_
