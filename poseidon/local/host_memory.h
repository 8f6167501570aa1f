// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_LOCAL_HOST_MEMORY_H_
#define POSEIDON_LOCAL_HOST_MEMORY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "poseidon/local/layout.h"
#include "poseidon/local/segment.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/sync/exchange.h"

namespace poseidon::local {

// The memory in which a host's workers combine one model: a slot for each layer and worker, and one for each layer's mean.
// The worker of the lowest rank makes it, the others attach.
//
// Thread: the mesh's executor. Lifetime: the mesh outlives it.
class HostMemory {
 public:
  // `members`: the host's workers in rank order; `place`: this one's among them.
  HostMemory(messaging::Mesh& mesh, std::vector<MemberId> members, std::size_t place);

  // Both in any order, each once: the layers, and the maker's segment for them. The maker makes it in Declare, and offers it;
  // alone on its host it needs none. kResourceExhausted, kUnavailable, kDataLoss: see Layout and Segment.
  Status Declare(ModelId model, std::span<const plan::LayerSpec> layers);
  Status Attach(MemberId from, const wire::Segment& offer);
  bool attached() const { return segment_ != nullptr; }
  // All have attached; nobody does from now on. The maker's.
  void Close();

  // Whether there is any: alone on its host a worker needs none. Pre of what follows.
  bool is_shared() const { return members_.size() > 1; }
  std::byte* SlotOf(LayerId layer, std::size_t place) const;
  std::byte* MeanOf(LayerId layer) const;
  std::uint64_t slot_bytes(LayerId layer) const { return layout_.slot_bytes(layer); }
  // Of this worker: its own slot, and the mean.
  sync::OwnMemory OwnOf(LayerId layer) const;

 private:
  Status AttachIfBoth();

  messaging::Mesh& mesh_;
  const std::vector<MemberId> members_;
  const std::size_t place_;
  ModelId model_;
  bool declared_ = false;
  Layout layout_;
  std::optional<wire::Segment> offer_;
  std::shared_ptr<Segment> segment_;
};

}  // namespace poseidon::local

#endif  // POSEIDON_LOCAL_HOST_MEMORY_H_
