// SPDX-License-Identifier: Apache-2.0
#include "poseidon/local/host_memory.h"

#include <string>
#include <utility>

namespace poseidon::local {

HostMemory::HostMemory(messaging::Mesh& mesh, std::vector<MemberId> members, std::size_t place)
    : mesh_(mesh), members_(std::move(members)), place_(place) {}

Status HostMemory::Declare(ModelId model, std::span<const plan::LayerSpec> layers) {
  model_ = model;
  declared_ = true;
  if (!is_shared()) return OkStatus();
  POSEIDON_ASSIGN_OR_RETURN(layout_, Layout::Of(layers, static_cast<std::uint32_t>(members_.size())));
  if (place_ > 0) return AttachIfBoth();
  POSEIDON_ASSIGN_OR_RETURN(segment_, Segment::Make(layout_.bytes()));
  wire::Segment offer = segment_->offer();
  offer.model = model;
  for (std::size_t place = 1; place < members_.size(); ++place) mesh_.SendControl(members_[place], wire::Encode(offer));
  return OkStatus();
}

Status HostMemory::Attach(MemberId from, const wire::Segment& offer) {
  if (from != members_.front() || place_ == 0 || offer_) {
    return DataLoss("shared memory is offered twice, or not by the first worker of this host");
  }
  offer_ = offer;
  return AttachIfBoth();
}

Status HostMemory::AttachIfBoth() {
  if (!offer_ || !declared_) return OkStatus();
  // Equal layers give an equal layout on every member. Another size means other layers, and this worker's offsets could
  // lead beyond the mapping.
  if (offer_->model != model_ || offer_->bytes != layout_.bytes()) {
    return DataLoss("the first worker of this host offers " + std::to_string(offer_->bytes) +
                    " bytes of shared memory, expected " + std::to_string(layout_.bytes()));
  }
  POSEIDON_ASSIGN_OR_RETURN(segment_, Segment::Attach(*offer_));
  return OkStatus();
}

void HostMemory::Close() {
  if (segment_) segment_->Close();
}

std::byte* HostMemory::SlotOf(LayerId layer, std::size_t place) const {
  return segment_->memory().data() + layout_.OffsetOf(layer, static_cast<std::uint32_t>(place));
}

std::byte* HostMemory::MeanOf(LayerId layer) const { return SlotOf(layer, members_.size()); }

sync::OwnMemory HostMemory::OwnOf(LayerId layer) const {
  return {{SlotOf(layer, place_), slot_bytes(layer)}, {MeanOf(layer), slot_bytes(layer)}, segment_};
}

}  // namespace poseidon::local
