// SPDX-License-Identifier: Apache-2.0
#include "poseidon/local/stretches.h"

#include <algorithm>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::local {
namespace {

// A multiple of every dtype's size, so that the stretches of a sum end between two elements.
constexpr std::uint64_t kStretch = 256 * 1024;

struct Walk {
  Executor& executor;
  std::weak_ptr<void> alive;
  std::uint64_t bytes = 0;
  std::function<void(std::uint64_t, std::uint64_t)> work;
  Task done;
};

void Next(const std::shared_ptr<Walk>& walk, std::uint64_t begin) {
  // The memory that `work` reads and writes is lent only as long as the round lives.
  if (walk->alive.expired()) return;
  const std::uint64_t end = std::min(begin + kStretch, walk->bytes);
  if (end > begin) walk->work(begin, end);
  if (end == walk->bytes) return walk->done();
  walk->executor.Post([walk, end] { Next(walk, end); });
}

}  // namespace

void InStretches(Executor& executor, std::weak_ptr<void> alive, std::uint64_t bytes,
                 std::function<void(std::uint64_t, std::uint64_t)> work, Task done) {
  POSEIDON_ASSERT_ON(executor);
  Next(std::make_shared<Walk>(
           Walk{executor, std::move(alive), bytes, std::move(work), std::move(done)}),
       0);
}

}  // namespace poseidon::local
