// SPDX-License-Identifier: Apache-2.0
// Commands that the Python package has (frontends/python/poseidon): this program becomes Python for them.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tools/console/fail.h"
#include "tools/launch/child.h"
#include "tools/launch/cluster_flags.h"
#include "tools/run/commands.h"

namespace poseidon::tools {
namespace {

namespace fs = std::filesystem;

// The folder in which Python finds the package, and the interpreter: those of the checkout in which this program was
// built, or of the package that contains it.
std::pair<fs::path, std::string> PackageAndPython() {
  std::error_code error;
  const fs::path above = fs::path(launch::OwnProgram()).parent_path().parent_path().parent_path();  // of build/PRESET/bin, or poseidon/bin
  const fs::path checkout = above.parent_path();
  if (fs::exists(checkout / "frontends/python/poseidon/cli.py", error)) {
    const fs::path own = checkout / ".venv/bin/python3";
    return {checkout / "frontends/python", fs::exists(own, error) ? own.string() : "python3"};
  }
  return {above, "python3"};
}

void BecomePython(const std::string& name, const std::vector<std::string>& words) {
  const auto [package, python] = PackageAndPython();
  const char* const before = std::getenv("PYTHONPATH");
  const std::string path = package.string() + (before != nullptr ? ":" + std::string(before) : "");
  setenv("PYTHONPATH", path.c_str(), 1);
  setenv("POSEIDON_PROGRAM", launch::OwnProgram().c_str(), 1);
  std::vector<std::string> all = {python, "-m", "poseidon", name};
  all.insert(all.end(), words.begin(), words.end());
  const std::vector<char*> argv = launch::ArgvOf(all);
  execvp(argv[0], argv.data());
  Fail("'" + name + "' needs Python, and " + python + " cannot be run: " + ErrnoText(errno));
}

}  // namespace

void AddPythonCommands(CLI::App& app) {
  for (const auto& [name, description] : {std::pair<std::string, std::string>{"doctor", "Find what keeps a job from running well on hosts"},
                                          {"demo", "Two workers on this machine: trained, then one killed"}}) {
    CLI::App* const command = app.add_subcommand(name, description);
    command->prefix_command();
    command->set_help_flag();
    command->callback([name = name, command] { BecomePython(name, command->remaining()); });
  }
}

}  // namespace poseidon::tools
