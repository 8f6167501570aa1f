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
  // Brings a block back.
  struct Return {
    LandingBlocks* blocks = nullptr;
    std::size_t bytes = 0;
    void operator()(std::byte* memory) const { blocks->Keep(std::unique_ptr<std::byte[]>(memory), bytes); }
  };
  // Comes back when it is destroyed, which the blocks outlive.
  using Block = std::unique_ptr<std::byte[], Return>;
  // Free blocks beyond this go back to the system: one late rank does not cost memory for ever.
  static constexpr std::uint64_t kKeptBytes = std::uint64_t{64} << 20;

  // At least `bytes`; null where the system has no memory.
  Block Take(std::size_t bytes);

  std::uint64_t bytes_in_use() const { return allocated_ - free_bytes_; }
  // In use and free.
  std::uint64_t allocated_bytes() const { return allocated_; }

 private:
  void Keep(std::unique_ptr<std::byte[]> memory, std::size_t bytes);

  // By the power of two that is their size.
  std::array<std::vector<std::unique_ptr<std::byte[]>>, 64> free_;
  std::uint64_t free_bytes_ = 0;
  std::uint64_t allocated_ = 0;
};

}  // namespace poseidon::kv

#endif  // POSEIDON_KV_LANDING_BLOCKS_H_
