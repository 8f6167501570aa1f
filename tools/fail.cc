// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "tools/commands.h"

namespace poseidon::tools {

void Fail(const std::string& sentence, int code) {
  std::cerr << "poseidon: " << sentence << std::endl;
  throw CLI::RuntimeError(code);
}

}  // namespace poseidon::tools
