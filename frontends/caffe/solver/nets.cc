// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/nets.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "frontends/caffe/data/source_part.h"
#include "frontends/caffe/layers/registry.h"
#include "frontends/caffe/proto/upgrade.h"

namespace poseidon::caffe {
namespace {

namespace fs = std::filesystem;

Result<NetParameter> ReadNetFile(const std::string& path, const std::string& folder) {
  const std::string found = FindBeside(path, folder);
  POSEIDON_ASSIGN_OR_RETURN(NetParameter net, ReadNet(found, RefusalsOf));
  FindFilesBeside(folder, &net);
  return net;
}

Result<NetParameter> InlineNet(const char* field, NetParameter net, const std::string& folder) {
  POSEIDON_RETURN_IF_ERROR(UpgradeNet(field, &net));
  FindFilesBeside(folder, &net);
  return net;
}

// The net for both phases, if there is one.
Result<NetParameter> GenericNet(const SolverParameter& solver, const std::string& folder) {
  if (solver.has_net_param()) return InlineNet("net_param", solver.net_param(), folder);
  return ReadNetFile(solver.net(), folder);
}

Result<NetParameter> TrainNet(const SolverParameter& solver, const std::string& folder) {
  const int given = static_cast<int>(solver.has_net()) + static_cast<int>(solver.has_net_param()) +
                    static_cast<int>(solver.has_train_net()) +
                    static_cast<int>(solver.has_train_net_param());
  if (given != 1) {
    return InvalidArgument("the solver names " + std::to_string(given) +
                           " training nets, expected one of net, net_param, train_net and " +
                           "train_net_param");
  }
  if (solver.has_train_net()) return ReadNetFile(solver.train_net(), folder);
  if (solver.has_train_net_param()) {
    return InlineNet("train_net_param", solver.train_net_param(), folder);
  }
  return GenericNet(solver, folder);
}

NetState StateOf(Phase phase, const NetParameter& net, const NetState& solver_state) {
  NetState state;
  state.set_phase(phase);
  state.MergeFrom(net.state());
  state.MergeFrom(solver_state);
  return state;
}

Status CheckTestCounts(const SolverParameter& solver, int named, bool generic) {
  const int counts = solver.test_iter_size();
  if (generic ? counts < named : counts != named) {
    return InvalidArgument("the solver has " + std::to_string(counts) + " test_iter for " +
                           std::to_string(named) + " test nets, expected one for each");
  }
  if (solver.test_state_size() > 0 && solver.test_state_size() != counts) {
    return InvalidArgument("the solver has " + std::to_string(solver.test_state_size()) +
                           " test_state for " + std::to_string(counts) +
                           " test nets, expected none or one for each");
  }
  if (counts > 0 && solver.test_interval() <= 0) {
    return InvalidArgument("the solver has test nets but test_interval is " +
                           std::to_string(solver.test_interval()) + ", expected above 0");
  }
  for (const int batches : solver.test_iter()) {
    if (batches <= 0) {
      return InvalidArgument("test_iter is " + std::to_string(batches) + ", expected above 0");
    }
  }
  return OkStatus();
}

}  // namespace

std::string FindBeside(const std::string& path, const std::string& folder) {
  std::error_code error;
  if (path.empty() || fs::path(path).is_absolute() || fs::exists(path, error)) return path;
  const fs::path beside = fs::path(folder) / path;
  return fs::exists(beside, error) ? beside.string() : path;
}

void FindFilesBeside(const std::string& folder, NetParameter* net) {
  const auto find = [&](std::string* path) { *path = FindBeside(*path, folder); };
  // Of a source there may be only its parts.
  const auto find_source = [&](std::string* path) {
    find(path);
    std::error_code error;
    if (fs::exists(*path, error) || HasParts(*path)) return;
    if (const std::string beside = (fs::path(folder) / *path).string(); HasParts(beside)) *path = beside;
  };
  const auto find_list = [&](auto* data) {
    if (data->has_source()) find(data->mutable_source());
    if (data->has_root_folder()) find(data->mutable_root_folder());
  };
  for (LayerParameter& layer : *net->mutable_layer()) {
    if (layer.data_param().has_source()) find_source(layer.mutable_data_param()->mutable_source());
    if (layer.image_data_param().has_source()) find_source(layer.mutable_image_data_param()->mutable_source());
    if (layer.image_data_param().has_root_folder()) find(layer.mutable_image_data_param()->mutable_root_folder());
    if (layer.has_dense_image_data_param()) find_list(layer.mutable_dense_image_data_param());
    if (layer.has_window_data_param()) find_list(layer.mutable_window_data_param());
    if (layer.window_data_param().has_mean_file()) find(layer.mutable_window_data_param()->mutable_mean_file());
    if (layer.hdf5_data_param().has_source()) find(layer.mutable_hdf5_data_param()->mutable_source());
    if (layer.transform_param().has_mean_file()) {
      find(layer.mutable_transform_param()->mutable_mean_file());
    }
    if (layer.infogain_loss_param().has_source()) {
      find(layer.mutable_infogain_loss_param()->mutable_source());
    }
  }
}

Result<SolverNets> ReadSolverNets(const SolverParameter& solver, const std::string& folder) {
  SolverNets nets;
  POSEIDON_ASSIGN_OR_RETURN(nets.train.net, TrainNet(solver, folder));
  nets.train.state = StateOf(TRAIN, nets.train.net, solver.train_state());

  const bool generic = solver.has_net() || solver.has_net_param();
  const int named = solver.test_net_param_size() + solver.test_net_size();
  POSEIDON_RETURN_IF_ERROR(CheckTestCounts(solver, named, generic));
  for (const NetParameter& net : solver.test_net_param()) {
    POSEIDON_ASSIGN_OR_RETURN(NetParameter read, InlineNet("test_net_param", net, folder));
    nets.tests.push_back({.net = std::move(read), .state = {}});
  }
  for (const std::string& path : solver.test_net()) {
    POSEIDON_ASSIGN_OR_RETURN(NetParameter read, ReadNetFile(path, folder));
    nets.tests.push_back({.net = std::move(read), .state = {}});
  }
  while (static_cast<int>(nets.tests.size()) < solver.test_iter_size()) {
    POSEIDON_ASSIGN_OR_RETURN(NetParameter read, GenericNet(solver, folder));
    nets.tests.push_back({.net = std::move(read), .state = {}});
  }
  for (std::size_t i = 0; i < nets.tests.size(); ++i) {
    const auto index = static_cast<int>(i);
    const NetState none;
    nets.tests[i].state =
        StateOf(TEST, nets.tests[i].net,
                index < solver.test_state_size() ? solver.test_state(index) : none);
  }
  return nets;
}

}  // namespace poseidon::caffe
