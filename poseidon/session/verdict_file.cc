// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/verdict_file.h"

#include <fstream>

namespace poseidon::session {
namespace {

void WriteInto(const std::string& path, const std::string& line) {
  std::ofstream file(path, std::ios::in | std::ios::out);
  file << line << std::endl;
}

}  // namespace

void WriteThatItJoins(const std::string& path) { WriteInto(path, "joins"); }

void WriteVerdict(const std::string& path, const Status& failure) {
  WriteInto(path, std::to_string(failure.culprit()) + " " + std::string(StatusCodeName(failure.code())) + " " + failure.message());
}

}  // namespace poseidon::session
