// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "tests/golden/kinds.h"
#include "frontends/caffe/net/blob_proto.h"
#include "frontends/caffe/net/net.h"
#include "frontends/caffe/proto/hdf5_file.h"
#include "frontends/caffe/proto/read.h"
#include "frontends/caffe/proto/upgrade.h"
#include "frontends/caffe/solver/solver.h"

namespace poseidon::caffe {
namespace {

using nlohmann::json;

// An array of the case with one row per iteration, or per pass for inputs.
struct Rows {
  std::string name;
  at::Tensor rows;
  double abs = 0;
  at::Tensor at(std::uint64_t row) const { return rows[static_cast<std::int64_t>(row)]; }
};

// A folder that is gone with the object.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "golden-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A model or a state in either format, as the case's solver writes them.
Status ReadFile(const std::string& path, NetParameter* model) {
  if (!IsHdf5(path)) return ReadBinaryFile(path, model);
  POSEIDON_ASSIGN_OR_RETURN(*model, ReadHdf5Model(path));
  return OkStatus();
}
Status ReadFile(const std::string& path, SolverState* state) {
  if (!IsHdf5(path)) return ReadBinaryFile(path, state);
  POSEIDON_ASSIGN_OR_RETURN(*state, ReadHdf5State(path));
  return OkStatus();
}

at::Tensor NumbersOf(const BlobProto& blob) {
  at::Tensor numbers = at::empty({NumbersIn(blob)}, at::TensorOptions().dtype(at::kFloat));
  CopyNumbers(blob, numbers);
  return numbers;
}

// A training run whose every iteration is known: weights and history (kind solver) or the norms of
// the weights (kind trajectory), losses and rates; and the files that Caffe wrote on the way.
class SolverCase {
 public:
  SolverCase(const GoldenCase& golden, const Placement& placement)
      : golden_(golden), placement_(placement), json_(golden.json), comparison_(json_["tolerance"]["rel"].get<double>()) {}

  Result<CaseOutcome> Run() {
    POSEIDON_RETURN_IF_ERROR(ReadArrays());
    POSEIDON_ASSIGN_OR_RETURN(parameters_, ReadSolver(json_["solver"].get<std::string>()));
    for (const char* initial : {"initial", "initial_v1", "initial_hdf5"}) {
      if (!json_["files"].contains(initial)) continue;
      POSEIDON_ASSIGN_OR_RETURN(auto solver, Begin());
      POSEIDON_RETURN_IF_ERROR(solver->LoadWeightFiles(json_["files"][initial].get<std::string>()));
      POSEIDON_RETURN_IF_ERROR(Train(solver.get(), initial));
    }
    for (const json& snapshot : json_["files"]["snapshots"]) {
      if (!snapshot.contains("state")) continue;
      POSEIDON_ASSIGN_OR_RETURN(auto solver, Begin());
      const std::string state = snapshot["state"].get<std::string>();
      POSEIDON_RETURN_IF_ERROR(solver->Restore(state));
      POSEIDON_RETURN_IF_ERROR(Train(solver.get(), "from " + state));
    }
    return comparison_.Outcome();
  }

 private:
  Result<std::vector<Rows>> ReadList(const char* list) const {
    std::vector<Rows> read;
    for (const json& entry : json_.value(list, json::array())) {
      POSEIDON_ASSIGN_OR_RETURN(at::Tensor rows,
                                ReadTensor(golden_.Path(entry["file"].get<std::string>())));
      const std::string name = entry.contains("blob")
                                   ? entry["blob"].get<std::string>()
                                   : entry["layer"].get<std::string>() + "[" +
                                         std::to_string(entry["index"].get<int>()) + "]";
      read.push_back({.name = name, .rows = std::move(rows), .abs = entry.value("abs", 0.0)});
    }
    return read;
  }

