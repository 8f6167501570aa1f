// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/segment_counts.h"

// The C library's <netinet/tcp.h>, which has fewer of the counts, cannot be included beside the system's own.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace poseidon::transport::tcp {

SegmentCounts CountsOf(int fd) {
  tcp_info state{};
  socklen_t size = sizeof state;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &state, &size) != 0) return {};
  // Where a segment was only late, the peer says that it came twice (RFC 2883). Systems before Linux 5.5 do not count these.
  return {.bytes = state.tcpi_snd_mss, .lost = state.tcpi_total_retrans - std::min(state.tcpi_dsack_dups, state.tcpi_total_retrans)};
}

}  // namespace poseidon::transport::tcp
