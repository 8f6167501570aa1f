// SPDX-License-Identifier: Apache-2.0
// Any bytes at all: a control message is refused, or encodes to the same bytes.
#include <cstddef>
#include <cstdint>

#include "poseidon/base/check.h"
#include "poseidon/wire/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  const poseidon::ConstBytes bytes(reinterpret_cast<const std::byte*>(input), size);
  if (const auto message = poseidon::wire::Decode(bytes); message.ok()) {
    POSEIDON_CHECK(
        poseidon::wire::Encode(*message) == poseidon::ByteBuffer(bytes.begin(), bytes.end()),
        "a message changed on its way");
  }
  return 0;
}
