// SPDX-License-Identifier: Apache-2.0
#include "tools/console/fail.h"

#include <unistd.h>

#include <CLI/CLI.hpp>

#include "tools/console/colour.h"
#include "tools/console/line_writer.h"

namespace poseidon::tools {

void Fail(const std::string& sentence, int code) {
  StandardError().Write(InColour(ShowsColours(STDERR_FILENO) ? kRed : nullptr, "poseidon:") + " " + sentence + "\n");
  throw CLI::RuntimeError(code);
}

void FailUsage(const std::string& sentence) { Fail(sentence, kExitUsage); }

void OrFail(const Status& status) {
  if (!status.ok()) Fail(status.message());
}

void OrFailUsage(const Status& status) {
  if (!status.ok()) FailUsage(status.message());
}

bool IsMemberLost(const Status& failure) {
  if (failure.culprit() != kNoCulprit) return true;
  return failure.scope() == StatusScope::kJob && (failure.code() == StatusCode::kUnavailable ||
                                                  failure.code() == StatusCode::kDeadlineExceeded);
}

}  // namespace poseidon::tools
