// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/replay/program.h"

#include <cstdio>
#include <string>

namespace poseidon::replay {
namespace {

int Fail(const CLI::App& app, const std::string& sentence) {
  std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), sentence.c_str());
  return 1;
}

}  // namespace

int RunProgram(CLI::App& app, int argc, char** argv, const std::function<Status()>& run) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return Fail(app, std::string(error.what()) + " (see " + app.get_name() + " --help)");
  }
  const Status status = run();
  return status.ok() ? 0 : Fail(app, status.message());
}

}  // namespace poseidon::replay
