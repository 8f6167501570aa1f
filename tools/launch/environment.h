// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_ENVIRONMENT_H_
#define POSEIDON_TOOLS_LAUNCH_ENVIRONMENT_H_

#include "poseidon/place/place.h"

namespace poseidon::launch {

using Environment = place::Environment;
// This process's. Thread: any, while none changes it.
Environment OwnEnvironment();

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_ENVIRONMENT_H_
