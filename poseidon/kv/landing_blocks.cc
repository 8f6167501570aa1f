// SPDX-License-Identifier: Apache-2.0
#include "poseidon/kv/landing_blocks.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace poseidon::kv {
namespace {

// Below this, classes would hold memory that no other class can use.
constexpr std::size_t kLeastBytes = 4096;

std::size_t ClassOf(std::size_t bytes) { return static_cast<std::size_t>(std::countr_zero(bytes)); }

}  // namespace

LandingBlocks::Block LandingBlocks::Take(std::size_t bytes) {
  bytes = std::bit_ceil(std::max(bytes, kLeastBytes));
  std::vector<std::unique_ptr<std::byte[]>>& free = free_[ClassOf(bytes)];
  if (!free.empty()) {
    Block block(free.back().release(), Return{this, bytes});  // the one that came last is the warmest
    free.pop_back();
    free_bytes_ -= bytes;
    return block;
  }
  Block block(new (std::nothrow) std::byte[bytes], Return{this, bytes});
  if (block != nullptr) allocated_ += bytes;
  return block;
}

void LandingBlocks::Keep(std::unique_ptr<std::byte[]> memory, std::size_t bytes) {
  if (free_bytes_ + bytes > kKeptBytes) {
    allocated_ -= bytes;
    return;
  }
  free_bytes_ += bytes;
  free_[ClassOf(bytes)].push_back(std::move(memory));
}

}  // namespace poseidon::kv
