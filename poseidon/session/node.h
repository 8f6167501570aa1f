// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_NODE_H_
#define POSEIDON_SESSION_NODE_H_

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/coordinator/coordinator.h"
#include "poseidon/local/host_level.h"
#include "poseidon/messaging/frame_router.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/session/collectives.h"
#include "poseidon/session/ending.h"
#include "poseidon/session/formation.h"
#include "poseidon/session/lanes.h"
#include "poseidon/session/liveness.h"
#include "poseidon/session/member.h"
#include "poseidon/session/models.h"
#include "poseidon/session/node_options.h"
#include "poseidon/sync/exchanges.h"

namespace poseidon::session {

// One member of a job, assembled of its rooms: Formation, Liveness, Models, Ending, and what they share in
// Member; the exchanges of layers, the collectives, and in rank 0's process the coordinator. It hands messages
// to the room that they are for. Asynchronous throughout; session.h is the blocking face for front ends.
//
// Thread: every member is called on `io`; completions fire on `completions` unless said otherwise.
// Failure: the first one is final. `on_failure` is called once with it (on `io`; it must not destroy
// the node), with the culprit's member id where there is one, before anything completes with it;
// everything outstanding does, once the last messages to the others have left or their time is over.
// Lifetime: destroyed on `io` while no product of its pushes is under way on `compute`, because products
// read its memory; AwaitEnd completes when none is.
class Node final : public messaging::MeshObserver, public coordinator::CoordinatorPort {
 public:
  Node(const NodeEnvironment& environment, const NodeOptions& options,
       UniqueFunction<void(const Status&)> on_failure);

  // Binds the listener. Then address() is known.
  Status Listen();
  const transport::Address& address() const { return formation_.address(); }
  // Joins the job; `ready` fires when every member is connected to every other.
  void Start(Completion ready);

  bool is_worker() const { return member_.is_worker(); }
  MemberId member() const { return member_.self; }
  Rank rank() const { return member_.rank; }
  const std::vector<wire::RosterEntry>& roster() const { return member_.roster; }
  // "worker 2 on host b".
  std::string NameOf(std::int32_t member) const { return member_.NameOf(member); }

  // Declares the layers of a model and waits until all workers agree; `done` gets the provisional
  // plan. Models are numbered from 0, below wire::kMaxModels, alike on all workers; each once.
  void Commit(ModelId model, std::vector<plan::LayerSpec> layers, Models::PlanTaker done, DeviceTests by_device = {}) {
    models_.Commit(model, std::move(layers), std::move(by_device), std::move(done));
  }
  // Tells the coordinator what the first steps of a model took; its final plan follows.
  void Report(const wire::Measured& measured) { models_.Report(measured); }
  // Fires, on `completions`, once the model's final plan is known (at once if it is).
  void AwaitFinalPlan(ModelId model, Models::PlanTaker done) { models_.AwaitFinalPlan(model, std::move(done)); }

  // One step of one layer. See sync::SyncRequest; its priority is set here.
  void Push(ModelId model, LayerId layer, sync::SyncRequest request) {
    models_.Push(model, layer, std::move(request));
  }
  // More of the layer's request in parts has come; see sync::Exchange::Arrived.
  void Arrived(ModelId model, LayerId layer, std::uint64_t elements) { models_.Arrived(model, layer, elements); }

  // One-off keys of the store, in the same order on every worker. Each sums `view` over the ranks
  // that contribute, in rank order, unscaled, and leaves the sum in every rank's `view`.
  void Collective(TensorView view, bool contribute, Completion done);
  // The same, and only `root` contributes; workers that name different roots, or call Collective, end the job.
  void Broadcast(TensorView view, Rank root, Completion done);

  // A one-off key of one step of this model, summed like Collective's. Its order among those and other steps' sums is
  // free.
  void StepSum(ModelId model, Step step, TensorView view, Completion done);

