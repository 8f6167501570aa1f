// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/snapshot.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <system_error>

#include "frontends/caffe/proto/read.h"
#include "frontends/caffe/proto/upgrade.h"

namespace poseidon::caffe {
namespace {

namespace fs = std::filesystem;

// HDF5 files tell themselves by eight bytes, whatever their name.
bool IsHdf5(const std::string& path) {
  std::array<char, 8> head{};
  std::ifstream(path, std::ios::binary).read(head.data(), head.size());
  return std::memcmp(head.data(), "\x89HDF\r\n\x1a\n", head.size()) == 0;
}

Status RefuseHdf5(const std::string& path) {
  if (!IsHdf5(path)) return OkStatus();
  return Unimplemented(path + " is an HDF5 file, which is not supported; write it with " +
                       "snapshot_format: BINARYPROTO");
}

std::string FindModel(const std::string& named, const std::string& state_path) {
  std::error_code error;
  if (fs::exists(named, error)) return named;
  const fs::path beside = fs::path(state_path).parent_path() / fs::path(named).filename();
  return fs::exists(beside, error) ? beside.string() : named;
}

std::uint64_t BytesOf(const Net& net) {
  std::uint64_t bytes = 0;
  for (int i = 0; i < net.layer_count(); ++i) {
    for (const Blob& blob : net.layer(i).blobs()) bytes += blob.data.nbytes();
  }
  return bytes;
}

std::uint64_t BytesOf(const History& history) {
  std::uint64_t bytes = 0;
  for (const at::Tensor& tensor : history.tensors()) bytes += tensor.nbytes();
  return bytes;
}

}  // namespace

SnapshotPaths SnapshotPathsAt(const std::string& prefix, std::uint64_t iteration) {
  const std::string stem = prefix + "_iter_" + std::to_string(iteration);
  return {.model = stem + ".caffemodel", .state = stem + ".solverstate"};
}

Status WriteSnapshot(const Net& net, const History& history, const SolverPosition& position,
                     const SnapshotPaths& paths) {
  POSEIDON_RETURN_IF_ERROR(CheckMessageBytes(BytesOf(net), paths.model));
  POSEIDON_RETURN_IF_ERROR(CheckMessageBytes(BytesOf(history), paths.state));
  POSEIDON_RETURN_IF_ERROR(WriteBinaryFile(net.ToProto(), paths.model));
  SolverState state;
  state.set_iter(static_cast<int>(position.iteration));
  state.set_learned_net(paths.model);
  state.set_current_step(position.current_step);
  history.Save(&state);
  return WriteBinaryFile(state, paths.state);
}

Result<SolverPosition> ReadSnapshot(const std::string& state_path, Net* net, History* history) {
  POSEIDON_RETURN_IF_ERROR(RefuseHdf5(state_path));
  SolverState state;
  POSEIDON_RETURN_IF_ERROR(ReadBinaryFile(state_path, &state));
  if (state.iter() < 0) {
    return DataLoss(state_path + " is at iteration " + std::to_string(state.iter()) +
                    ", expected at least 0");
  }
  if (!state.has_learned_net()) {
    return DataLoss(state_path + " names no model, expected learned_net");
  }
  POSEIDON_RETURN_IF_ERROR(LoadWeights(FindModel(state.learned_net(), state_path), {net}).status());
  POSEIDON_RETURN_IF_ERROR(history->Load(state, state_path));
  return SolverPosition{.iteration = static_cast<std::uint64_t>(state.iter()),
                        .current_step = state.current_step()};
}

Result<WeightsReport> LoadWeights(const std::string& model_path, const std::vector<Net*>& nets) {
  POSEIDON_RETURN_IF_ERROR(RefuseHdf5(model_path));
  POSEIDON_ASSIGN_OR_RETURN(const NetParameter model, ReadModel(model_path));
  std::set<std::string> given;
  for (const LayerParameter& saved : model.layer()) {
    if (saved.blobs_size() > 0) given.insert(saved.name());
  }
  std::set<std::string> known;
  std::set<std::string> learned;  // of the known ones those that own their blobs
  for (Net* const net : nets) {
    POSEIDON_RETURN_IF_ERROR(net->CopyFrom(model, model_path));
    for (int i = 0; i < net->layer_count(); ++i) known.insert(net->layer(i).name());
    for (const LearnableParam& param : net->learnable_params()) learned.insert(net->layer(param.layer).name());
  }
  WeightsReport report{.model = model_path};
  std::ranges::set_difference(given, known, std::back_inserter(report.unused));
  std::ranges::set_difference(learned, given, std::back_inserter(report.untouched));
  if (report.unused.size() < given.size() || learned.empty()) return report;
  return InvalidArgument(model_path + " has weights for " + std::to_string(given.size()) +
                         " layers and none of them is in the net, expected at least one layer of the same name");
}

Status CheckSnapshotPrefix(const std::string& prefix) {
  const std::string probe = prefix + ".probe." + std::to_string(::getpid());
  std::FILE* file = std::fopen(probe.c_str(), "wb");
  if (file == nullptr) {
    return PermissionDenied("snapshot_prefix " + prefix +
                            " cannot be written: " + ErrnoText(errno));
  }
  std::fclose(file);
  std::remove(probe.c_str());
  return OkStatus();
}

std::string CompleteSnapshotPrefix(const std::string& prefix, const std::string& solver_path) {
  const fs::path solver(solver_path);
  if (prefix.empty()) return (solver.parent_path() / solver.stem()).string();
  std::error_code error;
  if (fs::is_directory(prefix, error)) return (fs::path(prefix) / solver.stem()).string();
  return prefix;
}

}  // namespace poseidon::caffe
