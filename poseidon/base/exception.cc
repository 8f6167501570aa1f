// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/exception.h"

#include <new>
#include <string>

namespace poseidon {

Status ThrownStatus(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return ResourceExhausted("out of memory");
  }
  const std::string text = error.what();
  // The compute library's allocator throws no std::bad_alloc.
  const std::string asked = "you tried to allocate ";
  if (const std::size_t at = text.find(asked); at != std::string::npos) {
    const std::size_t number = at + asked.size();
    return ResourceExhausted("out of memory: " +
                             text.substr(number, text.find_first_not_of("0123456789", number) - number) +
                             " bytes could not be had");
  }
  return Internal(text.substr(0, text.find('\n')));
}

}  // namespace poseidon
