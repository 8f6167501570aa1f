// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_LOCAL_SEGMENT_H_
#define POSEIDON_LOCAL_SEGMENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "poseidon/base/bytes.h"
#include "poseidon/base/result.h"
#include "poseidon/wire/messages.h"

namespace poseidon::local {

// No machine has so much; a bound on what an offer can make this process map.
inline constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 46;

// Memory that several processes of one machine map. It is never in a file system: whoever attaches
// opens the maker's descriptor below /proc, which the kernel allows the maker's own user only, and the
// memory is gone with the last process that maps it, however that ends. Pages cost memory when they
// are first touched; until then they are zero.
//
// Thread: any. What was written to it before a message is seen by whoever has received the message: both
// went through the kernel, or an executor's lock.
class Segment {
 public:
  // kResourceExhausted where there is not so much address space or no descriptor.
  static Result<std::unique_ptr<Segment>> Make(std::uint64_t bytes);
  // The segment that `offer` describes. kUnavailable where it cannot be reached, kDataLoss where what is
  // there is no such segment: another size, another nonce, or memory that its maker could still shrink.
  static Result<std::unique_ptr<Segment>> Attach(const wire::Segment& offer);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Returns the message by which another process can Attach, until Close. The maker's only.
  wire::Segment offer() const;
  // From now on nobody attaches. Of one that was attached to: no effect.
  void Close();

  // Page-aligned.
  MutableBytes memory() const;

 private:
  Segment() = default;
  Status Map(int descriptor, std::uint64_t bytes);

  int descriptor_ = -1;
  std::byte* mapped_ = nullptr;
  std::uint64_t bytes_ = 0;  // without the page that holds the nonce
};

// Returns a text that is equal in two processes that can share memory: it names the running kernel and the
// process ids that it shows to this process. Empty where the kernel says neither.
std::string ThisMachine();

}  // namespace poseidon::local

#endif  // POSEIDON_LOCAL_SEGMENT_H_
