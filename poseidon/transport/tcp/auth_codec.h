// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_AUTH_CODEC_H_
#define POSEIDON_TRANSPORT_TCP_AUTH_CODEC_H_

#include <array>
#include <cstddef>

#include "poseidon/transport/tcp/codec.h"
#include "poseidon/transport/tcp/hello.h"

namespace poseidon::transport::tcp {

// The hello, then plain bytes straight between the socket and the caller's memory.
class AuthCodec final : public Codec {
 public:
  AuthCodec(int fd, HelloRole role, const Key& key, Versions versions, const Hello::Nonce& nonce);

  Handshake Authenticate() override;
  Moved Read(ReadCursor& into, Amount amount) override;
  Moved Write(WriteCursor& from, std::size_t limit) override;
  bool unsent() const override { return false; }
  void Finish() override {}
  bool integrity_protected() const override { return false; }

 private:
  // False when the socket takes no more for now, or has failed; true once output_ is empty.
  bool SendOutput();
  // False when less than the hello wants has arrived; `ended` says that no more will.
  bool ReceiveInput(bool& ended);

  const int fd_;
  Hello hello_;
  ByteBuffer output_;
  std::array<std::byte, Hello::kHeaderBytes> input_;
  std::size_t input_bytes_ = 0;
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_AUTH_CODEC_H_
