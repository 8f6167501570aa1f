// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/snapshot.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "frontends/caffe/net/blob_proto.h"
#include "frontends/caffe/proto/at.h"
#include "frontends/caffe/proto/hdf5_file.h"
#include "frontends/caffe/proto/read.h"
#include "frontends/caffe/proto/upgrade.h"
#include "frontends/caffe/solver/weights_hash.h"

namespace poseidon::caffe {
namespace {

namespace fs = std::filesystem;


constexpr char kHdf5Suffix[] = ".h5";

// By content; a name that promises HDF5 is an error where the content does not hold it.
Result<bool> HoldsHdf5(const std::string& path) {
  std::error_code error;
  if (IsHdf5(path) || !path.ends_with(kHdf5Suffix) || !fs::exists(path, error)) return IsHdf5(path);
  return DataLoss(path + " is not an HDF5 file, which its name says");
}

// Bytes of another message are often no error: their fields are unknown.
Result<SolverState> ReadState(const std::string& path) {
  POSEIDON_RETURN_IF_ERROR(FindSnapshotFile(path));
  POSEIDON_ASSIGN_OR_RETURN(const bool hdf5, HoldsHdf5(path));
  if (hdf5) return ReadHdf5State(path);
  SolverState state;
  const Status read = ReadBinaryFile(path, &state);
  if (read.ok() && state.has_learned_net() && !path.ends_with(".caffemodel")) return state;
  if (NetParameter model; ReadBinaryFile(path, &model).ok() && model.layer_size() + model.layers_size() > 0) {
    return InvalidArgument(path + " holds a model's weights, expected a solver state; --weights begins with weights");
  }
  if (!read.ok()) return read;
  return state;
}

Result<NetParameter> ReadWeights(const std::string& path, bool hdf5) {
  if (hdf5) return ReadHdf5Model(path);
  Result<NetParameter> model = ReadModel(path);
  if (model.ok() && model->layer_size() > 0) return model;
  if (SolverState state; ReadBinaryFile(path, &state).ok() && state.has_learned_net()) {
    return InvalidArgument(path + " holds a solver's state, expected a model's weights; --snapshot resumes from a state");
  }
  return model;
}

SolverParameter::SnapshotFormat FormatOf(const std::string& path) {
  return path.ends_with(kHdf5Suffix) ? SolverParameter::HDF5 : SolverParameter::BINARYPROTO;
}

template <typename Message>
Result<FileDraft> WriteDraft(const Message& message, const std::string& path, SolverParameter::SnapshotFormat format) {
  if (format != SolverParameter::HDF5) return DraftMessage(message, path);
  POSEIDON_ASSIGN_OR_RETURN(const std::string bytes, ToHdf5(message));
  return FileDraft::Write(bytes, path);
}

// "a/snap_iter_5.caffemodel" for "a/snap_iter_5.solverstate".
std::string ModelNamedLike(const std::string& state_path) {
  const std::string kind = ".solverstate";
  const std::size_t at = state_path.rfind(kind);
  if (at == std::string::npos) return state_path + ".caffemodel";
  return state_path.substr(0, at) + ".caffemodel" + state_path.substr(at + kind.size());
}

// A second name of a model while its state may still be on the disk: by the state's hash, so that it is found by
// that state and no other.
std::string KeptModel(const std::string& model, const std::string& hash) {
  return model + ".of-" + (hash.empty() ? "older-state" : hash.substr(0, 16));
}

// Paths at which the model of a state may be, the likeliest first. A folder may have been copied: a model beside the
// state comes before the path that the state was written with.
std::vector<std::string> ModelsOf(const SolverState& state, const std::string& state_path) {
  const fs::path folder = fs::path(state_path).parent_path();
  const std::string beside = (folder / fs::path(state.learned_net()).filename()).string();
  std::vector<std::string> models;
  for (const std::string& model : {beside, ModelNamedLike(state_path), state.learned_net()}) {
    for (const std::string& name : {KeptModel(model, state.weights_hash()), model}) {
      std::error_code error;
      // The name comes from a file, and opening a pipe waits for who writes into it.
      if (fs::is_regular_file(name, error)) models.push_back(name);
    }
  }
  return models;
}

// Loads the first model whose weights are the state's. The shape is compared before the hash, because the hash of
// another net differs too, and the sentence about the shape says more.
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
  const Result<SolverState> state = ReadState(path);
  return state.ok() ? state->weights_hash() : "";
}

// In an HDF5 file Caffe leaves out the blobs that another layer of the net owns. They get the owner's numbers, or
// keep their own where the file has none of the owner's.
void FillShared(const Net& net, NetParameter* model) {
  std::map<std::string, LayerParameter*> saved_layers;
  for (LayerParameter& layer : *model->mutable_layer()) saved_layers[layer.name()] = &layer;
  for (int index = 0; index < net.layer_count(); ++index) {
    const auto found = saved_layers.find(net.layer(index).name());
    if (found == saved_layers.end()) continue;
    LayerParameter& saved = *found->second;
    for (int i = 0; i < static_cast<int>(net.layer(index).blobs().size()); ++i) {
      const at::Tensor& mine = At(net.layer(index).blobs(), i).data;
      if (mine.numel() == 0 || (i < saved.blobs_size() && NumbersIn(saved.blobs(i)) > 0)) continue;
      for (const LearnableParam& param : net.learnable_params()) {
        if (param.blob.data.const_data_ptr() != mine.const_data_ptr()) continue;
        if (param.layer == index && param.index == i) continue;  // its own: the file is not whole
        while (saved.blobs_size() <= i) saved.add_blobs();
        const auto owner = saved_layers.find(net.layer(param.layer).name());
        const bool there = owner != saved_layers.end() && param.index < owner->second->blobs_size();
        BlobProto blob;
        if (there) {
          blob = owner->second->blobs(param.index);
          blob.clear_shape();
          for (const std::int64_t extent : mine.sizes()) blob.mutable_shape()->add_dim(extent);
        } else {
          ToBlobProto(mine, &blob);
        }
        *saved.mutable_blobs(i) = std::move(blob);
      }
    }
  }
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

SnapshotPaths SnapshotPathsAt(const std::string& prefix, std::uint64_t iteration,
                              SolverParameter::SnapshotFormat format) {
  const std::string stem = prefix + "_iter_" + std::to_string(iteration);
  const std::string suffix = format == SolverParameter::HDF5 ? kHdf5Suffix : "";
  return {.model = stem + ".caffemodel" + suffix, .state = stem + ".solverstate" + suffix};
}

Status WriteSnapshot(const Net& net, const History& history, const SolverPosition& position, const std::string& plan,
                     const SnapshotPaths& paths, bool diffs) {
  if (!paths.model.ends_with(kHdf5Suffix)) {
    POSEIDON_RETURN_IF_ERROR(CheckMessageBytes(BytesOf(net) * (diffs ? 2 : 1), paths.model));
    POSEIDON_RETURN_IF_ERROR(CheckMessageBytes(BytesOf(history), paths.state));
  }
  POSEIDON_ASSIGN_OR_RETURN(FileDraft model, WriteDraft(net.ToProto(diffs), paths.model, FormatOf(paths.model)));
  SolverState state;
  state.set_iter(static_cast<int>(position.iteration));
  state.set_learned_net(paths.model);
  state.set_current_step(position.current_step);
  state.set_weights_hash(WeightsHash(net));
  if (!plan.empty()) state.set_plan(plan);
  history.Save(&state);
  POSEIDON_ASSIGN_OR_RETURN(FileDraft draft, WriteDraft(state, paths.state, FormatOf(paths.state)));

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

Status FindSnapshotFile(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error) || error) return OkStatus();  // where this cannot be known, opening says why
  const std::string other = path.ends_with(kHdf5Suffix)
                                ? path.substr(0, path.size() - std::string(kHdf5Suffix).size())
                                : path + kHdf5Suffix;
  return NotFound("cannot open " + path + ": No such file or directory" +
                  (fs::exists(other, error) ? "; there is " + other : ""));
}

Result<RestoredSnapshot> ReadSnapshot(const std::string& state_path, Net* net, History* history) {
  POSEIDON_ASSIGN_OR_RETURN(const SolverState state, ReadState(state_path));
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
                          .plan = state.plan(),
                          .note = history->AnothersWords(state, state_path)};
}

