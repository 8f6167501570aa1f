// SPDX-License-Identifier: Apache-2.0
// The commands of a build without the trainer, which says where the others are.
#include <string>

#include "poseidon/base/exception.h"
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
  AddLinks(app);
  logs::AddLogCommands(app);
  profile::AddPlan(app, MeasureElsewhere);
  profile::AddProfile(app, ProfileElsewhere, RunMeasured);
  AddElsewhere(app, "train", "Train or fine-tune a Caffe model");
  AddElsewhere(app, "test", "Score a Caffe model");
  AddElsewhere(app, "time", "Time a Caffe net layer by layer");
  AddElsewhere(app, "convert-mnist", "Convert files like MNIST's (IDX) to a database");
  AddElsewhere(app, "convert_mnist_data", "Convert files like MNIST's (IDX) to a database");
  AddElsewhere(app, "convert_cifar_data", "Convert CIFAR-10's binary files to a database for training and one for tests");
  AddElsewhere(app, "convert_imageset", "Convert the images of a list to a database");
  AddElsewhere(app, "compute_image_mean", "Compute the mean image of a database");
  AddElsewhere(app, "partition_data", "Deal a database's records out to several databases");
  AddElsewhere(app, "extract_features", "Write blobs of a trained net, over batches of its data, into databases");
  AddElsewhere(app, "upgrade_net_proto_text", "Write an old net prototxt in today's form");
  AddElsewhere(app, "upgrade_net_proto_binary", "Write an old caffemodel in today's form");
  AddElsewhere(app, "upgrade_solver_proto_text", "Write an old solver prototxt in today's form");
  AddElsewhere(app, "export", "Write a Caffe model as ONNX or safetensors, or read it back");
  AddElsewhere(app, "classify", "Say what a trained net takes images for");
  AddElsewhere(app, "detect", "Say what a trained net takes windows of images for");
  AddElsewhere(app, "device_query", "Show the devices of this machine");
  AddElsewhere(app, "draw_net", "Draw a Caffe net");
}

Status FailureOf(const std::exception& error) { return ThrownStatus(error); }

}  // namespace poseidon::tools
