// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "tools/commands.h"

namespace poseidon::tools {

bool IsMemberLost(const Status& failure) {
  if (failure.culprit() != kNoCulprit) return true;
  return failure.scope() == StatusScope::kJob && (failure.code() == StatusCode::kUnavailable ||
                                                  failure.code() == StatusCode::kDeadlineExceeded);
}

void Fail(const std::string& sentence, int code) {
  std::cerr << "poseidon: " << sentence << std::endl;
  throw CLI::RuntimeError(code);
}

}  // namespace poseidon::tools
