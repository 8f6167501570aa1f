// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_EXCEPTION_H_
#define POSEIDON_BASE_EXCEPTION_H_

#include <exception>

#include "poseidon/base/status.h"

namespace poseidon {

// A failure that a library threw, as one sentence: kResourceExhausted where memory was missing,
// whatever the library's words for it; else kInternal with the first line of what it says.
Status ThrownStatus(const std::exception& error);

}  // namespace poseidon

#endif  // POSEIDON_BASE_EXCEPTION_H_
