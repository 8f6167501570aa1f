// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_KV_STALENESS_H_
#define POSEIDON_KV_STALENESS_H_

#include <algorithm>
#include <cstdint>
#include <span>

// The rule when a round is complete, as pure functions of who has arrived. A rank's clock counts the
// steps whose contribution it has delivered in full. Full synchrony (BSP) is staleness 0.
// Bounded staleness: Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel
// Parameter Server", NIPS 2013.
namespace poseidon::kv {

// How many steps every rank has delivered. Pre: at least one clock.
inline std::uint64_t CompleteClock(std::span<const std::uint64_t> clocks) {
  return *std::min_element(clocks.begin(), clocks.end());
}

// True when a worker that has delivered `reader_clock` steps may read and go on: every update of the
// steps before reader_clock - staleness is in.
inline bool MayRead(std::span<const std::uint64_t> clocks, std::uint64_t reader_clock,
                    std::uint64_t staleness) {
  return CompleteClock(clocks) + staleness >= reader_clock;
}

}  // namespace poseidon::kv

#endif  // POSEIDON_KV_STALENESS_H_
