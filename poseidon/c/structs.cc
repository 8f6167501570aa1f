// SPDX-License-Identifier: Apache-2.0
#include "poseidon/c/structs.h"

#include "poseidon/plan/layer.h"
#include "poseidon/tensor/sum.h"

namespace poseidon::c {

Result<TensorView> TakeView(const poseidon_view* given, const std::string& what) {
  const Result<poseidon_view> taken = Take(given);
  if (!taken.ok()) return taken.status().WithPrefix(what);
  const poseidon_view& view = *taken;
  if (view.device_type != 0 && view.device_type != POSEIDON_HOST &&
      view.device_type != POSEIDON_PINNED_HOST) {
    return Unimplemented(what + " lies on a device of type " + std::to_string(view.device_type) +
                         ", expected host memory (" + std::to_string(POSEIDON_HOST) + ")");
  }
  if (view.ready != nullptr || view.done != nullptr) {
    return Unimplemented(what + " has device events, which host memory does not need");
  }
  const auto dtype = static_cast<DType>(view.dtype);
  if (view.dtype <= 0 || view.dtype > POSEIDON_I64 || !HasSum(dtype)) {
    return InvalidArgument(what + " has dtype " + std::to_string(view.dtype) +
                           ", expected POSEIDON_F32, POSEIDON_F64 or POSEIDON_I64");
  }
  if (view.elements > plan::kMaxElements) {
    return InvalidArgument(what + " has " + std::to_string(view.elements) +
                           " elements, expected at most " + std::to_string(plan::kMaxElements));
  }
  if (view.memory == nullptr && view.elements != 0) return InvalidArgument(what + " is NULL");
  if (reinterpret_cast<std::uintptr_t>(view.memory) % SizeOf(dtype) != 0) {
    return InvalidArgument(what + " is not aligned to its " + std::string(NameOf(dtype)));
  }
  return TensorView{static_cast<std::byte*>(view.memory), view.elements, dtype};
}

}  // namespace poseidon::c
