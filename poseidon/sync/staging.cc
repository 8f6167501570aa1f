// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sync/staging.h"

#include <utility>

#include "poseidon/base/bytes.h"

namespace poseidon::sync {
namespace {

// A device registers a range once, so what it has is given up before it is asked for more.
bool Registered(MutableBytes memory, std::uint64_t bytes, device::Device& device, device::HostBuffer* buffer) {
  if (buffer->bytes().size() >= bytes) return true;
  const std::uint64_t pages = WholePages(bytes);
  if (pages > memory.size()) return false;
  *buffer = {};
  Result<device::HostBuffer> registered = device.RegisterHost(memory.first(pages));
  if (!registered.ok()) return false;
  *buffer = *std::move(registered);
  return true;
}

Status Allocated(std::uint64_t bytes, device::Device& device, device::HostBuffer* buffer) {
  if (buffer->bytes().size() >= bytes) return OkStatus();
  POSEIDON_ASSIGN_OR_RETURN(*buffer, device.AllocateHost(bytes));
  return OkStatus();
}

}  // namespace

Staging::Staging(const plan::LayerSpec& layer)
    : u_row_bytes_(layer.factors ? layer.factors->u_bytes_per_row(layer.dtype) : 0),
      v_row_bytes_(layer.factors ? layer.factors->v_bytes_per_row(layer.dtype) : 0) {}

Status Staging::MakeRoom(const wire::Key& key, const SyncRequest& request, const Exchange& exchange, device::Device& device) {
  const std::uint64_t rows = request.factors ? request.factors->rows : 0;
  u_bytes_ = rows * u_row_bytes_;
  v_bytes_ = rows * v_row_bytes_;
  const std::uint64_t gradient = request.gradient.bytes();
  const std::optional<OwnMemory> own = is_refused_ ? std::nullopt : exchange.MemoryOf(key);
  if (own && !own_) own_ = own;
  in_own_ = own && OwnHolds(request.factors ? u_bytes_ + v_bytes_ : gradient, gradient, device);
  if (in_own_) return OkStatus();
  POSEIDON_RETURN_IF_ERROR(Allocated(gradient, device, &buffer_));
  return Allocated(u_bytes_ + v_bytes_, device, &factors_);
}

// Once it does not, this layer has buffers for good, so that every step takes the same time.
bool Staging::OwnHolds(std::uint64_t brought_bytes, std::uint64_t mean_bytes, device::Device& device) {
  if (Registered(own_->brought, brought_bytes, device, &brought_) && Registered(own_->mean, mean_bytes, device, &mean_)) {
    return true;
  }
  brought_ = {};
  mean_ = {};
  own_.reset();
  is_refused_ = true;
  return false;
}

std::uint64_t Staging::allocated_bytes() const { return buffer_.bytes().size() + factors_.bytes().size(); }

}  // namespace poseidon::sync
