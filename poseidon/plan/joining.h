// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLAN_JOINING_H_
#define POSEIDON_PLAN_JOINING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "poseidon/plan/layer.h"

namespace poseidon::plan {

// The most bytes of layers that are joined: 1 ms at 1 Gbit/s, and cheap to copy into one piece.
inline constexpr std::uint64_t kMostJoinedBytes = 128 << 10;
// The same where gradients are on a device: a message costs the thread that trains 0.2 ms there, for the copies to the host and
// back and for the waits between streams, and 0.02 ms on the host.
inline constexpr std::uint64_t kMostJoinedOnDeviceBytes = 512 << 10;
// The most bytes of a product u^T v that is joined whole: 0.13 ms at 1 Gbit/s, which is what a message of its own, with its
// factors, would cost the processors of both ends. 64 x 64 numbers of f32.
inline constexpr std::uint64_t kMostJoinedProductBytes = 16 << 10;

// Which layers share a message, which costs the processors of both ends time whatever its size: for each of `layers`,
// in forward order, the index of the first of those it goes with, its own where it goes alone.
//
// A small layer joins the last small one of its dtype before it, over large ones in between. Together they leave with
// their last gradient, in general that of their first layer, and are waited for before that layer runs: exactly when
// its own message would have to travel. Layers that may go as factors stay alone where their product is larger than
// kMostJoinedProductBytes; tables do, and those named in `apart`. A message has at most `most_bytes`.
std::vector<std::size_t> JoinSmall(std::span<const LayerSpec> layers, const std::set<std::string, std::less<>>& apart = {},
                                   std::uint64_t most_bytes = kMostJoinedBytes);

}  // namespace poseidon::plan

#endif  // POSEIDON_PLAN_JOINING_H_
