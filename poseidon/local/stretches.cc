// SPDX-License-Identifier: Apache-2.0
#include "poseidon/local/stretches.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::local {
namespace {

// A multiple of every dtype's size, so that the stretches of a sum end between two elements.
constexpr std::uint64_t kStretch = 256 * 1024;

struct Walk {
  Executor& executor;
  std::weak_ptr<void> alive;
  std::vector<ByteRange> ranges;
  std::size_t next = 0;  // of them
  Work work;
  Task done;
};

void Next(const std::shared_ptr<Walk>& walk) {
  // The memory that `work` reads and writes is lent only as long as the round lives.
  if (walk->alive.expired()) return;
  std::uint64_t left = kStretch;
  while (left > 0 && walk->next < walk->ranges.size()) {
    ByteRange& range = walk->ranges[walk->next];
    const std::uint64_t end = std::min(range.begin + left, range.end);
    if (end > range.begin) walk->work(range.begin, end);
    left -= end - range.begin;
    range.begin = end;
    if (end == range.end) ++walk->next;
  }
  if (walk->next == walk->ranges.size()) return walk->done();
  walk->executor.Post([walk] { Next(walk); });
}

}  // namespace

std::uint64_t BytesIn(const std::vector<ByteRange>& ranges) {
  std::uint64_t bytes = 0;
  for (const ByteRange& range : ranges) bytes += range.end - range.begin;
  return bytes;
}

Work Copy(const std::byte* from, std::byte* to) {
  return [from, to](std::uint64_t begin, std::uint64_t end) { std::memcpy(to + begin, from + begin, end - begin); };
}

Work CopyBoth(std::uint64_t middle, const std::byte* from_u, const std::byte* from_v, std::byte* to_u, std::byte* to_v) {
  return [=](std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t cut = std::clamp(middle, begin, end);
    if (begin < cut) std::memcpy(to_u + begin, from_u + begin, cut - begin);
    if (cut < end) std::memcpy(to_v + (cut - middle), from_v + (cut - middle), end - cut);
  };
}

void InStretches(Executor& executor, std::weak_ptr<void> alive, std::vector<ByteRange> ranges,
                 Work work, Task done) {
  POSEIDON_ASSERT_ON(executor);
  Next(std::make_shared<Walk>(Walk{executor, std::move(alive), std::move(ranges), 0, std::move(work), std::move(done)}));
}

}  // namespace poseidon::local
