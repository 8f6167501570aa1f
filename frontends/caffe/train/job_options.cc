// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/job_options.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <thread>

#include "frontends/caffe/net/filter.h"
#include "frontends/caffe/proto/upgrade.h"
#include "frontends/caffe/solver/nets.h"
#include "frontends/caffe/solver/snapshot.h"
#include "frontends/plan_file/plan_json.h"
#include "poseidon/base/executor.h"
#include "poseidon/base/listed.h"
#include "poseidon/base/quantities.h"
#include "poseidon/session/tcp_session.h"

namespace poseidon::caffe {
namespace {

// Bytes of memory that new allocations can have, as the kernel estimates it; 0: unknown.
std::uint64_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  std::uint64_t kib = 0;
  while (file >> key >> kib >> unit) {
    if (key == "MemAvailable:") return kib << 10;
  }
  return 0;
}

template <typename Data>
Status DivideBatch(const std::string& layer, int workers, Data* data) {
  const auto batch = data->batch_size();
  if (batch % static_cast<unsigned>(workers) != 0) {
    return InvalidArgument("layer '" + layer + "': batch_size " + std::to_string(batch) + " cannot be divided among " +
                           std::to_string(workers) + " workers");
  }
  data->set_batch_size(batch / static_cast<unsigned>(workers));
  return OkStatus();
}

// With a global batch size the workers share it: each data layer's batch must divide evenly.
Status DivideBatches(int workers, NetParameter* net) {
  for (LayerParameter& layer : *net->mutable_layer()) {
    if (layer.has_data_param()) POSEIDON_RETURN_IF_ERROR(DivideBatch(layer.name(), workers, layer.mutable_data_param()));
    if (layer.has_image_data_param()) {
      POSEIDON_RETURN_IF_ERROR(DivideBatch(layer.name(), workers, layer.mutable_image_data_param()));
    }
    if (layer.has_dense_image_data_param()) {
      POSEIDON_RETURN_IF_ERROR(DivideBatch(layer.name(), workers, layer.mutable_dense_image_data_param()));
    }
    if (layer.has_window_data_param()) {
      POSEIDON_RETURN_IF_ERROR(DivideBatch(layer.name(), workers, layer.mutable_window_data_param()));
    }
    if (layer.has_hdf5_data_param()) {
      POSEIDON_RETURN_IF_ERROR(DivideBatch(layer.name(), workers, layer.mutable_hdf5_data_param()));
    }
  }
  return OkStatus();
}

// Replaces the names of the solver's nets by the nets, with the batches of one worker.
Status DivideNets(const TrainOptions& options, SolverParameter* solver) {
  const std::string folder = std::filesystem::path(options.solver).parent_path().string();
  POSEIDON_ASSIGN_OR_RETURN(SolverNets nets, ReadSolverNets(*solver, folder));
  // Without the layers of the test phase, whose batches nobody divides.
  POSEIDON_ASSIGN_OR_RETURN(nets.train.net, FilterNet(nets.train.net, nets.train.state));
  POSEIDON_RETURN_IF_ERROR(DivideBatches(options.workers, &nets.train.net));
  solver->clear_net();
  solver->clear_net_param();
  solver->clear_train_net();
  solver->clear_test_net();
  solver->clear_test_net_param();
  solver->clear_test_state();
  *solver->mutable_train_net_param() = nets.train.net;
  for (const SolverNets::Part& test : nets.tests) {
    *solver->add_test_net_param() = test.net;
    *solver->add_test_state() = test.state;
  }
  return OkStatus();
}

void Pin(const plan_file::PinnedPlan& plan, const std::string& name, Wanted* wanted) {
  wanted->planning.forced = plan.schemes;
  wanted->planning.forced_by = name;
  wanted->joining.together = plan.joined;
  wanted->joining.said_by = name;
  // A layer that the plan names singly was alone, and stays so: then it has one scheme under one name again.
  for (const auto& [layer, scheme] : plan.schemes) wanted->joining.apart.insert(layer);
  for (const std::vector<std::string>& names : plan.joined) wanted->joining.apart.erase(names.front());
}

// Takes over what the plan of the resumed snapshot pins, or notes why it pins nothing.
Status FollowRestored(const TrainOptions& options, const std::string& restored, Wanted* wanted) {
  if (restored.empty()) {
    wanted->note = options.snapshot + " holds no plan, so this run makes its own; its weights may differ in bits from "
                   "those of an uninterrupted run (--plan FILE follows that run's plan.json)";
    return OkStatus();
  }
  const std::string name = "the plan in " + options.snapshot;
  POSEIDON_ASSIGN_OR_RETURN(const plan_file::PinnedPlan pinned, plan_file::ParsePlan(restored, name));
  if (pinned.workers == options.workers) {
    Pin(pinned, name, wanted);
  } else {
    wanted->note = options.snapshot + " was written by " + std::to_string(pinned.workers) + " workers, so " +
                   std::to_string(options.workers) + " make a plan of their own";
  }
  return OkStatus();
}

std::map<std::string, std::string> SchemesByName(const std::map<std::string, std::string>& schemes,
                                                 const std::vector<plan::LayerSpec>& layers) {
  std::map<std::string, std::string> by_name = schemes;
  const auto all = by_name.find("*");
  if (all == by_name.end()) return by_name;
  const std::string scheme = all->second;
  by_name.erase(all);
  for (const plan::LayerSpec& layer : layers) {
    if (layer.factors) by_name.emplace(layer.name, scheme);
  }
  return by_name;
}

}  // namespace

