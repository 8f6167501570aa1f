// SPDX-License-Identifier: Apache-2.0
#include "poseidon/place/environment.h"

#include <string>

extern char** environ;

namespace poseidon::place {

Environment OwnEnvironment() {
  Environment own;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) own[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return own;
}

}  // namespace poseidon::place
