// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_HELLO_HANDSHAKE_H_
#define POSEIDON_TRANSPORT_TCP_HELLO_HANDSHAKE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "poseidon/transport/tcp/handshake.h"
#include "poseidon/transport/tcp/hello.h"

namespace poseidon::transport::tcp {

// The hello over a socket; then plain bytes, or records that are authenticated with keys of the hello.
class HelloHandshake final : public Handshake {
 public:
  struct Options {
    Versions versions;
    bool authenticated_records = true;
    std::uint64_t rekey_after_bytes = 0;  // of those records
  };
  HelloHandshake(int fd, HelloRole role, const Key& key, const Options& options, const Hello::Nonce& nonce);

  Outcome Authenticate() override;
  std::unique_ptr<Codec> TakeCodec() override;

 private:
  // False when the socket takes no more for now, or has failed; true once output_ is empty.
  bool SendOutput();
  // False when less than the hello wants has arrived; `ended` says that no more will.
  bool ReceiveInput(bool& ended);

  const int fd_;
  const HelloRole role_;
  const Options options_;
  Hello hello_;
  ByteBuffer output_;
  std::array<std::byte, Hello::kHeaderBytes> input_;
  std::size_t input_bytes_ = 0;
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_HELLO_HANDSHAKE_H_
