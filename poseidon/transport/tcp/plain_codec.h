// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_PLAIN_CODEC_H_
#define POSEIDON_TRANSPORT_TCP_PLAIN_CODEC_H_

#include "poseidon/transport/tcp/codec.h"

namespace poseidon::transport::tcp {

// Bytes as they are, straight between the socket and the caller's memory.
class PlainCodec final : public Codec {
 public:
  PlainCodec(int fd, const WireBytes& of_handshake) : Codec(of_handshake), fd_(fd) {}

  Moved Read(ReadCursor& into, Amount amount) override;
  Moved Write(WriteCursor& from, std::size_t limit) override;
  bool unsent() const override { return false; }

 private:
  const int fd_;
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_PLAIN_CODEC_H_