int ComputeThreads(const MemberTask& task) {
  if (task.options.threads > 0) return task.options.threads;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int own = std::max(1, cores / std::max(1, task.local_members));
  return own >= 4 && task.local_members + task.options.workers > 2 ? own - 1 : own;
}

Result<std::vector<int>> GpusNamed(const std::string& text, int devices) {
  std::vector<int> gpus;
  for (int i = 0; i < devices && text == "all"; ++i) gpus.push_back(i);
  for (std::size_t begin = 0; begin <= text.size() && text != "all";) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    int gpu = -1;
    const auto [last, error] = std::from_chars(text.data() + begin, text.data() + end, gpu);
    if (error != std::errc() || last != text.data() + end || gpu < 0) {
      return InvalidArgument("--gpu " + text + " is not understood, expected numbers from 0 with commas, as in 0,1, or all");
    }
    gpus.push_back(gpu);
    begin = end + 1;
  }
  return gpus;
}

Result<std::vector<int>> GpusIn(const std::string& text) {
  POSEIDON_RETURN_IF_ERROR(GpusNamed(text, 0).status());
  const int devices = Placement::Accelerators();
  if (devices == 0) return NotFound("--gpu " + text + ": " + Placement::WhyNone() + "; leave the flag out to compute on the CPU");
  return GpusNamed(text, devices);
}

Result<Placement> GpuOf(const std::string& text, int local_worker) {
  POSEIDON_ASSIGN_OR_RETURN(const std::vector<int> gpus, GpusIn(text));
  return Placement::OnAccelerator(gpus[static_cast<std::size_t>(local_worker) % gpus.size()]);
}

Result<Placement> PlacementOf(const MemberTask& task, const SolverParameter& solver) {
  if (!task.options.gpu.empty()) return GpuOf(task.options.gpu, task.local_worker);
  // Caffe's own default is GPU.
  const int devices = solver.solver_mode() == SolverParameter::GPU ? Placement::Accelerators() : 0;
  if (devices == 0) return Placement();
  return Placement::OnAccelerator(task.options.workers == 1 ? solver.device_id() : (solver.device_id() + task.local_worker) % devices);
}

std::string PlacementNote(const Placement& placement, const SolverParameter& solver) {
  if (!placement.on_host() || !solver.has_solver_mode() || solver.solver_mode() != SolverParameter::GPU) return {};
  return "solver_mode is GPU; " + Placement::WhyNone() + ", and so it trains on the CPU";
}

std::string WhereItComputes(const Placement& placement, const Net& net) {
  std::string on_host;
  for (const auto& [type, count] : net.on_host()) AddListed(type + " (" + std::to_string(count) + ")", &on_host);
  return "computes on " + placement.name() + (on_host.empty() ? "" : ", but for layers of types that compute on the host: " + on_host);
}

Result<DType> ParseDType(const std::string& name) {
  if (name == "f32") return DType::kF32;
  if (name == "f64") return DType::kF64;
  return InvalidArgument("dtype '" + name + "' is unknown, expected f32 or f64");
}

Result<SolverParameter> ReadJobSolver(const TrainOptions& options) {
  POSEIDON_ASSIGN_OR_RETURN(SolverParameter solver, ReadSolver(options.solver));
  if (options.level != 0) {
    solver.mutable_train_state()->set_level(options.level);
  }
  for (const std::string& stage : options.stages) {
    solver.mutable_train_state()->add_stage(stage);
  }
  if (options.iterations > 0) {
    solver.set_max_iter(static_cast<std::int32_t>(options.iterations));
    solver.clear_snapshot();
    solver.set_snapshot_after_train(false);
    solver.clear_test_net();
    solver.clear_test_net_param();
    solver.clear_test_state();
    solver.clear_test_iter();
    solver.clear_test_interval();
  }
  solver.set_snapshot_prefix(CompleteSnapshotPrefix(solver.snapshot_prefix(), options.solver));
  if (options.global_batch && options.workers > 1) POSEIDON_RETURN_IF_ERROR(DivideNets(options, &solver));
  return solver;
}

