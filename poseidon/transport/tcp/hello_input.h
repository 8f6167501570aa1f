// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_HELLO_INPUT_H_
#define POSEIDON_TRANSPORT_TCP_HELLO_INPUT_H_

#include <array>
#include <cstddef>

#include "poseidon/base/bytes.h"
#include "poseidon/base/check.h"
#include "poseidon/transport/tcp/hello.h"

namespace poseidon::transport::tcp {

// Shared by the fuzz target and the test with random inputs: feeds a stranger's bytes to one side of
// the hello, which must end in time and never believe them.
inline Hello::State FeedHello(HelloRole role, const Key& key, ConstBytes bytes) {
  Hello hello(role, key, Versions{.min = 2, .max = 5}, Hello::Nonce{});
  std::size_t sent = hello.TakeOutput().size();
  while (hello.wanted() > 0 && bytes.size() >= hello.wanted()) {
    const ConstBytes piece = bytes.first(hello.wanted());
    bytes = bytes.subspan(hello.wanted());
    hello.Consume(piece);
    sent += hello.TakeOutput().size();
  }
  POSEIDON_CHECK(hello.state() != Hello::State::kAuthenticated, "nobody guesses a proof");
  POSEIDON_CHECK(sent <= Hello::kHeaderBytes + Hello::kProofBytes, "a stranger gets little back");
  return hello.state();
}

inline void FeedHello(ConstBytes bytes) {
  constexpr std::array<std::byte, 32> kSecret{};
  const Key key = Key::Derive(kSecret, "hello fuzz");
  FeedHello(HelloRole::kServer, key, bytes);
  FeedHello(HelloRole::kClient, key, bytes);
}

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_HELLO_INPUT_H_