Result<WeightsReport> LoadWeights(const std::string& model_path, const std::vector<Net*>& nets, SameNames same) {
  POSEIDON_RETURN_IF_ERROR(FindSnapshotFile(model_path));
  POSEIDON_ASSIGN_OR_RETURN(const bool hdf5, HoldsHdf5(model_path));
  POSEIDON_ASSIGN_OR_RETURN(NetParameter model, ReadWeights(model_path, hdf5));
  if (hdf5) {
    for (Net* const net : nets) FillShared(*net, &model);
  }
  return CopyWeights(model, model_path, nets, same);
}

Result<WeightsReport> CopyWeights(const NetParameter& model, const std::string& model_path, const std::vector<Net*>& nets, SameNames same) {
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

Status WriteModel(const Net& net, const std::string& path) { return WriteModel(net, path, FormatOf(path)); }

Status WriteModel(const Net& net, const std::string& path, SolverParameter::SnapshotFormat format) {
  if (format != SolverParameter::HDF5) POSEIDON_RETURN_IF_ERROR(CheckMessageBytes(BytesOf(net), path));
  POSEIDON_ASSIGN_OR_RETURN(FileDraft model, WriteDraft(net.ToProto(), path, format));
  return model.Commit();
}

Status CheckSnapshotPrefix(const std::string& prefix) {
  const fs::path folder = fs::path(prefix).parent_path();
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error) {
    return NotFound("snapshot_prefix " + prefix + " is in folder " + folder.string() + ", which cannot be made: " + error.message());
  }
  const Status written = TryToWriteBeside(prefix);
  if (written.ok()) return OkStatus();
  return PermissionDenied("snapshot_prefix " + prefix + " cannot be written: " + written.message());
}

std::string CompleteSnapshotPrefix(const std::string& prefix, const std::string& solver_path) {
  const fs::path solver(solver_path);
  if (prefix.empty()) return (solver.parent_path() / solver.stem()).string();
  std::error_code error;
  if (fs::is_directory(prefix, error)) return (fs::path(prefix) / solver.stem()).string();
  return prefix;
}

}  // namespace poseidon::caffe
