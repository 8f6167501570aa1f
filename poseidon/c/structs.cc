// SPDX-License-Identifier: Apache-2.0
#include "poseidon/c/structs.h"

#include "poseidon/plan/layer.h"
#include "poseidon/tensor/sum.h"

namespace poseidon::c {

namespace {

bool OnHost(const poseidon_view& view) {
  return view.device_type == 0 || view.device_type == POSEIDON_HOST || view.device_type == POSEIDON_PINNED_HOST;
}

Result<TensorView> CheckedView(const poseidon_view& view, const Naming& what) {
  // The cast keeps the lowest byte alone, so the number is bounded as it came.
  const auto dtype = static_cast<DType>(view.dtype);
  if (view.dtype <= 0 || view.dtype > POSEIDON_I64 || !HasSum(dtype)) {
    return InvalidArgument(what() + " has dtype " + std::to_string(view.dtype) +
                           ", expected POSEIDON_F32, POSEIDON_F64 or POSEIDON_I64");
  }
  // Within this bound the size in bytes fits 64 bits.
  if (view.elements > plan::kMaxElements) {
    return InvalidArgument(what() + " has " + std::to_string(view.elements) +
                           " elements, expected at most " + std::to_string(plan::kMaxElements));
  }
  if (view.memory == nullptr && view.elements != 0) return InvalidArgument(what() + " is NULL");
  if (reinterpret_cast<std::uintptr_t>(view.memory) % SizeOf(dtype) != 0) {
    return InvalidArgument(what() + " is not aligned to its " + std::string(NameOf(dtype)));
  }
  return TensorView{static_cast<std::byte*>(view.memory), view.elements, dtype};
}

}  // namespace

Result<TensorView> TakeView(const poseidon_view* given, const std::string& what) {
  POSEIDON_ASSIGN_OR_RETURN(const PlacedView placed, TakePlacedView(given, [&] { return what; }, std::nullopt));
  return placed.view;
}

Result<PlacedView> TakePlacedView(const poseidon_view* given, const Naming& what,
                                  const std::optional<poseidon_device>& device) {
  const Result<poseidon_view> taken = Take(given);
  if (!taken.ok()) return taken.status().WithPrefix(what());
  const poseidon_view& view = *taken;
  PlacedView placed{.on_device = !OnHost(view), .ready = view.ready};
  const bool known = device && device->device_type == view.device_type && device->device_id == view.device_id;
  if (placed.on_device && !known) {
    return Unimplemented(what() + " is on device " + std::to_string(view.device_id) + " of type " +
                         std::to_string(view.device_type) + ", expected host memory (" +
                         std::to_string(POSEIDON_HOST) + ")" +
                         (device ? " or the session's device " + std::to_string(device->device_id) + " of type " +
                                       std::to_string(device->device_type)
                                 : ""));
  }
  if (!placed.on_device && view.ready != nullptr) {
    return Unimplemented(what() + " has a device's event, which host memory does not need");
  }
  POSEIDON_ASSIGN_OR_RETURN(placed.view, CheckedView(view, what));
  return placed;
}

}  // namespace poseidon::c
