// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_HANDSHAKE_H_
#define POSEIDON_TRANSPORT_TCP_HANDSHAKE_H_

#include <memory>

#include "poseidon/transport/tcp/codec.h"

namespace poseidon::transport::tcp {

// Both ends of a fresh socket prove to each other that they hold the token, and agree on the codec of what follows. It never
// blocks and does not own the socket.
class Handshake {
 public:
  enum class Outcome {
    kReadable,  // call again once the socket is readable
    kWritable,  // call again once the socket is writable
    kAuthenticated,
    kRefused,  // the peer has not proven the token, or does not speak this protocol
    kVersionsDiffer,
    kEnded,  // the peer closed the connection; wire_bytes().in shows whether it ever sent anything
  };

  virtual ~Handshake() = default;

  virtual Outcome Authenticate() = 0;
  // Once, after kAuthenticated.
  virtual std::unique_ptr<Codec> TakeCodec() = 0;
  const WireBytes& wire_bytes() const { return wire_; }

 protected:
  WireBytes wire_;
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_HANDSHAKE_H_
