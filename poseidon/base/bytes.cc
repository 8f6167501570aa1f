// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/bytes.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <limits>

namespace poseidon {

std::string ToHex(ConstBytes bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (std::byte b : bytes) {
    text.push_back(kDigits[std::to_integer<unsigned>(b) >> 4]);
    text.push_back(kDigits[std::to_integer<unsigned>(b) & 15]);
  }
  return text;
}

std::uint32_t Crc32c(ConstBytes bytes, std::uint32_t crc) {
  // The library takes the size as an int.
  constexpr std::size_t kMost = std::numeric_limits<int>::max();
  while (!bytes.empty()) {
    const std::size_t size = std::min(bytes.size(), kMost);
    // The library takes a pointer to what it only reads.
    auto* const data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
    // The library inverts neither the start nor the result, and RFC 3720 (B.4) wants both.
    crc = ~crc32_iscsi(data, static_cast<int>(size), ~crc);
    bytes = bytes.subspan(size);
  }
  return crc;
}

}  // namespace poseidon
