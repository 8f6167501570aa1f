// SPDX-License-Identifier: Apache-2.0
// The commands of a build without the trainer, which says where the others are.
#include <string>

#include "tools/commands.h"
#include "tools/console/fail.h"
#include "tools/logs/commands.h"
#include "tools/profile/plan_command.h"
#include "tools/profile/profile_command.h"
#include "tools/run/commands.h"
#include "tools/run/measured_script.h"

namespace poseidon::tools {
namespace {

constexpr const char* kBroughtBy = " needs the trainer: pip install poseidon_train_caffe-*.whl, which make wheel builds beside this one";

void AddElsewhere(CLI::App& app, const std::string& name, const std::string& description) {
  CLI::App* const command = app.add_subcommand(name, description + " (needs the trainer)");
  command->prefix_command();
  command->set_help_flag();
  command->callback([name] { Fail("'" + name + "'" + kBroughtBy); });
}

Result<profile::Profile> MeasureElsewhere(const profile::MeasureOptions& options) {
  return Unimplemented("measuring " + options.model + kBroughtBy + "; or give a profile that was measured elsewhere");
}

Result<profile::Profile> ProfileElsewhere(const profile::MeasureOptions&) { return Unimplemented(std::string("'profile'") + kBroughtBy); }

}  // namespace

void AddCommands(CLI::App& app) {
  AddRun(app);
  AddPythonCommands(app);
  AddRank(app);
  logs::AddLogCommands(app);
  profile::AddPlan(app, MeasureElsewhere);
  profile::AddProfile(app, ProfileElsewhere, RunMeasured);
  AddElsewhere(app, "train", "Train or fine-tune a Caffe model");
  AddElsewhere(app, "test", "Score a Caffe model");
  AddElsewhere(app, "time", "Time a Caffe net layer by layer");
  AddElsewhere(app, "convert-mnist", "Convert files like MNIST's (IDX) to LMDB");
  AddElsewhere(app, "device_query", "Show the devices of this machine");
  AddElsewhere(app, "draw_net", "Draw a Caffe net");
}

}  // namespace poseidon::tools
