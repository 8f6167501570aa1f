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
#include "frontends/caffe/solver/weights_hash.h"

namespace poseidon::caffe {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kProbeBytes = 4096;

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

// A second name of a model while its state may still be on the disk: by the state's hash, so that it is found by
// that state and no other.
std::string KeptModel(const std::string& model, const std::string& hash) {
  return model + ".of-" + (hash.empty() ? "older-state" : hash.substr(0, 16));
}

// Where the model of a state may lie, the likeliest first. A folder may have been copied: what lies beside the state
// comes before the path that the state was written with.
std::vector<std::string> ModelsOf(const SolverState& state, const std::string& state_path) {
  const fs::path folder = fs::path(state_path).parent_path();
  const std::string beside = (folder / fs::path(state.learned_net()).filename()).string();
  const std::string by_name = (folder / fs::path(state_path).stem()).string() + ".caffemodel";
  std::vector<std::string> models;
  for (const std::string& model : {beside, by_name, state.learned_net()}) {
    for (const std::string& name : {KeptModel(model, state.weights_hash()), model}) {
      std::error_code error;
      if (fs::exists(name, error)) models.push_back(name);
    }
  }
  return models;
}

// Loads the first model whose weights are the state's. A net of another shape is told before a hash, which then
// differs too.
Status LoadModelOf(const SolverState& state, const std::string& state_path, const History& history, Net* net) {
  const std::vector<std::string> models = ModelsOf(state, state_path);
  if (models.empty()) {
    return NotFound("the model of " + state_path + " is neither beside it nor at " + state.learned_net());
  }
  for (const std::string& model : models) {
    POSEIDON_RETURN_IF_ERROR(LoadWeights(model, {net}, SameNames::kInOrder).status());
    POSEIDON_RETURN_IF_ERROR(history.Fits(state, state_path));
    if (!state.has_weights_hash() || WeightsHash(*net) == state.weights_hash()) return OkStatus();
  }
  return DataLoss(state_path + " does not belong to " + models.front() +
                  ", which holds other weights than those that it was written with; resume from another snapshot");
}

// The hash that the state at `path` carries; empty where there is none or it cannot be read.
std::string HashIn(const std::string& path) {
  SolverState state;
  return ReadBinaryFile(path, &state).ok() ? state.weights_hash() : "";
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

Status WriteSnapshot(const Net& net, const History& history, const SolverPosition& position, const std::string& plan,
                     const SnapshotPaths& paths, bool diffs) {
  POSEIDON_RETURN_IF_ERROR(CheckMessageBytes(BytesOf(net) * (diffs ? 2 : 1), paths.model));
  POSEIDON_RETURN_IF_ERROR(CheckMessageBytes(BytesOf(history), paths.state));
  POSEIDON_ASSIGN_OR_RETURN(FileDraft model, FileDraft::Write(net.ToProto(diffs), paths.model));
  SolverState state;
  state.set_iter(static_cast<int>(position.iteration));
  state.set_learned_net(paths.model);
  state.set_current_step(position.current_step);
  state.set_weights_hash(WeightsHash(net));
  if (!plan.empty()) state.set_plan(plan);
  history.Save(&state);
  POSEIDON_ASSIGN_OR_RETURN(FileDraft draft, FileDraft::Write(state, paths.state));

  std::error_code error;
  std::string kept;
  if (fs::exists(paths.state, error) && fs::exists(paths.model, error)) {
    kept = KeptModel(paths.model, HashIn(paths.state));
    // It may be there already, of a crash between the two renames: then it is the old state's model, and the file
    // with the model's own name is not.
    fs::create_hard_link(paths.model, kept, error);
    POSEIDON_RETURN_IF_ERROR(FlushFolderOf(paths.model));
  }
  POSEIDON_RETURN_IF_ERROR(model.Commit());
  POSEIDON_RETURN_IF_ERROR(draft.Commit());
  if (!kept.empty()) fs::remove(kept, error);
  return OkStatus();
}

Result<RestoredSnapshot> ReadSnapshot(const std::string& state_path, Net* net, History* history) {
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
  POSEIDON_RETURN_IF_ERROR(LoadModelOf(state, state_path, *history, net));
  history->Load(state);
  return RestoredSnapshot{.position = {.iteration = static_cast<std::uint64_t>(state.iter()),
                                       .current_step = state.current_step()},
                          .plan = state.plan()};
}

Result<WeightsReport> LoadWeights(const std::string& model_path, const std::vector<Net*>& nets, SameNames same) {
  POSEIDON_RETURN_IF_ERROR(RefuseHdf5(model_path));
  POSEIDON_ASSIGN_OR_RETURN(const NetParameter model, ReadModel(model_path));
  std::set<std::string> given;
  std::set<std::string> repeated;
  for (const LayerParameter& saved : model.layer()) {
    if (saved.blobs_size() > 0 && !given.insert(saved.name()).second) repeated.insert(saved.name());
  }
  std::set<std::string> known;
  std::set<std::string> learned;  // of the known ones those that own their blobs
  for (Net* const net : nets) {
    POSEIDON_RETURN_IF_ERROR(net->CopyFrom(model, model_path, same));
    for (int i = 0; i < net->layer_count(); ++i) known.insert(net->layer(i).name());
    for (const LearnableParam& param : net->learnable_params()) learned.insert(net->layer(param.layer).name());
  }
  WeightsReport report{.model = model_path};
  if (same == SameNames::kFirst) std::ranges::set_intersection(repeated, learned, std::back_inserter(report.repeated));
  std::ranges::set_difference(given, known, std::back_inserter(report.unused));
  std::ranges::set_difference(learned, given, std::back_inserter(report.untouched));
  if (report.unused.size() < given.size() || learned.empty()) return report;
  return InvalidArgument(model_path + " has weights for " + std::to_string(given.size()) +
                         " layers and none of them is in the net, expected at least one layer of the same name");
}

// A full disk lets files be made and refuses their bytes.
Status CheckSnapshotPrefix(const std::string& prefix) {
  const std::string probe = prefix + ".probe." + std::to_string(::getpid());
  const Result<FileDraft> written = FileDraft::Write(std::string(kProbeBytes, '\0'), probe);
  if (written.ok()) return OkStatus();
  return PermissionDenied("snapshot_prefix " + prefix + " cannot be written: " + written.status().message());
}

std::string CompleteSnapshotPrefix(const std::string& prefix, const std::string& solver_path) {
  const fs::path solver(solver_path);
  if (prefix.empty()) return (solver.parent_path() / solver.stem()).string();
  std::error_code error;
  if (fs::is_directory(prefix, error)) return (fs::path(prefix) / solver.stem()).string();
  return prefix;
}

}  // namespace poseidon::caffe
