// SPDX-License-Identifier: Apache-2.0
#include "poseidon/messaging/flow.h"

#include <algorithm>
#include <cmath>

#include "poseidon/wire/frame.h"

namespace poseidon::messaging {
namespace {

// Upper bounds of a flow, and lower ones, below which the kernel sends small segments and wakes for each.
struct Measure {
  double chunks_seconds;  // over all connections: an urgent layer waits for a chunk on every one
  double most_chunk_seconds;
  double least_chunk_seconds;
  double queue_seconds;  // over all connections, beyond the round trip
  double round_trips;    // that each connection holds, alone or not
  std::size_t least_chunk;
  std::size_t least_buffer;
};

// Measured in docs/decisions/bytes-in-flight.md: every net of its table took longer with a floor of 128 KiB.
constexpr Measure kBulk{.chunks_seconds = 1.5e-3,
                        .most_chunk_seconds = 0.5e-3,
                        .least_chunk_seconds = 0.1e-3,
                        .queue_seconds = 1e-3,
                        .round_trips = 2,
                        .least_chunk = 64 * 1024,
                        .least_buffer = 64 * 1024};
// A quarter of kBulk where round trips are short. At the end of the backward pass all that is left to wait for is the
// first layer, and it waits for what was committed before it. One round trip on each connection keeps the link busy.
constexpr Measure kUrgent{.chunks_seconds = 0.4e-3,
                          .most_chunk_seconds = 0.15e-3,
                          .least_chunk_seconds = 0.05e-3,
                          .queue_seconds = 0.5e-3,
                          .round_trips = 1,
                          .least_chunk = 16 * 1024,
                          .least_buffer = 16 * 1024};
// Where bytes get lost it is all the time so: what all senders commit to one receiver is to fit the queue before its port. A small buffer alone
// is not enough, because the system takes a write that it has begun to take beyond the buffer. But together the buffers last until
// this thread has a core again: with less the link is idle while it waits for one.
constexpr Measure kLossy = [] {
  Measure measure = kUrgent;
  measure.queue_seconds = 1.6e-3;
  return measure;
}();
constexpr double kMostBuffer = 8 * 1024 * 1024;
// So many connections have the whole floors; more share what these have together, at least a few segments each: a floor times the
// peers would grow with the job, and no urgent layer overtakes it.
constexpr double kConnectionsWithFloors = 8;
constexpr double kLeastFloor = 8 * 1024;

// Contributions in the windows of all peers stay in the cache of a core until they are summed.
constexpr double kWindows = 1536 * 1024;
constexpr double kLeastWindow = 64 * 1024;
constexpr double kMostWindow = 512 * 1024;

struct Commitment {
  std::size_t chunk_bytes;
  std::size_t send_buffer_bytes;
};

Commitment CommitmentOf(const Measure& measure, const LinkSpeed& link, std::size_t peers) {
  const auto connections = static_cast<double>(peers);
  const auto floor_of = [&](std::size_t bytes) {
    return std::max(kLeastFloor, static_cast<double>(bytes) * std::min(1.0, kConnectionsWithFloors / connections));
  };
  // chunk = rate * clamp(1.5 ms / peers, 0.1 ms, 0.5 ms) in bulk: an urgent layer waits for a chunk on every
  // connection, at its sender and again at its owner (docs/decisions/bytes-in-flight.md).
  const double chunk_seconds = std::clamp(measure.chunks_seconds / connections,
                                          measure.least_chunk_seconds, measure.most_chunk_seconds);
  const double chunk = std::clamp<double>(link.bytes_per_second * chunk_seconds,
                                          floor_of(measure.least_chunk),
                                          wire::kMaxPayload);
  const double round_trip = 2 * link.latency_seconds;
  // buffer = rate * max((round trip + 1 ms) / peers, 2 round trips) in bulk. The first term bounds what all connections
  // hold together, the second lets a single busy peer have the whole link.
  const double share =
      link.bytes_per_second * (round_trip + measure.queue_seconds) / connections;
  const double alone = measure.round_trips * link.bytes_per_second * round_trip;
  return {.chunk_bytes = std::size_t{1} << std::lround(std::log2(chunk)),
          .send_buffer_bytes = static_cast<std::size_t>(std::clamp(
              std::max(share, alone), floor_of(measure.least_buffer), kMostBuffer))};
}

// What keeps the link busy where it is what everybody waits for: an answer comes when what is committed at both ends has left. Where it is
// the thread of the network, little is committed at any time.
std::size_t WindowFor(const LinkSpeed& link, std::size_t peers) {
  const double in_cache = std::clamp(kWindows / static_cast<double>(peers), kLeastWindow, kMostWindow);
  if (link.bytes_per_second * link.cpu_seconds_per_byte > 1) return static_cast<std::size_t>(in_cache);
  const Commitment bulk = CommitmentOf(kBulk, link, peers);
  return std::max(static_cast<std::size_t>(in_cache), 2 * (bulk.chunk_bytes + bulk.send_buffer_bytes));
}

Flow FlowOf(const Measure& measure, const LinkSpeed& link, std::size_t peers) {
  if (link.bytes_per_second <= 0 || peers == 0) return {};
  const Commitment usual = CommitmentOf(measure, link, peers);
  const Commitment lossy = CommitmentOf(kLossy, link, peers);
  Flow flow;
  flow.chunk_bytes = usual.chunk_bytes;
  // The queue is looked at between two writes, so a write of several chunks would be the longer wait.
  flow.write_bytes = flow.chunk_bytes;
  flow.send_buffer_bytes = usual.send_buffer_bytes;
  flow.window_bytes = WindowFor(link, peers);
  flow.lossy_chunk_bytes = lossy.chunk_bytes;
  flow.lossy_send_buffer_bytes = std::min(lossy.send_buffer_bytes, usual.send_buffer_bytes);
  return flow;
}

}  // namespace

Flow FlowFor(const LinkSpeed& link, std::size_t peers) { return FlowOf(kBulk, link, peers); }

Flow UrgentFlowFor(const LinkSpeed& link, std::size_t peers) {
  return FlowOf(kUrgent, link, peers);
}

double DrainSeconds(const Flow& flow, const LinkSpeed& link, std::size_t peers) {
  if (link.bytes_per_second <= 0) return 0;
  // A write under way is committed like what the system holds: neither can be overtaken.
  return static_cast<double>(peers * (flow.send_buffer_bytes + flow.write_bytes)) /
         link.bytes_per_second;
}

}  // namespace poseidon::messaging
