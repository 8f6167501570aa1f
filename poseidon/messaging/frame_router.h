// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_MESSAGING_FRAME_ROUTER_H_
#define POSEIDON_MESSAGING_FRAME_ROUTER_H_

#include <functional>
#include <utility>

#include "poseidon/messaging/frame_sink.h"

namespace poseidon::messaging {

// Hands frames of one type to those they are for: `sink_of` names the sink of a frame, or null, where this member takes
// no part in what the frame belongs to; such a frame is refused.
// Thread: the mesh's executor.
class FrameRouter final : public FrameSink {
 public:
  using SinkOf = std::function<FrameSink*(const wire::FrameHeader&)>;
  explicit FrameRouter(SinkOf sink_of) : sink_of_(std::move(sink_of)) {}

  Result<MutableBytes> PlaceFor(MemberId from, const wire::FrameHeader& header) override {
    FrameSink* const sink = sink_of_(header);
    if (sink == nullptr) return Refusal();
    return sink->PlaceFor(from, header);
  }
  Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) override {
    FrameSink* const sink = sink_of_(header);
    return sink == nullptr ? Refusal() : sink->OnFrame(from, header, payload);
  }

 private:
  static Status Refusal() { return DataLoss("a layer's frame came to a worker that takes no part in its exchange"); }

  const SinkOf sink_of_;
};

}  // namespace poseidon::messaging

#endif  // POSEIDON_MESSAGING_FRAME_ROUTER_H_