  Status ReadArrays() {
    POSEIDON_ASSIGN_OR_RETURN(inputs_, ReadList("inputs"));
    POSEIDON_ASSIGN_OR_RETURN(params_, ReadList("params"));
    POSEIDON_ASSIGN_OR_RETURN(norms_, ReadList("norms"));
    POSEIDON_ASSIGN_OR_RETURN(history_, ReadList("history"));
    POSEIDON_ASSIGN_OR_RETURN(loss_,
                              ReadTensor(golden_.Path(json_["loss"]["file"].get<std::string>())));
    POSEIDON_ASSIGN_OR_RETURN(rate_, ReadTensor(golden_.Path(json_["lr"]["file"].get<std::string>())));
    return OkStatus();
  }

  Result<std::unique_ptr<Solver>> Begin() const {
    SolverOptions options;
    options.writes_snapshots = false;
    options.placement = placement_;
    options.feed = [this](Net& net, const PassContext& pass) { return Feed(net, pass.batch); };
    return Solver::Create(parameters_, std::move(options));
  }

  Status Feed(Net& net, std::uint64_t pass) const {
    for (const Rows& input : inputs_) {
      Blob* blob = net.blob(input.name);
      if (blob == nullptr) return InvalidArgument("the net has no blob " + input.name);
      blob->data.copy_(input.at(pass).view(blob->data.sizes()));
    }
    return OkStatus();
  }

  // From where the solver is to the end, compared after each iteration.
  Status Train(Solver* solver, const std::string& run) {
    const auto iterations = json_["iterations"].get<std::uint64_t>();
    CompareState(solver, run);
    while (solver->iteration() < iterations) {
      const std::uint64_t iteration = solver->iteration();
      POSEIDON_RETURN_IF_ERROR(solver->Step(1));
      const std::string when = run + " iteration " + std::to_string(iteration) + " ";
      const auto row = static_cast<std::int64_t>(iteration);
      comparison_.CompareNumber(when + "loss", solver->last_loss(), loss_[row].item<double>(),
                                LossLimit(iteration));
      comparison_.CompareNumber(when + "rate", solver->last_rate(), rate_[row].item<double>(),
                                json_["lr"]["abs"].get<double>());
      CompareState(solver, run);
      POSEIDON_RETURN_IF_ERROR(CompareFiles(solver, run));
    }
    return OkStatus();
  }

  double LossLimit(std::uint64_t iteration) const {
    const json& loss = json_["loss"];
    return loss.contains("abs_by_iteration") ? loss["abs_by_iteration"][iteration].get<double>()
                                             : loss["abs"].get<double>();
  }

  void CompareState(Solver* solver, const std::string& run) {
    const std::uint64_t row = solver->iteration();
    const std::string when = run + " after " + std::to_string(row) + " iterations: ";
    const std::vector<LearnableParam>& learned = solver->net().learnable_params();
    const std::size_t expected = params_.empty() ? norms_.size() : params_.size();
    if (learned.size() != expected) {
      comparison_.Fail("the net has " + std::to_string(learned.size()) +
                       " learned blobs, expected " + std::to_string(expected));
      return;
    }
    for (std::size_t i = 0; i < params_.size(); ++i) {
      comparison_.Compare(when + params_[i].name, learned[i].blob.data, params_[i].at(row),
                          params_[i].abs);
    }
    for (std::size_t i = 0; i < norms_.size(); ++i) {
      comparison_.CompareNumber(when + "norm of " + norms_[i].name,
                                at::linalg_vector_norm(learned[i].blob.data).item<double>(),
                                norms_[i].at(row).item<double>(), norms_[i].abs);
    }
    const std::vector<at::Tensor>& memory = solver->history().tensors();
    if (!history_.empty() && memory.size() != history_.size()) {
      comparison_.Fail("the solver remembers " + std::to_string(memory.size()) +
                       " blobs, expected " + std::to_string(history_.size()));
      return;
    }
    for (std::size_t i = 0; i < history_.size(); ++i) {
      comparison_.Compare(when + "history " + std::to_string(i) + " of " + history_[i].name,
                          memory[i], history_[i].at(row), history_[i].abs);
    }
  }

