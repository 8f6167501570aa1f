// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_SNAPSHOT_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_SNAPSHOT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "frontends/caffe/net/net.h"
#include "frontends/caffe/proto/caffe.pb.h"
#include "frontends/caffe/solver/history.h"
#include "frontends/caffe/solver/observer.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// The files of one snapshot: "PREFIX_iter_N.caffemodel" and "PREFIX_iter_N.solverstate", as HDF5 with ".h5" behind.
struct SnapshotPaths {
  std::string model;
  std::string state;
};
SnapshotPaths SnapshotPathsAt(const std::string& prefix, std::uint64_t iteration,
                              SolverParameter::SnapshotFormat format = SolverParameter::BINARYPROTO);

// Where a solver is, apart from weights and history.
struct SolverPosition {
  std::uint64_t iteration = 0;
  int current_step = 0;  // of the learning rate
};

// Writes model and state in Caffe's binary form, or as HDF5 where the paths end in ".h5". Both are whole on the disk before either replaces a file, and
// the state carries the hash of its weights. Where an older snapshot has these names, its model stays under a
// second name until its state is replaced, so that after a crash at any moment the old snapshot or the new one is
// whole. A failure (read-only folder, full disk) leaves what was there, and no half of a new one. `plan`, the text of a
// plan.json, may be empty.
Status WriteSnapshot(const Net& net, const History& history, const SolverPosition& position, const std::string& plan,
                     const SnapshotPaths& paths, bool diffs = false);

// OK where something is at `path`, of a state or a model; else kNotFound, which names what is there under the name that the
// other format has.
Status FindSnapshotFile(const std::string& path);

struct RestoredSnapshot {
  SolverPosition position;
  std::string plan;  // text of the plan.json of the run that wrote it; empty: it held none
  std::string note;  // for the user, of what was taken though it was another's; mostly empty
};
// Loads `state_path` and the model that belongs to it, looked for beside the state and then where the state says;
// a state that carries a hash takes only weights of that hash, and is refused without them. Everything is
// checked before the history changes; weights may be partly copied after a failure.
Result<RestoredSnapshot> ReadSnapshot(const std::string& state_path, Net* net, History* history);

// Copies weights by layer name from a model file, binary or HDF5, for fine-tuning. A file of which no net takes a
// layer is refused.
Result<WeightsReport> LoadWeights(const std::string& model_path, const std::vector<Net*>& nets,
                                  SameNames same = SameNames::kFirst);

// The same with a model that has been read, from `source`.
Result<WeightsReport> CopyWeights(const NetParameter& model, const std::string& source, const std::vector<Net*>& nets,
                                  SameNames same = SameNames::kFirst);

// Writes the net with its weights as a model file: HDF5 where the path ends in ".h5".
Status WriteModel(const Net& net, const std::string& path);
// The same in a form that the path does not say.
Status WriteModel(const Net& net, const std::string& path, SolverParameter::SnapshotFormat format);

// OK when files of `prefix` can be created: tries it, and makes the folder that they go into.
Status CheckSnapshotPrefix(const std::string& prefix);

// Caffe's rule for a snapshot_prefix that is absent (the solver file without its extension) or that
// is a folder (completed by the solver file's name).
std::string CompleteSnapshotPrefix(const std::string& prefix, const std::string& solver_path);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_SNAPSHOT_H_
