// SPDX-License-Identifier: Apache-2.0
#include "tools/console/shared_flags.h"

#include "tools/console/values.h"

namespace poseidon::tools {

void AddStateFlags(CLI::App& command, int& level, std::string& stages) {
  command.add_option("--level", level, "Level of the net's state")->type_name("N")->check(WholeNumber());
  command.add_option("--stage", stages, "Stages of the net's state")->type_name("NAME[,NAME...]");
}

void AddThreadsFlag(CLI::App& command, int& threads) {
  command.add_option("--threads", threads, "Compute threads; without it as many as there are cores")
      ->type_name("N")
      ->check(WholeNumber(1, 1024))
      ->default_str("");
}

}  // namespace poseidon::tools
