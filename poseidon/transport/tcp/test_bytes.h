// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_TEST_BYTES_H_
#define POSEIDON_TRANSPORT_TCP_TEST_BYTES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>

#include "poseidon/base/bytes.h"

namespace poseidon::transport::tcp {

inline ByteBuffer RandomBytes(std::size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  ByteBuffer bytes(size);
  for (std::size_t i = 0; i < size; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, size - i));
  }
  return bytes;
}

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_TEST_BYTES_H_
