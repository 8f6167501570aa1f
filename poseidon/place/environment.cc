// SPDX-License-Identifier: Apache-2.0
#include "poseidon/place/environment.h"

#include <cstddef>
#include <string>

namespace poseidon::place {

Environment VariablesOf(const char* const* entries) {
  Environment variables;
  for (; *entries != nullptr; ++entries) {
    const std::string text = *entries;
    if (const std::size_t equals = text.find('='); equals != std::string::npos) {
      variables[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  return variables;
}

}  // namespace poseidon::place
