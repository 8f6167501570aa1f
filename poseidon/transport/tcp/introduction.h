// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_INTRODUCTION_H_
#define POSEIDON_TRANSPORT_TCP_INTRODUCTION_H_

#include <memory>
#include <string>
#include <utility>

#include "poseidon/base/unique_function.h"
#include "poseidon/transport/tcp/handshake.h"
#include "poseidon/transport/tcp/stream.h"

namespace poseidon::transport::tcp {

// A socket whose ends are authenticating, until they have or cannot.
class Introduction : public std::enable_shared_from_this<Introduction> {
 public:
  using Done = UniqueFunction<void(Handshake::Outcome outcome)>;

  Introduction(IoExecutor& executor, std::unique_ptr<Descriptor> socket, std::unique_ptr<Handshake> handshake, std::string peer)
      : executor_(executor), socket_(std::move(socket)), handshake_(std::move(handshake)), peer_(std::move(peer)) {}

  // `done` fires once, on the executor, never inside this call; not at all after Drop.
  void Start(Done done);
  // Closes the socket.
  void Drop();
  // After success: the link, ready for a connection.
  Link TakeLink() { return {.socket = std::move(socket_), .codec = handshake_->TakeCodec(), .peer = peer_}; }
  // Whether the peer has ever said anything.
  bool heard_anything() const { return handshake_->wire_bytes().in > 0; }

 private:
  void Pump();

  IoExecutor& executor_;
  std::unique_ptr<Descriptor> socket_;
  const std::unique_ptr<Handshake> handshake_;
  const std::string peer_;
  Done done_;
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_INTRODUCTION_H_
