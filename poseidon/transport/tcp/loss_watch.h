// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_LOSS_WATCH_H_
#define POSEIDON_TRANSPORT_TCP_LOSS_WATCH_H_

#include <algorithm>
#include <cstdint>

namespace poseidon::transport::tcp {

// Whether a connection loses so much that its bursts overflow a queue on the way: more than 2 of a thousand segments, and more than 2,
// over stretches of 512. Where queues are deep, a connection of the tests in docs/decisions/bytes-in-flight.md has less than 1 of ten
// thousand; where they hold a millisecond, 3 to 10 of a thousand. Thread: one.
class LossWatch {
 public:
  // Bytes written so far; false while it is too early to look again.
  bool Due(std::uint64_t bytes_written) const { return bytes_written - bytes_ >= kSegments * kSmallestSegment; }
  // The system's counts at that moment: bytes of a segment, and segments lost so far. True where the stretch since the last look
  // lost too much.
  bool Look(std::uint64_t bytes_written, std::uint32_t segment_bytes, std::uint32_t lost_so_far) {
    const std::uint64_t segments = (bytes_written - bytes_) / (segment_bytes > 0 ? segment_bytes : kSmallestSegment);
    const std::uint32_t lost = lost_so_far - std::min(lost_, lost_so_far);
    bytes_ = bytes_written;
    lost_ = lost_so_far;
    return std::uint64_t{lost} * 1000 > 2 * segments && lost > 2;
  }

 private:
  static constexpr std::uint64_t kSegments = 512;
  static constexpr std::uint64_t kSmallestSegment = 1448;  // of Ethernet's 1,500 bytes
  std::uint64_t bytes_ = 0;
  std::uint32_t lost_ = 0;
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_LOSS_WATCH_H_
