// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_INTRODUCTION_H_
#define POSEIDON_TRANSPORT_TCP_INTRODUCTION_H_

#include <memory>

#include "poseidon/base/unique_function.h"
#include "poseidon/transport/tcp/stream.h"

namespace poseidon::transport::tcp {

// A link whose codec is authenticating, until it has or cannot.
class Introduction : public std::enable_shared_from_this<Introduction> {
 public:
  using Done = UniqueFunction<void(Codec::Handshake outcome)>;

  Introduction(IoExecutor& executor, Link link) : executor_(executor), link_(std::move(link)) {}

  // `done` fires once, on the executor, never inside this call; not at all after Drop.
  void Start(Done done);
  // Closes the socket.
  void Drop();
  // After success: the link, ready for a connection.
  Link TakeLink() { return std::move(link_); }
  // Whether the peer has ever said anything.
  bool heard_anything() const { return link_.codec->wire_bytes_in() > 0; }

 private:
  void Pump();

  IoExecutor& executor_;
  Link link_;
  Done done_;
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_INTRODUCTION_H_
