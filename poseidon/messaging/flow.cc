// SPDX-License-Identifier: Apache-2.0
#include "poseidon/messaging/flow.h"

#include <algorithm>
#include <bit>

#include "poseidon/wire/frame.h"

namespace poseidon::messaging {
namespace {

constexpr double kChunkSeconds = 0.5e-3;
constexpr double kQueueSeconds = 1e-3;
constexpr std::size_t kLeastChunk = 16 * 1024;
constexpr std::size_t kLeastBuffer = 16 * 1024;
constexpr std::size_t kMostBuffer = 4 * 1024 * 1024;

}  // namespace

Flow FlowFor(const LinkSpeed& link, std::size_t peers) {
  if (link.bytes_per_second <= 0 || peers == 0) return {};
  const double crowd = std::max(1.0, static_cast<double>(peers + 1) / 8.0);
  const auto chunk = static_cast<std::size_t>(link.bytes_per_second * kChunkSeconds / crowd);
  const double round_trip = 2 * link.latency_seconds;
  const double share =
      link.bytes_per_second * (round_trip + kQueueSeconds) / static_cast<double>(peers);
  const double alone = 2 * link.bytes_per_second * round_trip;
  Flow flow;
  flow.chunk_bytes = std::clamp<std::size_t>(std::bit_ceil(std::max<std::size_t>(chunk, 1)),
                                             kLeastChunk, wire::kMaxPayload);
  flow.write_bytes = flow.chunk_bytes;
  flow.send_buffer_bytes =
      std::clamp(static_cast<std::size_t>(std::max(share, alone)), kLeastBuffer, kMostBuffer);
  return flow;
}

}  // namespace poseidon::messaging
