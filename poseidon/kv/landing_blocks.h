// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_KV_LANDING_BLOCKS_H_
#define POSEIDON_KV_LANDING_BLOCKS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace poseidon::kv {

// Memory in which contributions land that must wait for other ranks' bytes. A block that has been summed is the next one
// handed out, while the processor's cache still has it: where ranks come in step, all contributions of a shard land in the
// few blocks by which they differ, however large the layers are.
//
// Memory: the most that has waited at once, less what is free beyond kKeptBytes. Thread: the owner's executor.
class LandingBlocks {
 public:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
  };
  // Free blocks beyond this go back to the system: one late rank does not cost memory for ever.
  static constexpr std::uint64_t kKeptBytes = std::uint64_t{64} << 20;

  // At least `bytes`; without memory where the system has none.
  Block Take(std::size_t bytes);
  void Return(Block block);

  // In use and free.
  std::uint64_t allocated_bytes() const { return allocated_; }

 private:
  // By the power of two that is their size.
  std::array<std::vector<Block>, 64> free_;
  std::uint64_t free_bytes_ = 0;
  std::uint64_t allocated_ = 0;
};

}  // namespace poseidon::kv

#endif  // POSEIDON_KV_LANDING_BLOCKS_H_
