// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_MODEL_ROUTER_H_
#define POSEIDON_SESSION_MODEL_ROUTER_H_

#include "poseidon/messaging/frame_sink.h"

namespace poseidon::session {

// Where hosts exchange layers but workers one-off keys: frames of each go to a sink of their own.
class ModelRouter final : public messaging::FrameSink {
 public:
  // `layers` may be null: this member takes no part in them.
  ModelRouter(messaging::FrameSink* layers, messaging::FrameSink& one_off)
      : layers_(layers), one_off_(one_off) {}

  Result<MutableBytes> PlaceFor(MemberId from, const wire::FrameHeader& header) override {
    messaging::FrameSink* const sink = SinkOf(header);
    if (sink == nullptr) return Refusal();
    return sink->PlaceFor(from, header);
  }
  Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) override {
    messaging::FrameSink* const sink = SinkOf(header);
    return sink == nullptr ? Refusal() : sink->OnFrame(from, header, payload);
  }

 private:
  messaging::FrameSink* SinkOf(const wire::FrameHeader& header) const {
    return header.model == wire::kCollectiveModel ? &one_off_ : layers_;
  }
  static Status Refusal() {
    return DataLoss("a layer's frame came to a worker for which its host's leader speaks");
  }
  messaging::FrameSink* const layers_;
  messaging::FrameSink& one_off_;
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_MODEL_ROUTER_H_
