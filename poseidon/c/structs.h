// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_C_STRUCTS_H_
#define POSEIDON_C_STRUCTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "poseidon/base/exception.h"
#include "poseidon/base/result.h"
#include "poseidon/c/poseidon.h"
#include "poseidon/tensor/view.h"

// The header's structs of any version become the library's values, and answers become structs and codes. No
// exception leaves the library.
namespace poseidon::c {

// The end of the last field that a struct must have. Fields behind it may be missing and count as
// zero.
#define POSEIDON_THROUGH(type, field) (offsetof(type, field) + sizeof(type::field))

template <typename T>
struct Required;
#define POSEIDON_REQUIRED_THROUGH(type, field)                              \
  template <>                                                               \
  struct Required<type> {                                                   \
    static constexpr const char* kName = #type;                             \
    static constexpr std::size_t kBytes = POSEIDON_THROUGH(type, field);    \
  }
POSEIDON_REQUIRED_THROUGH(poseidon_options, servers);
POSEIDON_REQUIRED_THROUGH(poseidon_view, dtype);
POSEIDON_REQUIRED_THROUGH(poseidon_engine, multiply);
POSEIDON_REQUIRED_THROUGH(poseidon_device, copy_from_host);
POSEIDON_REQUIRED_THROUGH(poseidon_layer, forward_position);
POSEIDON_REQUIRED_THROUGH(poseidon_push, absent);
POSEIDON_REQUIRED_THROUGH(poseidon_factors, rows);
POSEIDON_REQUIRED_THROUGH(poseidon_rows, count);
POSEIDON_REQUIRED_THROUGH(poseidon_measurement, backward_seconds);
POSEIDON_REQUIRED_THROUGH(poseidon_span, end_nanoseconds);
POSEIDON_REQUIRED_THROUGH(poseidon_place_wanted, listen);
POSEIDON_REQUIRED_THROUGH(poseidon_place, job);
POSEIDON_REQUIRED_THROUGH(poseidon_meeting_options, timeout_seconds);
#undef POSEIDON_REQUIRED_THROUGH

// Returns the caller's struct, whichever version it was compiled with; fields that it lacks are zero.
template <typename T>
Result<T> Take(const T* given) {
  // Made where it is told alone: pushes come here many times a step.
  const auto name = [] { return std::string(Required<T>::kName); };
  if (given == nullptr) return InvalidArgument("the " + name() + " is NULL");
  const std::size_t size = given->struct_size;
  if (size < Required<T>::kBytes) {
    return InvalidArgument("the struct_size of a " + name() + " is " + std::to_string(size) +
                           ", expected at least " + std::to_string(Required<T>::kBytes) +
                           "; make it with POSEIDON_NEW");
  }
  if (size > sizeof(T)) {
    // A size that no version can have is an uninitialised struct, not one from the future.
    constexpr std::size_t kMost = 4096;
    const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
    if (size > kMost ||
        std::any_of(bytes + sizeof(T), bytes + size, [](unsigned char b) { return b != 0; })) {
      return Unimplemented("a " + name() + " of " + std::to_string(size) +
                           " bytes asks for what this library, which knows " +
                           std::to_string(sizeof(T)) + ", does not have");
    }
  }
  T taken{};
  std::memcpy(&taken, given, std::min(size, sizeof(T)));
  return taken;
}

// Fills as much of the caller's struct as it has.
template <typename T>
Status Give(const char* name, const T& value, T* to) {
  if (to == nullptr) return InvalidArgument("the " + std::string(name) + " is NULL");
  const std::size_t size = to->struct_size;
  if (size <= sizeof(std::size_t)) {
    return InvalidArgument("the struct_size of a " + std::string(name) +
                           " is not set; make it with POSEIDON_NEW");
  }
  T given = value;
  given.struct_size = size;
  std::memcpy(to, &given, std::min(size, sizeof(T)));
  return OkStatus();
}

// Copies `text` with a final zero, cut where it does not fit; a cut text ends in "...".
inline void CopyText(std::string_view text, char* to, std::size_t capacity) {
  if (to == nullptr || capacity == 0) return;
  const std::size_t kept = std::min(text.size(), capacity - 1);
  std::memcpy(to, text.data(), kept);
  to[kept] = '\0';
  if (kept < text.size() && kept >= 3) std::memcpy(to + kept - 3, "...", 3);
}

inline poseidon_code Answer(const Status& status, poseidon_status* to) {
  if (to != nullptr && to->struct_size >= POSEIDON_THROUGH(poseidon_status, culprit)) {
    // Field by field, and of the message what it says: a call in a loop does not pay for a page of zeros.
    to->code = static_cast<poseidon_code>(status.code());
    to->scope = static_cast<std::int32_t>(status.scope());
    to->culprit = status.culprit();
    const std::size_t size = std::min(to->struct_size, sizeof(poseidon_status));
    if (size >= POSEIDON_THROUGH(poseidon_status, reserved)) to->reserved = 0;
    if (size > offsetof(poseidon_status, message)) {
      CopyText(status.message(), to->message, size - offsetof(poseidon_status, message));
    }
  }
  return static_cast<poseidon_code>(status.code());
}

// Runs `f` and answers with its status; an exception becomes a failure.
template <typename F>
poseidon_code Answering(poseidon_status* to, F f) {
  try {
    return Answer(f(), to);
  } catch (const std::exception& error) {
    return Answer(ThrownStatus(error), to);
  } catch (...) {
    return Answer(Internal("a callback threw something that is no std::exception"), to);
  }
}

inline std::string TextOr(const char* text, const char* otherwise) {
  return text != nullptr ? text : otherwise;
}

// Names a view in the answer; called where there is something to say of it.
using Naming = std::function<std::string()>;

Result<TensorView> TakeView(const poseidon_view* given, const std::string& what);

// A view of host memory or of the session's device.
struct PlacedView {
  TensorView view;
  bool on_device = false;
  void* ready = nullptr;
};
Result<PlacedView> TakePlacedView(const poseidon_view* given, const Naming& what,
                                  const std::optional<poseidon_device>& device);

}  // namespace poseidon::c

#endif  // POSEIDON_C_STRUCTS_H_
