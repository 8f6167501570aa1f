// SPDX-License-Identifier: Apache-2.0
// The commands of a build with the trainer.
#include <cstddef>
#include <vector>

#include "frontends/caffe/engine/engine_failure.h"
#include "frontends/caffe/train/torch_version.h"
#include "tools/commands.h"
#include "tools/console/fail.h"
#include "tools/logs/commands.h"
#include "tools/profile/plan_command.h"
#include "tools/profile/profile_command.h"
#include "tools/run/commands.h"
#include "tools/run/measured_script.h"
#include "tools/train/commands.h"
#include "tools/train/draw_net.h"
#include "tools/train/measure_net.h"
#include "tools/train/python_host.h"

namespace poseidon::tools {
namespace {

void RefuseAnotherTorch(std::size_t) {
  if (const Status fits = caffe::TorchFits(); !fits.ok()) Fail(fits.message());
}

Result<profile::Profile> ProfileNet(const profile::MeasureOptions& options) {
  RefuseAnotherTorch(0);
  return MeasureNet(options);
}

}  // namespace

void AddCommands(CLI::App& app) {
  OfferPythonLayers();
  // The first compute nothing.
  AddRun(app);
  AddPythonCommands(app);
  AddRank(app);
  AddLinks(app);
  logs::AddLogCommands(app);
  profile::AddProfile(app, ProfileNet, RunMeasured);  // a script computes with the torch of its own
  const std::size_t others = app.get_subcommands({}).size();
  profile::AddPlan(app, MeasureNet);
  AddTrain(app);
  AddTest(app);
  AddTime(app);
  AddConvertMnist(app);
  AddConvertCifarData(app);
  AddConvertImageset(app);
  AddComputeImageMean(app);
  AddPartitionData(app);
  AddExtractFeatures(app);
  AddUpgradeProto(app);
  AddExport(app);
  AddClassify(app);
  AddDetect(app);
  AddDeviceQuery(app);
  AddDrawNet(app, MeasureNet);
  AddMember(app);
  const std::vector<CLI::App*> commands = app.get_subcommands({});
  for (std::size_t i = others; i < commands.size(); ++i) commands[i]->preparse_callback(RefuseAnotherTorch);
}

Status FailureOf(const std::exception& error) { return caffe::EngineFailure(error); }

}  // namespace poseidon::tools
