// SPDX-License-Identifier: Apache-2.0
#include "tools/train/measure_net.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "frontends/caffe/net/subnormals.h"
#include "frontends/caffe/solver/solver.h"
#include "frontends/caffe/train/aten_engine.h"
#include "frontends/caffe/train/session_sync.h"
#include "poseidon/base/thread_executor.h"
#include "poseidon/factors/rebuild.h"
#include "poseidon/session/tcp_session.h"
#include "tools/console/values.h"
#include "tools/train/processor_share.h"

namespace poseidon::tools {
namespace {

using profile::MeasureOptions;
using profile::Profile;

// The trainer's clock remembers so many iterations.
constexpr int kWindow = 9;

unsigned Cores() { return std::max(1u, std::thread::hardware_concurrency()); }

caffe::SolverParameter SolverOf(const MeasureOptions& options) {
  caffe::SolverParameter solver;
  solver.set_net(options.model);
  solver.set_lr_policy("fixed");
  solver.set_base_lr(0);
  solver.set_momentum(0.9F);
  solver.set_weight_decay(0.0005F);
  solver.set_snapshot_after_train(false);
  solver.mutable_train_state()->set_level(options.level);
  for (const std::string& stage : CommaParts(options.stages)) solver.mutable_train_state()->add_stage(stage);
  return solver;
}

// Mean seconds per layer of the net over whole windows of iterations.
Result<std::vector<plan::LayerSeconds>> Timed(caffe::Solver& solver, int iterations) {
  const int windows = (iterations + kWindow - 1) / kWindow;
  std::vector<plan::LayerSeconds> means(static_cast<std::size_t>(solver.net().layer_count()));
  // The first iteration pays for memory and plans of its own; so does the update of the second.
  POSEIDON_RETURN_IF_ERROR(solver.Step(2));
  for (int window = 0; window < windows; ++window) {
    POSEIDON_RETURN_IF_ERROR(solver.Step(kWindow));
    const std::vector<plan::LayerSeconds> now = solver.layer_clock().Means();
    for (std::size_t i = 0; i < means.size(); ++i) {
      means[i].forward += now[i].forward / windows;
      means[i].backward += now[i].backward / windows;
    }
  }
  return means;
}

// The layer as the trainer declares it where it goes alone, without times.
profile::Layer LayerOf(caffe::Net& net, int index, std::size_t position) {
  profile::Layer layer;
  layer.spec = caffe::SpecsOf(net, {&index, 1}).front();
  layer.spec.forward_position = static_cast<std::uint32_t>(position);
  for (const caffe::LearnableParam& param : net.learnable_params()) {
    if (param.layer != index) continue;
    profile::Tensor tensor{.name = layer.spec.name + "." + std::to_string(param.index),
                           .shape = {}};
    for (const std::int64_t dimension : param.blob.data.sizes()) {
      tensor.shape.push_back(static_cast<std::uint64_t>(dimension));
    }
    if (tensor.shape.empty()) tensor.shape = {1};
    layer.tensors.push_back(std::move(tensor));
  }
  if (layer.spec.factors) layer.rows = static_cast<std::uint32_t>(net.layer(index).factors()->K());
  return layer;
}

// The layers that are trained. Neighbours without parameters count with the layer before them, the first ones with the
// first.
std::vector<profile::Layer> LayersOf(caffe::Solver& solver, const std::vector<plan::LayerSeconds>& seconds) {
  caffe::Net& net = solver.net();
  const std::set<int> synced(solver.SyncedLayers().begin(), solver.SyncedLayers().end());
  std::vector<profile::Layer> layers;
  plan::LayerSeconds before;
  for (int i = 0; i < net.layer_count(); ++i) {
    const plan::LayerSeconds& own = seconds[static_cast<std::size_t>(i)];
    if (synced.count(i) > 0) {
      layers.push_back(LayerOf(net, i, layers.size()));
      layers.back().forward_seconds = std::exchange(before.forward, 0);
      layers.back().backward_seconds = std::exchange(before.backward, 0);
    }
    double& forward = layers.empty() ? before.forward : layers.back().forward_seconds;
    double& backward = layers.empty() ? before.backward : layers.back().backward_seconds;
    forward += own.forward;
    backward += own.backward;
  }
  return layers;
}

// The rows of the first blob: what a data layer gives.
std::uint32_t BatchOf(const caffe::Net& net) {
  for (int i = 0; i < net.layer_count(); ++i) {
    for (const caffe::Blob* top : net.tops(i)) {
      if (top->data.dim() > 0 && top->data.size(0) > 0) {
        return static_cast<std::uint32_t>(top->data.size(0));
      }
    }
  }
  return 1;
}

// Of the largest fully connected layer; 0 where there is none.
Result<double> ProductFlops(const Profile& profile, int threads) {
  const profile::Layer* largest = nullptr;
  for (const profile::Layer& layer : profile.layers) {
    const bool larger = largest == nullptr || layer.spec.elements > largest->spec.elements;
    if (layer.spec.factors && larger) largest = &layer;
  }
  if (largest == nullptr) return 0.0;
  const auto engine = caffe::MakeAtenEngine(threads);
  const ThreadExecutor clock("clock");
  POSEIDON_ASSIGN_OR_RETURN(
      const factors::ProductTest test,
      factors::TestProduct(*largest->spec.factors, largest->spec.dtype, largest->rows, *engine, clock));
  return test.rate();
}

}  // namespace

Result<Profile> MeasureNet(const MeasureOptions& options) {
  const int threads = options.threads > 0 ? options.threads : static_cast<int>(Cores());
  caffe::FlushSubnormals();
  at::set_num_threads(threads);
  caffe::SolverOptions solver_options;
  solver_options.folder = std::filesystem::path(options.model).parent_path().string();
  solver_options.writes_snapshots = false;
  POSEIDON_ASSIGN_OR_RETURN(const std::unique_ptr<caffe::Solver> solver,
                            caffe::Solver::Create(SolverOf(options), std::move(solver_options)));
  const ProcessorShare share;
  POSEIDON_ASSIGN_OR_RETURN(const std::vector<plan::LayerSeconds> seconds,
                            Timed(*solver, options.iterations));
  const std::string warning = BusyMachineWarning(share.now(), threads);

  Profile profile;
  caffe::Net& net = solver->net();
  profile.name =
      net.name().empty() ? std::filesystem::path(options.model).stem().string() : net.name();
  profile.source = "measured on " + std::to_string(threads) + " threads of " +
                   std::to_string(Cores()) + " cores";
  profile.batch = BatchOf(net);
  // As between two hosts, where nothing else is asked for.
  profile.cpu_seconds_per_wire_byte =
      session::CpuSecondsPerWireByte(session::ProtectionOf(std::nullopt, /*one_machine=*/false));
  profile.cores_per_worker = Cores();
  profile.compute_threads = static_cast<std::uint32_t>(threads);
  profile.layers = LayersOf(*solver, seconds);
  if (profile.layers.empty()) {
    return InvalidArgument("net " + options.model +
                           " has no layer that is trained, so there is "
                           "nothing to plan");
  }
  POSEIDON_ASSIGN_OR_RETURN(profile.product_flops, ProductFlops(profile, threads));
  if (!warning.empty()) std::cerr << "poseidon: " << warning << std::endl;
  return profile;
}

}  // namespace poseidon::tools
