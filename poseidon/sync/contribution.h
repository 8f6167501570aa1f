// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_CONTRIBUTION_H_
#define POSEIDON_SYNC_CONTRIBUTION_H_

#include <cstdint>
#include <optional>

#include "poseidon/base/strong_id.h"
#include "poseidon/device/device.h"
#include "poseidon/tensor/view.h"

namespace poseidon::sync {

// What one worker, or all workers of one host together, bring to one step of one layer, and where its mean lands.
//
// The core hands it down from the front end's push to the exchange that sends it. Each struct on this way derives from
// it and is made of it as a whole, so that no field has to be named twice.
struct Contribution {
  Step step;
  // The flat gradient, weight then bias: what is sent where the plan's scheme takes gradients, and where the mean lands
  // under every scheme. None where the mean is gathered.
  TensorView gradient = {};
  // Sent instead where the scheme takes factors; unchanged while it is lent. Rows may be 0. Of a table: its indices and
  // values.
  std::optional<Factors> factors = std::nullopt;
  bool absent = false;        // contributes nothing (unused parameter, uneven end), receives the mean of the others
  std::uint32_t weight = 0;   // in the mean; 0: unweighted
  std::uint32_t rows = 0;     // gradient rows of a layer that could send factors and goes whole, for the planner
  // Gradient and factors are memory of the session's device, and hold their numbers once `ready` has happened.
  bool on_device = false;
  device::Event ready = nullptr;
  // The gradient holds none of its numbers yet: they come from its beginning on, as Arrived says. Only of a dense
  // gradient in host memory that is not absent.
  bool in_parts = false;

  friend bool operator==(const Contribution&, const Contribution&) = default;
};

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_CONTRIBUTION_H_
