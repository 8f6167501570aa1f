// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_STAGING_H_
#define POSEIDON_SYNC_STAGING_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "poseidon/device/device.h"
#include "poseidon/sync/exchange.h"

namespace poseidon::sync {

// Host memory for what one layer of a device brings, and for its mean. It is the exchange's own (Exchange::MemoryOf) where that has
// any and the device takes it; otherwise a buffer of the gradient's size, and one of the factors where they are sent, both
// allocated at first use.
//
// Thread: the I/O executor.
class Staging {
 public:
  explicit Staging(const plan::LayerSpec& layer);

  // Makes room for what the request brings, on the device, and for its mean. The layer's last request has ended. kResourceExhausted
  // where there is none.
  Status MakeRoom(const wire::Key& key, const SyncRequest& request, const Exchange& exchange, device::Device& device);

  // The rest is of the request that MakeRoom was asked for.

  // What its gradient is to the exchange.
  MutableBytes gradient() const { return in_own_ ? own_->brought : buffer_.bytes(); }
  // Where its mean lands.
  ConstBytes mean() const { return in_own_ ? own_->mean : buffer_.bytes(); }
  MutableBytes u() const { return factors().first(u_bytes_); }
  MutableBytes v() const { return factors().subspan(u_bytes_, v_bytes_); }

  // Of its buffers.
  std::uint64_t allocated_bytes() const;

 private:
  MutableBytes factors() const { return in_own_ ? own_->brought : factors_.bytes(); }
  bool OwnHolds(std::uint64_t brought_bytes, std::uint64_t mean_bytes, device::Device& device);

  const std::uint64_t u_row_bytes_;  // 0 for a layer without factors
  const std::uint64_t v_row_bytes_;
  std::uint64_t u_bytes_ = 0;
  std::uint64_t v_bytes_ = 0;
  std::optional<OwnMemory> own_;
  bool in_own_ = false;  // this request: one scheme's exchange may have memory of its own, and another's not
  bool is_refused_ = false;  // by the device
  device::HostBuffer brought_;  // as much of it as the device has registered
  device::HostBuffer mean_;
  device::HostBuffer buffer_;
  device::HostBuffer factors_;
};

// Of every layer that may be on the device. One for all schemes, because a layer takes one at a time. Shared with the steps under
// way: a copy may outlive the exchanges when the job ends.
using StagingByLayer = std::map<wire::Key, std::shared_ptr<Staging>>;

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_STAGING_H_
