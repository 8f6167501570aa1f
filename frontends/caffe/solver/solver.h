// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_SOLVER_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_SOLVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontends/caffe/data/data_share.h"
#include "frontends/caffe/net/debug_lines.h"
#include "frontends/caffe/net/net.h"
#include "frontends/caffe/net/placement.h"
#include "frontends/caffe/proto/caffe.pb.h"
#include "frontends/caffe/solver/collectives.h"
#include "frontends/caffe/solver/gradient_sync.h"
#include "frontends/caffe/solver/history.h"
#include "frontends/caffe/solver/loss_counts.h"
#include "frontends/caffe/solver/not_finite.h"
#include "frontends/caffe/solver/observer.h"
#include "frontends/caffe/solver/snapshot.h"
#include "frontends/caffe/solver/update_rule.h"
#include "frontends/caffe/solver/work_clock.h"
#include "poseidon/base/result.h"
#include "poseidon/base/trace.h"
#include "poseidon/plan/layer_clock.h"
#include "poseidon/tensor/dtype.h"

namespace poseidon::caffe {

using plan::LayerClock;
using plan::SteadyNow;

// A request to a running solver, asked for between iterations.
enum class SolverAction {
  kNone,
  kSnapshot,         // write one and go on
  kStop,             // end as if training were over: a last snapshot if snapshot_after_train
  kSnapshotAndStop,  // the same, the snapshot in any case
};

struct SolverOptions {
  DType dtype = DType::kF32;
  std::uint64_t seed = 1;  // equal on all workers
  DataShare share;
  // Where relative paths of nets and data are looked for besides the working directory.
  std::string folder;
  // NetOptions::placement of its nets.
  Placement placement;
  // NetOptions::fuse of its nets, unless debug_info shows every layer.
  bool fuse = true;
  // True on the one worker that writes the snapshots.
  bool writes_snapshots = true;
  SolverObserver* observer = nullptr;
  // Ends training when a loss or a weight is not finite, without a snapshot of what is broken; else that is reported
  // once and training goes on. On several workers `poll` must then answer kStop once one of them has not_finite().
  bool stops_when_not_finite = false;
  // True when this worker was asked to stop; cuts a test short. Empty: never.
  std::function<bool()> stop_wanted;
  // Asked after every iteration with the number of iterations done. On several workers it must give
  // all of them the same answer at the same iteration. Empty: kNone.
  std::function<SolverAction(std::uint64_t iterations)> poll;
  // Called before each forward pass of training, for nets without a data layer: writes their
  // inputs.
  std::function<Status(Net& net, const PassContext& pass)> feed;
  // As in Caffe, the diff of a learned blob is what the update took off it, once it was updated; else it is the gradient.
  bool diffs_are_updates = false;
  // Asked for the text of the plan.json that a snapshot keeps; empty, or empty text: none.
  std::function<std::string()> plan_text;
  // Gets a span "forward", "backward" or "update" with a layer's index in the net and the iteration. Empty: none.
  std::function<void(const TraceSpan& span)> trace;
};

// What is called in every iteration, as Caffe's callbacks are. A failure ends the run, as one of a layer does.
struct IterationCalls {
  // The iteration begins, after the test that is due before it: all updates are done, gradients are zero.
  std::function<Status()> begins;
  // The gradients of its passes are computed, weights are not yet updated with them. On several workers they are lent by then: it
  // must leave them alone.
  std::function<Status()> gradients_ready;
};

// Trains a net as Caffe does: the numbers of BVLC Caffe 1.0 for one worker, and those of one worker
// with a `world` times larger batch for several (mean of the workers' mean gradients).
//
// The weights of a layer are updated just before its next forward pass, when its gradient has
// arrived, not at the end of the iteration: communication of the lower layers hides the transfer of
// the upper ones. While one layer is waited for, others that have arrived are updated. Whoever looks
// at weights (a test, a snapshot, the caller after Step) finds all updates done. With
// clip_gradients the norm needs all gradients, so all are awaited at the end of backward.
//
// Of an iteration that fails, by a layer, a callback or its data, no layer has the update: trained weights, history and count are
// those after the iteration before it, and the next Step makes it anew. Where the job has failed instead, some layers may lack
// the last update.
//
// Thread: one. Lifetime: observer, sync and collectives outlive the solver's last call.
class Solver {
 public:
  // Reads the nets, builds them and loads `parameters.weights`. Everything a user can get wrong in
  // a solver file fails here with a sentence.
  static Result<std::unique_ptr<Solver>> Create(const SolverParameter& parameters,
                                                SolverOptions options);
  ~Solver();
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;

  // Connects the solver with the other workers; before the first iteration, not for a world of 1
  // without a network. The sync is asked about the layers of SyncedLayers().
  void Connect(GradientSync* sync, Collectives* collectives);

  // From here on every iteration makes these calls. Its first pass then hides no transfer of gradients.
  void CallInIterations(IterationCalls calls) { calls_ = std::move(calls); }

  // Continues from a snapshot's solver state (`.solverstate`).
  Status Restore(const std::string& state_path);
  // Copies weights by layer name from `.caffemodel` files separated by commas.
  Status LoadWeightFiles(const std::string& model_paths);

  // Runs to max_iter with tests, snapshots and the closing passes, as `caffe train` does. Stops
  // early, with OK, when the poll says so.
  Status Solve();
  // Runs `iterations` more, or fewer when the poll says stop. All updates are done on return.
  Status Step(std::uint64_t iterations);
  // Runs all test nets and reports to the observer.
  Status TestAll();
  // Writes a snapshot (on the worker that does) and reports it; a failure to write is the report's.
  Status Snapshot();