  // Compares the files that we would write now with Caffe's: the form and the numbers.
  Status CompareFiles(Solver* solver, const std::string& run) {
    for (const json& snapshot : json_["files"]["snapshots"]) {
      if (snapshot["iter"].get<std::uint64_t>() != solver->iteration()) continue;
      const ScratchFolder folder;
      const SnapshotPaths paths = SnapshotPathsAt(folder.path() + "/snap", solver->iteration(), parameters_.snapshot_format());
      const SolverPosition position = solver->position();
      POSEIDON_RETURN_IF_ERROR(WriteSnapshot(solver->net(), solver->history(), position, /*plan=*/"", paths));
      NetParameter want;
      NetParameter got;
      POSEIDON_RETURN_IF_ERROR(ReadFile(snapshot["model"].get<std::string>(), &want));
      POSEIDON_RETURN_IF_ERROR(ReadFile(paths.model, &got));
      CompareModels(run + " " + snapshot["model"].get<std::string>() + ": ", got, want);
      if (!snapshot.contains("state")) continue;
      SolverState want_state;
      SolverState got_state;
      POSEIDON_RETURN_IF_ERROR(ReadFile(snapshot["state"].get<std::string>(), &want_state));
      POSEIDON_RETURN_IF_ERROR(ReadFile(paths.state, &got_state));
      CompareStates(run + " " + snapshot["state"].get<std::string>() + ": ", got_state, want_state);
    }
    return OkStatus();
  }

  void CompareModels(const std::string& where, const NetParameter& got, const NetParameter& want) {
    if (got.layer_size() != want.layer_size()) {
      comparison_.Fail(where + std::to_string(got.layer_size()) + " layers, expected " +
                       std::to_string(want.layer_size()));
      return;
    }
    for (int i = 0; i < got.layer_size(); ++i) {
      const LayerParameter& mine = got.layer(i);
      const LayerParameter& theirs = want.layer(i);
      if (mine.name() != theirs.name() || mine.type() != theirs.type() ||
          mine.blobs_size() != theirs.blobs_size()) {
        comparison_.Fail(where + "layer " + std::to_string(i) + " is " + mine.name() + " (" +
                         mine.type() + "), expected " + theirs.name() + " (" + theirs.type() + ")");
        return;
      }
      for (int k = 0; k < mine.blobs_size(); ++k) {
        CompareBlobs(where + mine.name() + "[" + std::to_string(k) + "]", mine.blobs(k),
                     theirs.blobs(k));
      }
    }
  }

  void CompareStates(const std::string& where, const SolverState& got, const SolverState& want) {
    if (got.iter() != want.iter() || got.current_step() != want.current_step() ||
        got.history_size() != want.history_size()) {
      comparison_.Fail(where + "iter, current_step or history differ");
      return;
    }
    for (int i = 0; i < got.history_size(); ++i) {
      CompareBlobs(where + "history " + std::to_string(i), got.history(i), want.history(i));
    }
  }

  void CompareBlobs(const std::string& where, const BlobProto& got, const BlobProto& want) {
    if (got.shape().SerializeAsString() != want.shape().SerializeAsString() ||
        got.data_size() != want.data_size()) {
      comparison_.Fail(where + " has another shape");
      return;
    }
    comparison_.Compare(where, NumbersOf(got), NumbersOf(want),
                        json_["tolerance"]["abs"].get<double>());
  }

  const GoldenCase& golden_;
  const Placement placement_;
  const json& json_;
  SolverParameter parameters_;
  std::vector<Rows> inputs_;
  std::vector<Rows> params_;
  std::vector<Rows> norms_;
  std::vector<Rows> history_;
  at::Tensor loss_;
  at::Tensor rate_;
  Comparison comparison_;
};

}  // namespace

Result<CaseOutcome> RunSolverCase(const GoldenCase& golden, const Placement& placement) {
  return SolverCase(golden, placement).Run();
}

}  // namespace poseidon::caffe
