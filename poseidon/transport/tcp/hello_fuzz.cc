// SPDX-License-Identifier: Apache-2.0
// Feeds arbitrary bytes to both sides of the hello. Nobody can prove a token this way: an
// authenticated end is a finding, as is every crash.
#include <cstddef>
#include <cstdint>
#include <span>

#include "poseidon/transport/tcp/hello_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  poseidon::transport::tcp::FeedHello(std::as_bytes(std::span(bytes, size)));
  return 0;
}
