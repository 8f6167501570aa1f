// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLACE_ENVIRONMENT_H_
#define POSEIDON_PLACE_ENVIRONMENT_H_

#include "poseidon/place/place.h"

namespace poseidon::place {

// This process's. Thread: any, while none changes it.
Environment OwnEnvironment();

}  // namespace poseidon::place

#endif  // POSEIDON_PLACE_ENVIRONMENT_H_
