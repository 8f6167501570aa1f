// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SYNC_STRATEGY_H_
#define POSEIDON_SYNC_STRATEGY_H_

#include "poseidon/messaging/flow.h"
#include "poseidon/messaging/order.h"
#include "poseidon/plan/compression.h"
#include "poseidon/plan/slices.h"

namespace poseidon::sync {

// How a job communicates, beside the scheme of each layer: which bytes leave first, where slices live, how many bytes
// are committed to a connection at a time, and whether factors leave without their zeros. The default is Poseidon's;
// other values are those of published systems, for comparisons on the same code (docs/decisions/order-on-the-wire.md).
// Order and placement are the same on every member.
struct Strategy {
  messaging::Order order = messaging::Order::kNextForward;
  plan::Placement placement = plan::Placement::kEven;
  messaging::Flow flow = {};   // until the link has been measured, which then decides
  bool flow_is_fixed = false;  // `flow` holds all the time
  plan::ZeroCompression zero_compression = plan::ZeroCompression::kAuto;

  friend bool operator==(const Strategy&, const Strategy&) = default;
};

}  // namespace poseidon::sync

#endif  // POSEIDON_SYNC_STRATEGY_H_
