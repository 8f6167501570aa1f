// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/introduction.h"

#include <sys/socket.h>

#include <utility>

#include "poseidon/transport/tcp/socket.h"

namespace poseidon::transport::tcp {

void Introduction::Start(Done done) {
  done_ = std::move(done);
  executor_.Post([self = shared_from_this()] { self->Pump(); });
}

void Introduction::Drop() {
  done_ = nullptr;
  if (!link_.socket) return;
  // The bytes sent last (an alert, a refusal) must not be lost to a reset.
  ::shutdown(link_.socket->fd(), SHUT_WR);
  static_cast<void>(Discard(link_.socket->fd()));
  link_.socket.reset();
}

void Introduction::Pump() {
  // Dropped between the post and this turn.
  if (!link_.socket) return;
  switch (const Codec::Handshake outcome = link_.codec->Authenticate(); outcome) {
    case Codec::Handshake::kReadable:
      return link_.socket->WhenReadable([self = shared_from_this()] { self->Pump(); });
    case Codec::Handshake::kWritable:
      return link_.socket->WhenWritable([self = shared_from_this()] { self->Pump(); });
    case Codec::Handshake::kAuthenticated:
    case Codec::Handshake::kRefused:
    case Codec::Handshake::kVersionsDiffer:
    case Codec::Handshake::kEnded:
      // Out of the member first: the callback may call Drop, which clears the member while its function still runs.
      return std::exchange(done_, nullptr)(outcome);
  }
}

}  // namespace poseidon::transport::tcp