  // This member is done; `done` fires when all workers are and the connections may end.
  void Leave(Completion done);
  // Ends the job for everybody. `reason` should carry the culprit, if any.
  void Abort(const Status& reason) { ending_.Abort(reason); }
  // Ends at once without a message, as a process that is killed: the others see a lost member. Not reported
  // through `on_failure`.
  void Vanish() { ending_.Vanish(); }
  // `done` fires when the job has ended here and everything outstanding has been completed: OK after
  // the orderly end, else the failure. For dedicated servers, which leave when the workers have.
  void AwaitEnd(Completion done) { ending_.AwaitEnd(std::move(done)); }

  const messaging::Mesh& mesh() const { return member_.mesh; }
  // Null before the model is committed, and in servers.
  schedule::Scheduler* scheduler(ModelId model) const { return models_.scheduler(model); }
  // See sync::Exchange::MemoryOf. Of a committed model.
  std::optional<sync::OwnMemory> MemoryOf(ModelId model, LayerId layer) const;
  // Bytes that this worker's processor wrote to its host's shared memory or read from it; 0 where it shares none.
  std::uint64_t local_bytes(ModelId model, LayerId layer) const;
  // What lane 0 has moved, and the bytes that the core has allocated there for landing places and sums.
  LaneTotals OwnTotals() const;
  // The same of the other lanes, when they answer: not to be waited for on `io` of a simulation.
  std::vector<std::future<LaneTotals>> AskLanes() const { return lanes_.Ask(); }
  // Calls `done` on `io` with the sums of all lanes.
  void Collect(UniqueFunction<void(const LaneTotals&)> done);
  const LinkMeasurement& link() const { return formation_.link(); }
  // Of its link that every member may use, bytes per second each way; 0: all.
  double bandwidth() const { return member_.bandwidth; }
  // What this member lacks of others, that of the earliest step, and a contribution before a mean; none where it lacks nothing.
  std::optional<wire::Wait> FirstWait() const;

 private:
  // messaging::MeshObserver:
  Status OnControl(MemberId from, ConstBytes message) override;
  Status OnIntroduction(const std::shared_ptr<messaging::Channel>& stranger, ConstBytes message) override;
  ByteBuffer LastWords(MemberId peer, const Status& reason) override;
  void OnPeerClosed(MemberId peer, const Status& reason) override;
  void OnStrangerClosed(const messaging::Channel& stranger, const Status& reason) override;

  // coordinator::CoordinatorPort:
  void SendToMember(MemberId member, const wire::Message& message) override;
  void SendToJoiner(coordinator::ConnectionId connection, const wire::Message& message) override;
  void SendToStrangers(const wire::Message& message) override;
  void AdmitJoiner(coordinator::ConnectionId connection, MemberId member) override;
  void DismissJoiner(coordinator::ConnectionId connection) override;
  void OnVerdict(const coordinator::AbortAll& verdict) override;

  void MakeCoordinator();
  void MakeHostLevel();
  void OnRoster();
  void OpenLanes(std::uint16_t lanes, std::function<void()> open);
  void OnLaneMessage(MemberId from, const ByteBuffer& message);
  void SettleLanes(Task then);
  Status OnMessage(MemberId from, const wire::Message& message);
  Status OnSuspect(MemberId from, const wire::Suspect& suspect);
  void OnAllReached(const wire::AllReached& reached);
  void OnAllDone();
  void AddWaits(std::vector<wire::Wait>* waits) const;
  void Abandon();
  bool MayCollect(Completion& done);
  Completion OnCompletions(Completion done);

  Member member_;
  Ending ending_;
  Liveness liveness_;
  Formation formation_;
  std::unique_ptr<coordinator::Coordinator> coordinator_;  // in rank 0's process
  // Where workers combine on their hosts first; it holds the memory that the rest works on.
  std::unique_ptr<local::HostLevel> host_level_;
  Lanes lanes_;
  sync::Exchanges exchanges_;               // of layers, through all lanes
  std::optional<Collectives> collectives_;  // of one-off keys, always among workers
  messaging::FrameRouter router_;           // to these two
  Models models_;
  Alive alive_;
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_NODE_H_
