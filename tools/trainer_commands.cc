// SPDX-License-Identifier: Apache-2.0
// The commands of a build with the trainer.
#include "tools/commands.h"

namespace poseidon::tools {

void AddCommands(CLI::App& app) {
  AddTrain(app);
  AddRun(app);
  AddTest(app);
  AddTime(app);
  AddPlan(app);
  AddProfile(app);
  AddDeviceQuery(app);
  AddConvertMnist(app);
  AddPythonCommands(app);
  AddMember(app);
  AddRank(app);
}

}  // namespace poseidon::tools
