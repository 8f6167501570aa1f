// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sync/landings.h"

#include <string>
#include <utility>

namespace poseidon::sync {

// The payload lands at header.offset of the gradient, so every field is compared. A frame without bytes would otherwise
// match the end of a landed part and complete it a second time.
Result<std::size_t> Landings::Find(MemberId from, const wire::FrameHeader& header) const {
  if (header.step == step_ && header.dtype == gradient_.dtype && header.total == gradient_.bytes() &&
      header.length > 0) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      const bool next = header.offset == part.begin + part.landed;
      if (part.owner == from && next && header.length <= part.bytes - part.landed) return i;
    }
  }
  return DataLoss("a result for layer " + std::to_string(header.layer.value()) + ", step " +
                  std::to_string(header.step.value()) + " is not the one expected from member " +
                  std::to_string(from.value()));
}

Result<MutableBytes> Landings::PlaceFor(MemberId from, const wire::FrameHeader& header) const {
  POSEIDON_RETURN_IF_ERROR(Find(from, header).status());
  return gradient_.span().subspan(header.offset, header.length);
}

Result<bool> Landings::Landed(MemberId from, const wire::FrameHeader& header) {
  POSEIDON_ASSIGN_OR_RETURN(const std::size_t i, Find(from, header));
  parts_[i].landed += header.length;
  return parts_[i].landed == parts_[i].bytes;
}

void Landings::AddWaits(const wire::Key& key, std::vector<wire::Wait>* waits) const {
  wire::Wait wait{wire::Wait::For::kMean, key.model, key.layer, step_, {}};
  for (const Part& part : parts_) {
    // An owner may send several parts, which follow one another here.
    const bool named = !wait.on.empty() && wait.on.back() == part.owner;
    if (part.landed < part.bytes && !named) wait.on.push_back(part.owner);
  }
  if (!wait.on.empty()) waits->push_back(std::move(wait));
}

Status NothingPushed(const wire::FrameHeader& header) {
  return DataLoss("a result came for layer " + std::to_string(header.layer.value()) +
                  ", for which nothing was pushed");
}

}  // namespace poseidon::sync
