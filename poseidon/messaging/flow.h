// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_MESSAGING_FLOW_H_
#define POSEIDON_MESSAGING_FLOW_H_

#include <cstddef>
#include <cstdint>

namespace poseidon::messaging {

// How many bytes are committed to a connection at a time. Committed bytes cannot be overtaken by a more
// urgent layer; too few leave the link idle.
struct Flow {
  std::size_t chunk_bytes = 256 * 1024;  // of one data frame
  std::size_t write_bytes =
      256 * 1024;                     // of one gathered write, after which the queue is looked at
  std::size_t send_buffer_bytes = 0;  // that the system may hold undelivered; 0: as it is
  // Of a contribution to a slice, that leave before its owner has answered (kv/client.h); 0: all.
  std::size_t window_bytes = 0;
  // Bytes per second to which every connection is held, evenly; 0: to none.
  double pace = 0;
  // Of a connection that loses bytes on their way, in the place of what is above: of a chunk and of a write, and of the send buffer.
  // 0: the same as of the others.
  std::size_t lossy_chunk_bytes = 0;
  std::size_t lossy_send_buffer_bytes = 0;

  friend bool operator==(const Flow&, const Flow&) = default;
};

// A link as one member sees it.
struct LinkSpeed {
  double bytes_per_second = 0;  // of one direction; 0: unknown
  double latency_seconds = 0;   // one way
  // That the thread of the network spends on a byte that is sent and one that is received; 0: unknown.
  double cpu_seconds_per_byte = 0;
};

// Returns the flow for `peers` connections that share `link`: chunks of a millisecond and a half of link time over
// all connections, of a tenth to half a millisecond on each, rounded to a power of two; in buffers over
// all connections the bytes of one round trip and a millisecond, but on each at least two round
// trips' worth, so that a lone busy peer gets the whole link. Both have floors, which more than eight peers share.
// Measured: docs/decisions/bytes-in-flight.md. The window: docs/decisions/sums.md.
// Pure; the defaults where the rate is unknown.
Flow FlowFor(const LinkSpeed& link, std::size_t peers);

// The same while what is committed delays the next forward pass by its whole time: as little as
// keeps the link busy, which costs more system calls.
Flow UrgentFlowFor(const LinkSpeed& link, std::size_t peers);

// Until all that `flow` commits to `peers` connections has left, in seconds; 0 where the rate is
// unknown.
double DrainSeconds(const Flow& flow, const LinkSpeed& link, std::size_t peers);

}  // namespace poseidon::messaging

#endif  // POSEIDON_MESSAGING_FLOW_H_
