// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_MESSAGING_TRAFFIC_H_
#define POSEIDON_MESSAGING_TRAFFIC_H_

#include <cstdint>
#include <vector>

#include "poseidon/wire/frame.h"

namespace poseidon::messaging {

struct TrafficCount {
  std::uint64_t frames = 0;
  std::uint64_t header_bytes = 0;
  std::uint64_t payload_bytes = 0;
  friend bool operator==(const TrafficCount&, const TrafficCount&) = default;
};

struct TrafficCell {
  TrafficCount sent;
  TrafficCount received;
  friend bool operator==(const TrafficCell&, const TrafficCell&) = default;
};

// What one member moved, by layer and scheme; frames of no layer (control, heartbeat, probe) and
// one-off keys have cells of their own. Bytes that the transport adds (TLS records) are not here
// but in transport::ConnectionCounters. Thread: the mesh's executor.
class Traffic {
 public:
  void CountSent(const wire::FrameHeader& header) { Add(CellOf(header).sent, header); }
  void CountReceived(const wire::FrameHeader& header) { Add(CellOf(header).received, header); }

  // Cells of model 0's layers; a layer that moved nothing yet has an empty cell.
  const TrafficCell& layer(LayerId layer, plan::Scheme scheme) const {
    static const TrafficCell kEmpty;
    const auto& cells = CellsOf(scheme);
    return layer.value() < cells.size() ? cells[layer.value()] : kEmpty;
  }
  const TrafficCell& control() const { return control_; }
  const TrafficCell& collectives() const { return collectives_; }

 private:
  static void Add(TrafficCount& count, const wire::FrameHeader& header) {
    ++count.frames;
    count.header_bytes += wire::kHeaderBytes;
    count.payload_bytes += header.length;
  }
  const std::vector<TrafficCell>& CellsOf(plan::Scheme scheme) const {
    return scheme == plan::Scheme::kFactorBroadcast ? factor_ : key_value_;
  }
  TrafficCell& CellOf(const wire::FrameHeader& header) {
    using wire::FrameType;
    const bool data = header.type == FrameType::kPush || header.type == FrameType::kResult ||
                      header.type == FrameType::kFactor;
    if (!data) return control_;
    if (header.model != ModelId(0)) return collectives_;
    auto& cells = header.scheme == plan::Scheme::kFactorBroadcast ? factor_ : key_value_;
    if (header.layer.value() >= cells.size()) cells.resize(header.layer.value() + 1);
    return cells[header.layer.value()];
  }

  std::vector<TrafficCell> key_value_;
  std::vector<TrafficCell> factor_;
  TrafficCell control_;
  TrafficCell collectives_;
};

}  // namespace poseidon::messaging

#endif  // POSEIDON_MESSAGING_TRAFFIC_H_
