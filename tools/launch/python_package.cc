// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/python_package.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tools/launch/cluster_flags.h"

namespace poseidon::launch {
namespace {

namespace fs = std::filesystem;

// The folder in which Python finds the package, and the interpreter.
std::pair<fs::path, std::string> PackageAndPython() {
  std::error_code error;
  // Of build/PRESET/bin, poseidon/bin or poseidon_caffe/bin.
  const fs::path above = fs::path(OwnProgram()).parent_path().parent_path().parent_path();
  const fs::path checkout = above.parent_path();
  if (fs::exists(checkout / "frontends/python/poseidon/cli.py", error)) {
    const fs::path own = checkout / ".venv/bin/python3";
    return {checkout / "frontends/python", fs::exists(own, error) ? own.string() : "python3"};
  }
  const char* const caller = std::getenv("POSEIDON_PYTHON");  // the package's own command, which became this program
  return {above, caller != nullptr ? caller : "python3"};
}

}  // namespace

std::string ShowPythonOurPackage() {
  const auto [package, python] = PackageAndPython();
  const char* const before = std::getenv("PYTHONPATH");
  const std::string path = package.string() + (before != nullptr ? ":" + std::string(before) : "");
  setenv("PYTHONPATH", path.c_str(), 1);
  setenv("POSEIDON_PROGRAM", OwnProgram().c_str(), 1);
  return python;
}

}  // namespace poseidon::launch
