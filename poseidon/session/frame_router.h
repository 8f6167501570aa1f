// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_FRAME_ROUTER_H_
#define POSEIDON_SESSION_FRAME_ROUTER_H_

#include <functional>
#include <utility>

#include "poseidon/messaging/frame_sink.h"

namespace poseidon::session {

// Where what is exchanged among hosts and what is exchanged among workers comes in frames of one type: `sink_of` says whose
// a frame is. It may be nobody's, where this member takes no part in what hosts exchange.
class FrameRouter final : public messaging::FrameSink {
 public:
  using SinkOf = std::function<messaging::FrameSink*(const wire::FrameHeader&)>;
  explicit FrameRouter(SinkOf sink_of) : sink_of_(std::move(sink_of)) {}

  Result<MutableBytes> PlaceFor(MemberId from, const wire::FrameHeader& header) override {
    messaging::FrameSink* const sink = sink_of_(header);
    if (sink == nullptr) return Refusal();
    return sink->PlaceFor(from, header);
  }
  Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) override {
    messaging::FrameSink* const sink = sink_of_(header);
    return sink == nullptr ? Refusal() : sink->OnFrame(from, header, payload);
  }

 private:
  static Status Refusal() { return DataLoss("a layer's frame came to a worker that takes no part in its exchange"); }

  const SinkOf sink_of_;
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_FRAME_ROUTER_H_
