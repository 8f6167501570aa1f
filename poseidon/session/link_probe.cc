// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/link_probe.h"

#include <algorithm>
#include <utility>

namespace poseidon::session {
namespace {

constexpr int kEchoes = 5;
// Members begin at slightly different moments. Until the last has its round trips, nobody fills the links:
// a round trip behind someone's megabytes would pass for a long link.
constexpr Duration kSettle = std::chrono::milliseconds(50);
// The first round opens the congestion window and is not counted; of the last three the median. Over a long
// link the buffers hold back the first rounds, and grow with what these have found. One slow round, after a
// loss, says nothing of that: only a second one after it ends the growth.
constexpr std::size_t kRounds = 4;
constexpr int kSettled = 2;
constexpr std::size_t kMostProbeRounds = 24;
constexpr double kFaster = 1.05;

}  // namespace

LinkProbe::LinkProbe(Executor& executor, messaging::Mesh& mesh, MemberId next, std::uint64_t bytes)
    : executor_(executor),
      mesh_(mesh),
      next_(next),
      bytes_(bytes) {
  mesh_.Route(wire::FrameType::kProbe, *this);
}

void LinkProbe::Run(UniqueFunction<void(LinkMeasurement)> found, UniqueFunction<void()> done) {
  found_ = std::move(found);
  done_ = std::move(done);
  SendEcho();
}

void LinkProbe::SendEcho() {
  echo_sent_ = executor_.now();
  mesh_.SendControl(next_, wire::Encode(wire::Echo{static_cast<std::uint64_t>(echoes_), false}));
}

void LinkProbe::OnEcho(MemberId from, const wire::Echo& echo) {
  if (!echo.reply) {
    mesh_.SendControl(from, wire::Encode(wire::Echo{echo.token, true}));
    return;
  }
  // A reply that nobody asked for must neither count nor make this member send.
  if (!done_ || from != next_ || echoes_ == kEchoes ||
      echo.token != static_cast<std::uint64_t>(echoes_)) {
    return;
  }
  const double one_way = ToSeconds(executor_.now() - echo_sent_) / 2;
  result_.latency_seconds =
      echoes_ == 0 ? one_way : std::min(result_.latency_seconds, one_way);
  if (++echoes_ < kEchoes) return SendEcho();
  executor_.PostAfter(kSettle, alive_.Guard([this] { SendBytes(); }));
}

void LinkProbe::SendBytes() {
  ++sent_;
  ByteBuffer zeros(bytes_);
  messaging::Outgoing out;
  out.header.type = wire::FrameType::kProbe;
  out.header.total = bytes_;
  out.owned = std::move(zeros);
  out.priority = {messaging::Priority::kData, 0, 0};
  mesh_.Send(next_, std::move(out));
}

Result<MutableBytes> LinkProbe::PlaceFor(MemberId, const wire::FrameHeader& header) {
  if (header.total > kMaxProbeBytes) return DataLoss("a probe is longer than any probe");
  return MutableBytes{};
}

// The rate is that of everything after the first frame, whose arrival starts the clock.
Status LinkProbe::OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) {
  received_ += payload.size();
  if (header.offset == 0) {
    first_at_ = executor_.now();
    first_frame_ = payload.size();
    received_ = payload.size();
  }
  if (received_ < header.total) return OkStatus();
  const double seconds = ToSeconds(executor_.now() - first_at_);
  const auto rest = static_cast<double>(received_ - first_frame_);
  mesh_.SendControl(from, wire::Encode(wire::ProbeReport{seconds > 0 ? rest / seconds : 0}));
  return OkStatus();
}

void LinkProbe::OnReport(MemberId from, const wire::ProbeReport& report) {
  // Likewise a report that nobody asked for: one round brings one report, of the neighbour that took its bytes.
  if (!done_ || from != next_ || rates_.size() == sent_) return;
  rates_.push_back(report.bytes_per_second);
  not_faster_ = report.bytes_per_second > kFaster * fastest_ ? 0 : not_faster_ + 1;
  fastest_ = std::max(fastest_, report.bytes_per_second);
  const bool settled = rates_.size() >= kRounds && not_faster_ >= kSettled;
  // A link that seems to get faster without end is taken as it is, because all members wait for the probe.
  if (!settled && rates_.size() < kMostProbeRounds) {
    result_.bytes_per_second = fastest_;
    found_(result_);
    return SendBytes();
  }
  const auto last = rates_.end() - (kRounds - 1);
  std::sort(last, rates_.end());
  result_.bytes_per_second = last[(kRounds - 1) / 2];
  found_(result_);
  std::exchange(done_, {})();
}

}  // namespace poseidon::session