  const SolverParameter& parameters() const { return parameters_; }
  // Iterations that are to come begin with this rate; equal on all workers.
  void set_base_lr(float rate) { parameters_.set_base_lr(rate); }
  Net& net() { return *net_; }
  const std::vector<std::unique_ptr<Net>>& test_nets() const { return test_nets_; }
  History& history() { return history_; }
  // Iterations done.
  std::uint64_t iteration() const { return position_.iteration; }
  const SolverPosition& position() const { return position_; }
  bool stopped() const { return stopped_; }
  // Whether it waits, after a failure, for what the iteration before it still needs.
  bool gives_up() const { return gives_up_; }
  // Where numbers ceased to be finite, if they did: of this worker's own while it runs, the same on all workers after a
  // run that it ended.
  const std::optional<NotFinite>& not_finite() const { return not_finite_; }
  // The plan that the restored snapshot holds; empty: none, or nothing was restored.
  const std::string& restored_plan() const { return restored_plan_; }
  // The mean loss and the rate of the last iteration.
  double last_loss() const { return last_loss_; }
  double last_rate() const { return last_rate_; }

  // Layers whose gradient is averaged over workers: those that own a blob that is trained. In the
  // order of the net.
  const std::vector<int>& SyncedLayers() const { return synced_layers_; }
  // Seconds per layer and iteration, means of the last few; see LayerClock. On a device an iteration's backward pass counts with the
  // next one's forward pass, by which it is known.
  const LayerClock& layer_clock() const { return clock_; }

 private:
  enum class Gradient : std::uint8_t {
    kApplied,    // or there is none
    kExchanged,  // the sync has it
    kComplete,   // the mean over all workers, which is to be applied
  };
  struct LayerState {
    std::vector<std::size_t> params;  // indices of the learnable blobs it owns
    bool synced = false;
    Gradient gradient = Gradient::kApplied;
  };

  Solver(const SolverParameter& parameters, SolverOptions options, std::unique_ptr<Net> net,
         std::vector<std::unique_ptr<Net>> test_nets, std::unique_ptr<UpdateRule> rule);

  void ListLayers();
  void MakeHooks();
  Status Iterate(bool display);
  void GiveUpIteration();
  // Iterate's parts, in order. Gradients begin anew.
  Status Begin();
  // The step begins for all workers, which learn by what each layer is exchanged.
  Status BeginSync();
  // The mean loss of the iteration's passes, whose gradients add up.
  Result<double> RunPasses();
  void CompleteGradients();
  // The next iteration is the one that is to come; the gradients at hand are of the one before, at its rate.
  void Advance();
  void ReportIteration(Duration took, bool display);
  Status ForwardBackward(int pass, double* loss);
  Status BeforeForward(int layer);
  Status AfterForward(int layer);
  Status BeforeBackward(int layer);
  Status AfterBackward(int layer);
  Status Announce(int layer);
  void NoteLossCounts();
  void NoteNotFinite(const NotFinite& found);
  Status AgreeOnNotFinite(bool with_weights);
  bool Broken() const { return options_.stops_when_not_finite && not_finite_.has_value(); }
  bool ByFactors(int layer) const;
  DebugSink Debug() const;
  // Waits for the layer's gradient to be complete and applies it, if there is one.
  Status FinishLayer(int layer);
  Status Await(int layer);
  // Returns `first` and after it the other layers that are being exchanged, in the net's order.
  std::vector<int> ExchangedFrom(int first) const;
  Status FinishPending();
  Status AwaitPending();
  double ClipFactor() const;
  void Update(int layer);
  void UpdateParam(std::size_t index);
  void Smooth(double loss, std::uint64_t iteration);
  Status ShareStatistics();
  bool TestDue() const;
  std::uint64_t TestsBefore(std::uint64_t iteration) const;
  Status ClosingPass();
  PassContext PassAt(std::uint64_t iteration, int pass) const;
  void NoteWork(const LayerWork& work);

  SolverParameter parameters_;
  const SolverOptions options_;
  IterationCalls calls_;
  const std::unique_ptr<Net> net_;
  const std::vector<std::unique_ptr<Net>> test_nets_;
  const std::unique_ptr<UpdateRule> rule_;
  History history_;
  GradientSync* sync_ = nullptr;
  Collectives* collectives_ = nullptr;

  SolverPosition position_;
  std::string restored_plan_;
  bool stopped_ = false;
  std::optional<NotFinite> not_finite_;
  bool debugs_ = false;  // the iteration under way shows debug_info
  NetHooks hooks_;
  std::vector<LayerState> layers_;
  std::vector<int> synced_layers_;
  LayerClock clock_;
  WorkClock work_;
  double device_seconds_ = 0;  // of layers' work, since the last report
  LossCounts loss_counts_;

  // Of the gradients that are not applied: their iteration, rate and clip factor.
  std::uint64_t pending_iteration_ = 0;
  double pending_rate_ = 0;
  double pending_clip_ = 1;
  bool last_pass_ = false;
  bool gives_up_ = false;
  bool updated_ = true;  // the iteration under way has applied all that were pending; what is exchanged is its own

  double last_loss_ = 0;
  double last_rate_ = 0;
  std::uint64_t first_iteration_ = 0;  // of the run of Step under way
  double smoothed_loss_ = 0;
  double wait_seconds_ = 0;
  std::vector<double> recent_losses_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_SOLVER_H_
