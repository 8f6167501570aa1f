// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_LANDINGS_H_
#define POSEIDON_SYNC_LANDINGS_H_

#include <cstdint>
#include <vector>

#include "poseidon/base/bytes.h"
#include "poseidon/base/result.h"
#include "poseidon/base/strong_id.h"
#include "poseidon/tensor/view.h"
#include "poseidon/wire/frame.h"
#include "poseidon/wire/messages.h"

namespace poseidon::sync {

// Knows where the parts of a layer's mean land in the gradient of one step, and which frame may come next: a part is a
// stretch of the gradient, comes from its owner, and from its beginning to its end.
//
// Thread: the I/O executor. Lifetime: the gradient's memory outlives it.
class Landings {
 public:
  Landings() = default;
  Landings(Step step, TensorView gradient) : step_(step), gradient_(gradient) {}

  // Begins another step, of which nothing is expected yet. The list of parts keeps its memory.
  void Begin(Step step, TensorView gradient) {
    step_ = step;
    gradient_ = gradient;
    parts_.clear();
  }

  // `bytes` of the gradient from `begin` on come from this owner.
  void Expect(MemberId owner, std::uint64_t begin, std::uint64_t bytes) { parts_.push_back({owner, begin, bytes}); }

  // Returns where the frame's bytes land. kDataLoss where another step, owner or stretch is expected.
  Result<MutableBytes> PlaceFor(MemberId from, const wire::FrameHeader& header) const;
  // The frame's bytes have landed; returns whether they end a part. Fails as PlaceFor does.
  Result<bool> Landed(MemberId from, const wire::FrameHeader& header);

  // Adds the parts of `key` that are not whole, with their owners.
  void AddWaits(const wire::Key& key, std::vector<wire::Wait>* waits) const;

 private:
  struct Part {
    MemberId owner;
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
    std::uint64_t landed = 0;
  };
  Result<std::size_t> Find(MemberId from, const wire::FrameHeader& header) const;

  Step step_;
  TensorView gradient_;
  std::vector<Part> parts_;
};

// The failure of a result frame for which no request is outstanding.
Status NothingPushed(const wire::FrameHeader& header);

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_LANDINGS_H_
