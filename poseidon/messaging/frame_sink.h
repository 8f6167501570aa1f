// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_MESSAGING_FRAME_SINK_H_
#define POSEIDON_MESSAGING_FRAME_SINK_H_

#include "poseidon/base/bytes.h"
#include "poseidon/base/result.h"
#include "poseidon/base/strong_id.h"
#include "poseidon/wire/frame.h"

namespace poseidon::messaging {

// Takes the frames of one type. The receiver names the memory: the header arrives, PlaceFor answers
// with a span, the payload lands there once, OnFrame says that it has.
// An error from either is evidence of a broken or hostile peer: the connection to it is closed.
// Thread: the mesh's executor.
class FrameSink {
 public:
  virtual ~FrameSink() = default;

  // Memory for the `header.length` (> 0) bytes of payload: a span of exactly that size, lent until
  // OnFrame; or an empty span: the channel keeps the bytes itself until OnFrame returns.
  virtual Result<MutableBytes> PlaceFor(MemberId from, const wire::FrameHeader& header) = 0;

  // The frame is complete and its checksum holds.
  virtual Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) = 0;
};

}  // namespace poseidon::messaging

#endif  // POSEIDON_MESSAGING_FRAME_SINK_H_
