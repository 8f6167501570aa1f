// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/bytes.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace poseidon {
namespace {

constexpr std::array<std::uint32_t, 256> MakeTable() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}

std::uint32_t Crc32cTable(const unsigned char* data, std::size_t size, std::uint32_t crc) {
  static constexpr std::array<std::uint32_t, 256> kTable = MakeTable();
  for (std::size_t i = 0; i < size; ++i) crc = (crc >> 8) ^ kTable[(crc ^ data[i]) & 0xff];
  return crc;
}

#if defined(__x86_64__)
// The instruction gives a result three cycles after its operands but starts anew every cycle, so
// three stretches are summed side by side and joined: appending n bytes to a stretch is a linear map
// of its checksum, the one that n zero bytes make.
constexpr std::size_t kStretch = 1024;

using ZerosMap = std::array<std::array<std::uint32_t, 256>, 4>;

// For each byte of a checksum, what it becomes when kStretch zero bytes follow.
constexpr ZerosMap MakeZerosMap() {
  constexpr std::array<std::uint32_t, 256> kTable = MakeTable();
  ZerosMap map{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    std::uint32_t crc = 1u << bit;
    for (std::size_t i = 0; i < kStretch; ++i) crc = (crc >> 8) ^ kTable[crc & 0xff];
    for (std::size_t value = 0; value < 256; ++value) {
      if ((value >> (bit % 8) & 1) != 0) map[bit / 8][value] ^= crc;
    }
  }
  return map;
}

std::uint32_t AfterStretch(std::uint64_t crc) {
  static constexpr ZerosMap kMap = MakeZerosMap();
  return kMap[0][crc & 0xff] ^ kMap[1][crc >> 8 & 0xff] ^ kMap[2][crc >> 16 & 0xff] ^
         kMap[3][crc >> 24 & 0xff];
}

std::uint64_t Word(const unsigned char* data) {
  std::uint64_t word;
  std::memcpy(&word, data, sizeof(word));
  return word;
}

__attribute__((target("sse4.2"))) std::uint32_t Crc32cSse(const unsigned char* data,
                                                          std::size_t size, std::uint32_t crc) {
  std::uint64_t wide = crc;
  for (; size >= 3 * kStretch; data += 3 * kStretch, size -= 3 * kStretch) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < kStretch; i += 8) {
      wide = _mm_crc32_u64(wide, Word(data + i));
      second = _mm_crc32_u64(second, Word(data + kStretch + i));
      third = _mm_crc32_u64(third, Word(data + 2 * kStretch + i));
    }
    wide = AfterStretch(AfterStretch(wide) ^ second) ^ third;
  }
  for (; size >= 8; data += 8, size -= 8) wide = _mm_crc32_u64(wide, Word(data));
  auto narrow = static_cast<std::uint32_t>(wide);
  while (size-- > 0) narrow = _mm_crc32_u8(narrow, *data++);
  return narrow;
}
#endif

}  // namespace

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
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~Crc32cSse(data, bytes.size(), ~crc);
#endif
  return ~Crc32cTable(data, bytes.size(), ~crc);
}

}  // namespace poseidon
