// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_LINK_PROBE_H_
#define POSEIDON_SESSION_LINK_PROBE_H_

#include <cstdint>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/base/executor.h"
#include "poseidon/messaging/flow.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/wire/messages.h"

namespace poseidon::session {

// The measured speed of the link between this member and its neighbour; 0: not measured.
struct LinkMeasurement {
  double bytes_per_second = 0;  // goodput of one direction while all members send
  double latency_seconds = 0;   // one way
};

inline messaging::LinkSpeed SpeedOf(const LinkMeasurement& link, double cpu_seconds_per_byte = 0) {
  return {link.bytes_per_second, link.latency_seconds, cpu_seconds_per_byte};
}

// Fewer bytes are one frame on a link of unknown speed, and the arrival of one frame shows no rate.
inline constexpr std::uint64_t kMinProbeBytes = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMaxProbeBytes = std::uint64_t{1} << 30;

// Measures the link once, at start-up: the round trip of a few small messages to the next member in
// the ring, then the rate at which `bytes` arrive there while everybody sends to the next, several times, and
// until that has twice not become faster, because a long link is filled only by buffers that its owner has grown.
// Thread: the mesh's executor. Lifetime: the mesh outlives it.
class LinkProbe final : public messaging::FrameSink {
 public:
  // Pre: bytes <= kMaxProbeBytes; nobody takes more.
  LinkProbe(Executor& executor, messaging::Mesh& mesh, MemberId next, std::uint64_t bytes);

  // `found` is called with the fastest rate so far after each round, for flow control of the next, and last
  // with the rate that the link is taken for; then `done` fires.
  void Run(UniqueFunction<void(LinkMeasurement)> found, UniqueFunction<void()> done);

  // Messages from the neighbours.
  void OnEcho(MemberId from, const wire::Echo& echo);
  void OnReport(MemberId from, const wire::ProbeReport& report);

  // FrameSink, for kProbe: the bytes are read and dropped.
  Result<MutableBytes> PlaceFor(MemberId from, const wire::FrameHeader& header) override;
  Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) override;

 private:
  void SendEcho();
  void SendBytes();

  Executor& executor_;
  messaging::Mesh& mesh_;
  const MemberId next_;
  const std::uint64_t bytes_;
  UniqueFunction<void(LinkMeasurement)> found_;
  UniqueFunction<void()> done_;
  LinkMeasurement result_;
  int echoes_ = 0;
  TimePoint echo_sent_;
  std::vector<double> rates_;  // by round
  std::size_t sent_ = 0;       // rounds; one more than rates_ while one is under way
  double fastest_ = 0;
  int not_faster_ = 0;         // rounds since the last that was faster than all before
  std::uint64_t received_ = 0;
  std::uint64_t first_frame_ = 0;
  TimePoint first_at_;
  Alive alive_;
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_LINK_PROBE_H_
