// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_LOCAL_STRETCHES_H_
#define POSEIDON_LOCAL_STRETCHES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "poseidon/base/executor.h"

namespace poseidon::local {

// The bytes [begin, end).
struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};
std::uint64_t BytesIn(const std::vector<ByteRange>& ranges);

// What is to be done with the bytes [begin, end).
using Work = std::function<void(std::uint64_t, std::uint64_t)>;
// Copies them.
Work Copy(const std::byte* from, std::byte* to);
// Copies them where the first `middle` bytes have another place than those behind: at both ends, u and v.
Work CopyBoth(std::uint64_t middle, const std::byte* from_u, const std::byte* from_v, std::byte* to_u, std::byte* to_v);

// Calls work(begin, end) for all of `ranges` in stretches of 256 KiB together, one task of `executor` each, so that
// the network is served between two; then `done`. The first stretch, and all of short ones, within
// the call. When `alive` is gone it stops and never calls `done`. Thread: the executor's.
void InStretches(Executor& executor, std::weak_ptr<void> alive, std::vector<ByteRange> ranges,
                 Work work, Task done);

}  // namespace poseidon::local

#endif  // POSEIDON_LOCAL_STRETCHES_H_
