// SPDX-License-Identifier: Apache-2.0
// Any 64 bytes: a frame header is refused, or within its bounds and encodes to the same bytes. The
// checksum is made right for every other input, or nothing behind it would ever be reached.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "poseidon/base/bytes.h"
#include "poseidon/base/check.h"
#include "poseidon/wire/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  using namespace poseidon::wire;
  std::array<std::byte, kHeaderBytes> bytes{};
  std::memcpy(bytes.data(), input, size < kHeaderBytes ? size : kHeaderBytes);
  if (size != kHeaderBytes) {
    constexpr std::size_t kChecked = kHeaderBytes - sizeof(std::uint32_t);
    const std::uint32_t crc = poseidon::Crc32c(poseidon::ConstBytes(bytes).first(kChecked));
    std::memcpy(bytes.data() + kChecked, &crc, sizeof crc);
  }
  if (const auto header = DecodeHeader(bytes); header.ok()) {
    POSEIDON_CHECK(header->length <= kMaxPayload, "a length above the bound was accepted");
    POSEIDON_CHECK(
        header->offset <= header->total && header->length <= header->total - header->offset,
        "a frame beyond its whole was accepted");
    std::array<std::byte, kHeaderBytes> again;
    EncodeHeader(*header, again);
    POSEIDON_CHECK(again == bytes, "a header changed on its way");
  }
  return 0;
}
