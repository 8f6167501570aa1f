// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_SEGMENT_COUNTS_H_
#define POSEIDON_TRANSPORT_TCP_SEGMENT_COUNTS_H_

#include <cstdint>

namespace poseidon::transport::tcp {

// What the system knows of a connection's segments: the bytes of a full one, and how many have been lost so far: sent again, and not
// reported as there already. Zeros where it says nothing.
struct SegmentCounts {
  std::uint32_t bytes = 0;
  std::uint32_t lost = 0;
};
SegmentCounts CountsOf(int fd);

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_SEGMENT_COUNTS_H_
