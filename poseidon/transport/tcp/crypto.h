// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_CRYPTO_H_
#define POSEIDON_TRANSPORT_TCP_CRYPTO_H_

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "poseidon/base/bytes.h"

// The few primitives the handshakes need, from OpenSSL. All calls are thread-safe.
namespace poseidon::transport::tcp {

using Digest = std::array<std::byte, 32>;

// A 256-bit key for one purpose; wiped when destroyed.
class Key {
 public:
  // HKDF-SHA256 of a secret (a token, a key, what a handshake agreed on) with `purpose` as its context string.
  static Key Derive(ConstBytes secret, std::string_view purpose);
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ~Key();
  ConstBytes bytes() const { return bytes_; }

 private:
  Key() = default;
  Digest bytes_{};
};

// HMAC-SHA256 of the parts one behind the other.
Digest Hmac(const Key& key, std::span<const ConstBytes> parts);
// Takes the same time wherever the two differ.
bool EqualInConstantTime(ConstBytes a, ConstBytes b);

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_CRYPTO_H_
