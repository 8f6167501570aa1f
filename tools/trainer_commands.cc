// SPDX-License-Identifier: Apache-2.0
// The commands of a build with the trainer.
#include <cstddef>

#include "tools/commands.h"
#include "tools/console/fail.h"
#include "tools/profile/plan_command.h"
#include "tools/run/commands.h"
#include "tools/train/commands.h"
#include "tools/train/measure_net.h"
#include "tools/train/torch_version.h"

namespace poseidon::tools {
namespace {

void RefuseAnotherTorch(std::size_t) {
  if (const Status fits = TorchFits(); !fits.ok()) Fail(fits.message());
}

}  // namespace

void AddCommands(CLI::App& app) {
  AddTrain(app);
  AddTest(app);
  AddTime(app);
  profile::AddPlan(app, MeasureNet);
  AddProfile(app);
  AddDeviceQuery(app);
  AddConvertMnist(app);
  AddMember(app);
  for (CLI::App* command : app.get_subcommands({})) command->preparse_callback(RefuseAnotherTorch);
  // These compute nothing.
  AddRun(app);
  AddPythonCommands(app);
  AddRank(app);
}

}  // namespace poseidon::tools
