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
  std::vector<Block>& free = free_[ClassOf(bytes)];
  if (!free.empty()) {
    Block block = std::move(free.back());  // the one that came last is the warmest
    free.pop_back();
    free_bytes_ -= bytes;
    return block;
  }
  Block block{.memory = std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[bytes]), .bytes = bytes};
  if (block.memory != nullptr) allocated_ += bytes;
  return block;
}

void LandingBlocks::Return(Block block) {
  if (free_bytes_ + block.bytes > kKeptBytes) {
    allocated_ -= block.bytes;
    return;
  }
  free_bytes_ += block.bytes;
  std::vector<Block>& free = free_[ClassOf(block.bytes)];
  free.push_back(std::move(block));
}

}  // namespace poseidon::kv
