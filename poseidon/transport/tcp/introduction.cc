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
  if (!socket_) return;
  // The bytes sent last (an alert, a refusal) must not be lost to a reset.
  ::shutdown(socket_->fd(), SHUT_WR);
  static_cast<void>(Discard(socket_->fd()));
  socket_.reset();
}

void Introduction::Pump() {
  // Dropped between the post and this turn.
  if (!socket_) return;
  switch (const Handshake::Outcome outcome = handshake_->Authenticate(); outcome) {
    case Handshake::Outcome::kReadable:
      return socket_->WhenReadable([self = shared_from_this()] { self->Pump(); });
    case Handshake::Outcome::kWritable:
      return socket_->WhenWritable([self = shared_from_this()] { self->Pump(); });
    case Handshake::Outcome::kAuthenticated:
    case Handshake::Outcome::kRefused:
    case Handshake::Outcome::kVersionsDiffer:
    case Handshake::Outcome::kEnded:
      // Out of the member first: the callback may call Drop, which clears the member while its function still runs.
      return std::exchange(done_, nullptr)(outcome);
  }
}

}  // namespace poseidon::transport::tcp
