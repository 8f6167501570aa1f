// SPDX-License-Identifier: Apache-2.0
// Any bytes at all: decoding a plan or a list of layers refuses them or yields what encodes to
// them.
#include <cstddef>
#include <cstdint>

#include "poseidon/base/check.h"
#include "poseidon/wire/plan_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  const poseidon::ConstBytes bytes(reinterpret_cast<const std::byte*>(input), size);
  const poseidon::ByteBuffer copy(bytes.begin(), bytes.end());
  if (const auto plan = poseidon::wire::DecodePlan(bytes); plan.ok()) {
    POSEIDON_CHECK(poseidon::wire::EncodePlan(*plan) == copy, "a plan changed on its way");
  }
  if (const auto layers = poseidon::wire::DecodeLayers(bytes); layers.ok()) {
    POSEIDON_CHECK(poseidon::wire::EncodeLayers(*layers) == copy, "layers changed on their way");
  }
  return 0;
}
