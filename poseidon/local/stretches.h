// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_LOCAL_STRETCHES_H_
#define POSEIDON_LOCAL_STRETCHES_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "poseidon/base/executor.h"

namespace poseidon::local {

// Calls work(begin, end) for [0, bytes) in stretches of 256 KiB, one task of `executor` each, so that
// the network is served between two; then `done`. The first stretch, and all of a short whole, within
// the call. When `alive` is gone it stops and never calls `done`. Thread: the executor's.
void InStretches(Executor& executor, std::weak_ptr<void> alive, std::uint64_t bytes,
                 std::function<void(std::uint64_t, std::uint64_t)> work, Task done);

}  // namespace poseidon::local

#endif  // POSEIDON_LOCAL_STRETCHES_H_
