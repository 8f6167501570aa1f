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
#include "frontends/caffe/proto/upgrade.h"
#include "frontends/caffe/solver/nets.h"
#include "frontends/caffe/solver/snapshot.h"
#include "tools/console/fail.h"

namespace poseidon::tools {

void AddNetFlags(CLI::App& command, NetFlags& flags) {
  command.add_option("--model", flags.model, "Net prototxt")->required();
  command.add_option("--weights", flags.weights, "Trained .caffemodel or .caffemodel.h5");
  command.add_option("--phase", flags.phase, "TRAIN or TEST")->check(CLI::IsMember({"TRAIN", "TEST"}));
  command.add_option("--iterations", flags.iterations, "Number of passes")->check(CLI::Range(1, 1 << 30));
  command.add_option("--level", flags.level, "Network level");
  command.add_option("--stage", flags.stage, "Network stages, comma-separated");
  AddGpuFlag(command, flags.gpu);
  command.add_option("--threads", flags.threads, "Compute threads")->check(CLI::Range(1, 1024));
}

void AddGpuFlag(CLI::App& command, std::string& gpu) {
  command.add_option("--gpu", gpu, "GPU ids (this build computes on the CPU)");
}

void RefuseGpu(const std::string& gpu) {
  if (!gpu.empty()) Fail("--gpu " + gpu + ": this build computes on the CPU; leave the flag out");
}

std::unique_ptr<caffe::Net> BuildNet(const NetFlags& flags) {
  RefuseGpu(flags.gpu);
  caffe::FlushSubnormals();
  at::set_num_threads(flags.threads > 0
                          ? flags.threads
                          : static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  Result<caffe::NetParameter> parameters = caffe::ReadNet(flags.model, caffe::IsLayerType);
  if (!parameters.ok()) Fail(parameters.status().message());
  caffe::FindFilesBeside(std::filesystem::path(flags.model).parent_path().string(), &*parameters);
  caffe::NetState state;
  state.set_phase(flags.phase == "TEST" ? caffe::TEST : caffe::TRAIN);
  state.set_level(flags.level);
  std::istringstream stages(flags.stage);
  for (std::string stage; std::getline(stages, stage, ',');) state.add_stage(stage);
  Result<std::unique_ptr<caffe::Net>> net =
      caffe::Net::Create(*parameters, state, caffe::MakeLayer, caffe::NetOptions{});
  if (!net.ok()) Fail(net.status().message());
  if ((*net)->layer_count() == 0) Fail(flags.model + " has no layers in phase " + caffe::Phase_Name(state.phase()));
  return *std::move(net);
}

void LoadWeights(const NetFlags& flags, caffe::Net* net) {
  const Result<caffe::WeightsReport> report = caffe::LoadWeights(flags.weights, {net});
  if (!report.ok()) Fail(report.status().message());
  if (const std::string words = InWords(*report); !words.empty()) std::cerr << "poseidon: " << words << std::endl;
}

}  // namespace poseidon::tools
