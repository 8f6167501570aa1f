// SPDX-License-Identifier: Apache-2.0
#include "tools/train/net_flags.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <thread>

#include "frontends/caffe/layers/registry.h"
#include "frontends/caffe/net/subnormals.h"
#include "frontends/caffe/proto/forks.h"
#include "frontends/caffe/proto/upgrade.h"
#include "frontends/caffe/solver/nets.h"
#include "frontends/caffe/solver/snapshot.h"
#include "frontends/caffe/train/determinism.h"
#include "frontends/caffe/train/job_options.h"
#include "tools/console/fail.h"
#include "tools/console/shared_flags.h"
#include "tools/console/values.h"

namespace poseidon::tools {

void AddNetFlags(CLI::App& command, NetFlags& flags) {
  command.add_option("--model", flags.model, "Net, as Caffe has it")->type_name("PROTOTXT")->required()->check(InputFile());
  command.add_option("--weights", flags.weights, "Trained .caffemodel or .caffemodel.h5")->type_name("FILE")->check(SnapshotFiles());
  command.add_option("--phase", flags.phase, "Phase of the net")->check(OneOf({"TRAIN", "TEST"}));
  command.add_option("--iterations", flags.iterations, "Number of passes")->type_name("N")->check(WholeNumber(1, 1 << 30));
  AddStateFlags(command, flags.level, flags.stage);
  AddGpuFlag(command, flags.gpu);
  AddTf32Flag(command, flags.tf32);
  AddThreadsFlag(command, flags.threads);
}

CLI::Validator SnapshotFiles() {
  return {[](const std::string& paths) {
            std::istringstream each(paths);
            std::string path;
            do {
              std::getline(each, path, ',');
              if (const Status found = caffe::FindSnapshotFile(path); !found.ok()) return found.message();
              if (const std::string why = InputFile()(path); !why.empty()) return why;
            } while (!each.eof());
            return std::string();
          },
          ""};
}

void AddGpuFlag(CLI::App& command, std::string& gpu) {
  command.add_option("--gpu", gpu, "Compute on these GPUs, as in 0, 0,1 or all; without it on the CPU, or as the solver says")->type_name("IDS");
}

void AddTf32Flag(CLI::App& command, bool& tf32) {
  command.add_flag("--tf32", tf32, "GPUs may round what they multiply to TF32, which is faster and less exact");
}

namespace {

// Where a command that computes on one device does so; fails with a sentence where that is not there.
caffe::Placement PlacementOf(const NetFlags& flags) {
  if (flags.gpu.empty()) return {};
  const Result<caffe::Placement> placement = caffe::GpuOf(flags.gpu, 0);
  if (!placement.ok()) FailUsage(placement.status().message());
  if (flags.tf32) caffe::AllowTf32();
  static const caffe::Determinism determinism([](const std::string& sentence) { std::cerr << "poseidon: " << sentence << std::endl; });
  return *placement;
}

}  // namespace

Result<std::unique_ptr<caffe::Net>> TryBuildNet(const NetFlags& flags, const caffe::NetOptions& options) {
  caffe::FlushSubnormals();
  at::set_num_threads(flags.threads > 0
                          ? flags.threads
                          : static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  POSEIDON_ASSIGN_OR_RETURN(caffe::NetParameter parameters, caffe::ReadNet(flags.model, caffe::RefusalsOf));
  if (options.share.rank == 0) {
    for (const std::string& note : caffe::NotesOn({&parameters})) std::cerr << "poseidon: " << note << std::endl;
  }
  caffe::FindFilesBeside(std::filesystem::path(flags.model).parent_path().string(), &parameters);
  caffe::NetState state;
  state.set_phase(flags.phase == "TEST" ? caffe::TEST : caffe::TRAIN);
  state.set_level(flags.level);
  for (const std::string& stage : CommaParts(flags.stage)) state.add_stage(stage);
  POSEIDON_ASSIGN_OR_RETURN(auto net, caffe::Net::Create(parameters, state, caffe::MakeLayer, options));
  if (net->layer_count() == 0) return InvalidArgument(flags.model + " has no layers in phase " + caffe::Phase_Name(state.phase()));
  return net;
}

std::unique_ptr<caffe::Net> BuildNet(const NetFlags& flags) {
  caffe::NetOptions options;
  options.placement = PlacementOf(flags);
  std::unique_ptr<caffe::Net> net = OrFail(TryBuildNet(flags, options));
  if (!options.placement.on_host()) std::cerr << "poseidon: " << caffe::WhereItComputes(options.placement, *net) << std::endl;
  return net;
}

Result<std::string> TryLoadWeights(const NetFlags& flags, caffe::Net* net) {
  POSEIDON_ASSIGN_OR_RETURN(const caffe::WeightsReport report, caffe::LoadWeights(flags.weights, {net}));
  return InWords(report);
}

void LoadWeights(const NetFlags& flags, caffe::Net* net) {
  const std::string words = OrFail(TryLoadWeights(flags, net));
  if (!words.empty()) std::cerr << "poseidon: " << words << std::endl;
}

}  // namespace poseidon::tools
