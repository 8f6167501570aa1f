// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/plain_codec.h"

#include "poseidon/transport/tcp/socket.h"

namespace poseidon::transport::tcp {

Codec::Moved PlainCodec::Read(ReadCursor& into, Amount amount) {
  Moved moved;
  while (moved.bytes < amount.enough) {
    const GatheredCall call = Receive(fd_, into.buffers(), amount.limit - moved.bytes);
    if (call.error != 0) {
      moved.next = call.would_block() ? Next::kReadable : Next::kFailed;
      moved.error = call.error;
      return moved;
    }
    if (call.bytes == 0) {
      moved.next = Next::kEnded;
      return moved;
    }
    into.Advance(call.bytes);
    moved.bytes += call.bytes;
    wire_.in += call.bytes;
    const bool unfinished = call.bytes < call.offered && moved.bytes < amount.enough;
    if (unfinished || LeavesNothing(call.bytes, call.offered)) {
      moved.next = Next::kReadable;  // the system has no more: another read would return EAGAIN
      return moved;
    }
  }
  return moved;
}

Codec::Moved PlainCodec::Write(WriteCursor& from, std::size_t limit) {
  Moved moved;
  while (!from.done() && moved.bytes < limit) {
    const GatheredCall call = Send(fd_, from.buffers(), limit - moved.bytes);
    if (call.error != 0) {
      moved.next = call.would_block() ? Next::kWritable : Next::kFailed;
      moved.error = call.error;
      return moved;
    }
    from.Advance(call.bytes);
    moved.bytes += call.bytes;
    wire_.out += call.bytes;
    // The system took less than it was given, so its buffer is full: another call would only say so.
    if (call.bytes < call.offered) {
      moved.next = Next::kWritable;
      return moved;
    }
  }
  return moved;
}

}  // namespace poseidon::transport::tcp
