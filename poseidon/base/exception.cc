// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/exception.h"

#include <new>
#include <string>
#include <utility>

namespace poseidon {

std::optional<Status> MissingMemory(std::string_view text) {
  // The library throws no std::bad_alloc here, so that its sentence is all there is to go by (base_test has it whole).
  constexpr std::string_view kAsked = "you tried to allocate ";
  const std::size_t asked = text.find(kAsked);
  if (asked == std::string_view::npos) return std::nullopt;
  const std::string_view number = text.substr(asked + kAsked.size());
  return ResourceExhausted("out of memory: cannot allocate " +
                           std::string(number.substr(0, number.find_first_not_of("0123456789"))) + " bytes");
}

Status ThrownStatus(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return ResourceExhausted("out of memory");
  const std::string text = error.what();
  if (std::optional<Status> missing = MissingMemory(text)) return *std::move(missing);
  return Internal(text.substr(0, text.find('\n')));
}

}  // namespace poseidon