Result<Wanted> WantedOf(const TrainOptions& options, const std::vector<plan::LayerSpec>& layers, const std::string& restored) {
  Wanted wanted;
  const auto policy = plan::ParsePolicy(options.policy);
  if (!policy) {
    return InvalidArgument("policy '" + options.policy + "' is unknown, expected time or bytes");
  }
  wanted.planning.policy = *policy;
  if (!options.plan_file.empty()) {
    POSEIDON_ASSIGN_OR_RETURN(const plan_file::PinnedPlan pinned, plan_file::ReadPlan(options.plan_file));
    Pin(pinned, "plan file " + options.plan_file, &wanted);
  } else if (!options.snapshot.empty()) {
    POSEIDON_RETURN_IF_ERROR(FollowRestored(options, restored, &wanted));
  }
  for (const auto& [layer, name] : SchemesByName(options.schemes, layers)) {
    const auto scheme = plan::ParseScheme(name);
    if (!scheme) {
      return InvalidArgument("scheme '" + name + "' of layer '" + layer +
                             "' is unknown, expected " + plan::SchemeNames());
    }
    wanted.planning.forced[layer] = *scheme;
    wanted.joining.apart.insert(layer);
  }
  return wanted;
}

Result<session::NodeOptions> NodeOptionsOf(const MemberTask& task, const plan::PlanOptions& planning) {
  session::NodeOptions node;
  node.role = task.server ? wire::Role::kServer : wire::Role::kWorker;
  node.workers = task.options.workers;
  node.servers = task.options.servers;
  node.requested_rank = task.rank;
  node.hosts_coordinator = !task.server && task.rank == 0;
  node.host = task.host;
  const auto levels = plan::ParseLevels(task.options.levels);
  if (!levels) {
    return InvalidArgument("levels is '" + task.options.levels + "', expected flat, host or auto");
  }
  node.levels = *levels;
  POSEIDON_ASSIGN_OR_RETURN(node.strategy, sync::StrategyNamed(task.options.strategy));
  POSEIDON_ASSIGN_OR_RETURN(node.bandwidth, ParseBandwidth(task.options.bandwidth));
  const auto zero_compression = plan::ParseZeroCompression(task.options.zero_compression);
  if (!zero_compression) {
    return InvalidArgument("zero_compression is '" + task.options.zero_compression + "', expected auto, off or always");
  }
  node.strategy.zero_compression = *zero_compression;
  const std::vector<std::string>& machines = task.options.machines;
  if (!machines.empty() && machines.size() != task.options.workers) {
    return InvalidArgument("machines names " + std::to_string(machines.size()) +
                           ", expected one for each of the " +
                           std::to_string(task.options.workers) + " workers");
  }
  const auto rank = static_cast<std::size_t>(task.rank);
  node.machine = rank < machines.size() ? machines[rank] : local::ThisMachine();
  node.listen = {task.listen_host, task.listen_port};
  node.coordinator = {task.coordinator_host, task.coordinator_port};
  node.liveness.dead_after = FromSeconds(task.options.dead_after);
  node.progress.stuck_after = FromSeconds(task.options.stuck_after);
  node.join_timeout = FromSeconds(task.options.join_timeout);
  node.final_plan_step = task.options.final_plan_step;
  node.lanes = task.options.lanes;
  node.memory_limit_bytes = task.server ? AvailableMemory() / 10 * 9 : 0;
  node.planning = planning;
  return node;
}

Result<session::NodeOptions> WorkerNodeOptionsOf(const MemberTask& task, const plan::PlanOptions& planning, int threads) {
  POSEIDON_ASSIGN_OR_RETURN(session::NodeOptions node, NodeOptionsOf(task, planning));
  node.cores = static_cast<double>(std::max(1u, std::thread::hardware_concurrency())) / std::max(1, task.local_members);
  node.cpu_seconds_per_wire_byte = session::CpuSecondsPerWireByte(ModeOf(task));
  node.compute_threads = static_cast<std::uint32_t>(threads);
  return node;
}

transport::tcp::Security::Mode ModeOf(const MemberTask& task) {
  using Mode = transport::tcp::Security::Mode;
  const std::string& wire = task.options.wire;
  std::optional<Mode> wanted;
  if (wire == "tls") wanted = Mode::kTls;
  if (wire == "auth") wanted = Mode::kAuth;
  if (wire == "plain") wanted = Mode::kPlain;
  return session::ProtectionOf(wanted, task.one_machine);
}

}  // namespace poseidon::caffe
