// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_WIRE_PLAN_CODEC_H_
#define POSEIDON_WIRE_PLAN_CODEC_H_

#include <span>
#include <vector>

#include "poseidon/base/bytes.h"
#include "poseidon/base/result.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/plan.h"

// Declared layers and plans as bytes: in messages, and in files that must hold a plan exactly.
// Decoding trusts nothing: kDataLoss for bytes that no encoder wrote, kInvalidArgument naming the
// layer for layers that no front end may declare. Whatever was decoded encodes to the same bytes.
namespace poseidon::wire {

ByteBuffer EncodeLayers(std::span<const plan::LayerSpec> layers);
Result<std::vector<plan::LayerSpec>> DecodeLayers(ConstBytes bytes);

ByteBuffer EncodePlan(const plan::Plan& plan);
// A plan in itself: its layers are numbered in order, its rates and times are finite and not
// negative. That it fits the declared layers is checked by whoever has both: CheckPlanFits.
Result<plan::Plan> DecodePlan(ConstBytes bytes);

// OK when `plan` has a scheme for each of `layers`, factors only where the layer has them, and row
// counts for each worker or none; else kInvalidArgument naming the layer. Whoever acts on a plan
// that came from outside asks this first.
Status CheckPlanFits(const plan::Plan& plan, std::span<const plan::LayerSpec> layers);

}  // namespace poseidon::wire

#endif  // POSEIDON_WIRE_PLAN_CODEC_H_
