// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_BYTES_H_
#define POSEIDON_BASE_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace poseidon {

using ConstBytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;
using ByteBuffer = std::vector<std::byte>;

inline ConstBytes AsBytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}
inline std::string AsString(ConstBytes bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}
// What memory is mapped and registered by.
inline constexpr std::uint64_t kPage = 4096;
// The bytes of as many pages as hold `bytes`.
inline constexpr std::uint64_t WholePages(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Lower-case hexadecimal.
std::string ToHex(ConstBytes bytes);

// CRC-32C (Castagnoli, RFC 3720 appendix B.4) of `bytes`, continuing from `crc` (0 at the start).
// As fast as the processor's carry-less multiplication allows (ISA-L).
std::uint32_t Crc32c(ConstBytes bytes, std::uint32_t crc = 0);

}  // namespace poseidon

#endif  // POSEIDON_BASE_BYTES_H_
