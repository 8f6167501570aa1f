// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_MEMORY_FILE_H_
#define POSEIDON_TOOLS_LAUNCH_MEMORY_FILE_H_

#include <string>

#include "poseidon/base/result.h"

// A file without a name, for what a child reads or writes by a path: it lives as long as its descriptor, or this process.
namespace poseidon::launch {

// Its descriptor, which exec closes. It opens for this user alone. kResourceExhausted.
Result<int> FileInMemory(const std::string& name);

// The path below /proc by which this user's processes open it.
std::string PathOf(int fd);

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_MEMORY_FILE_H_
