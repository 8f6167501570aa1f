// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_MESSAGING_TRAFFIC_H_
#define POSEIDON_MESSAGING_TRAFFIC_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "poseidon/wire/frame.h"

namespace poseidon::messaging {

struct TrafficCount {
  std::uint64_t frames = 0;
  std::uint64_t header_bytes = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t whole_bytes = 0;  // of payloads, counting factors that were compressed as if they were not
  TrafficCount& operator+=(const TrafficCount& other) {
    frames += other.frames;
    header_bytes += other.header_bytes;
    payload_bytes += other.payload_bytes;
    whole_bytes += other.whole_bytes;
    return *this;
  }
  friend bool operator==(const TrafficCount&, const TrafficCount&) = default;
};

struct TrafficCell {
  TrafficCount sent;
  TrafficCount received;
  TrafficCell& operator+=(const TrafficCell& other) {
    sent += other.sent;
    received += other.received;
    return *this;
  }
  friend bool operator==(const TrafficCell&, const TrafficCell&) = default;
};

// Counts what one member moved, by model, layer and scheme; frames of no layer (control, heartbeat, probe) and
// one-off keys have cells of their own. Bytes that the transport adds (TLS records) are not here
// but in transport::ConnectionCounters. Thread: the mesh's executor.
class Traffic {
 public:
  void CountSent(const wire::FrameHeader& header) {
    Add(CellOf(header).sent, header);
    CountWork(header);
  }
  void CountReceived(const wire::FrameHeader& header) {
    Add(CellOf(header).received, header);
    CountWork(header);
  }
  // Of members' lanes together.
  Traffic& operator+=(const Traffic& other) {
    work_ += other.work_;
    control_ += other.control_;
    collectives_ += other.collectives_;
    for (const auto& [key, cells] : other.layers_) {
      std::vector<TrafficCell>& sums = layers_[key];
      sums.resize(std::max(sums.size(), cells.size()));
      for (std::size_t i = 0; i < cells.size(); ++i) sums[i] += cells[i];
    }
    return *this;
  }

  // Frames of gradients, factors, sums and shared memory, in both directions: while work goes on, it grows.
  std::uint64_t work() const { return work_; }

  // A layer that moved nothing yet has an empty cell.
  const TrafficCell& layer(ModelId model, LayerId layer, plan::Scheme scheme) const {
    static const TrafficCell kEmpty;
    const auto found = layers_.find({model, scheme});
    if (found == layers_.end() || layer.value() >= found->second.size()) return kEmpty;
    return found->second[layer.value()];
  }
  // Under all schemes together that take factors, or that take gradients.
  TrafficCell layer(ModelId model, LayerId layer, bool factors) const {
    TrafficCell sum;
    for (const auto& [key, cells] : layers_) {
      const bool wanted = key.first == model && plan::TakesFactors(key.second) == factors;
      if (wanted && layer.value() < cells.size()) sum += cells[layer.value()];
    }
    return sum;
  }
  const TrafficCell& control() const { return control_; }
  const TrafficCell& collectives() const { return collectives_; }

 private:
  static void Add(TrafficCount& count, const wire::FrameHeader& header) {
    ++count.frames;
    count.header_bytes += wire::kHeaderBytes;
    count.payload_bytes += header.length;
    count.whole_bytes += header.length;
    // A factor that is smaller compressed adds the difference with its last frame.
    if (header.compressed() && header.offset + header.length == header.total) {
      count.whole_bytes += header.whole_bytes() - header.total;
    }
  }
  TrafficCell& CellOf(const wire::FrameHeader& header) {
    using wire::FrameType;
    const bool data = header.type == FrameType::kPush || header.type == FrameType::kResult ||
                      header.type == FrameType::kFactor;
    if (!data) return control_;
    if (header.model == wire::kCollectiveModel) return collectives_;
    auto& cells = layers_[{header.model, header.scheme}];
    if (header.layer.value() >= cells.size()) cells.resize(header.layer.value() + 1);
    return cells[header.layer.value()];
  }

  void CountWork(const wire::FrameHeader& header) {
    using wire::FrameType;
    if (header.type != FrameType::kControl && header.type != FrameType::kHeartbeat) ++work_;
  }

  std::uint64_t work_ = 0;
  std::map<std::pair<ModelId, plan::Scheme>, std::vector<TrafficCell>> layers_;
  TrafficCell control_;
  TrafficCell collectives_;
};

}  // namespace poseidon::messaging

#endif  // POSEIDON_MESSAGING_TRAFFIC_H_
