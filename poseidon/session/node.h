// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_NODE_H_
#define POSEIDON_SESSION_NODE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "poseidon/base/executor.h"
#include "poseidon/base/log.h"
#include "poseidon/base/trace.h"
#include "poseidon/coordinator/coordinator.h"
#include "poseidon/coordinator/evidence.h"
#include "poseidon/device/device.h"
#include "poseidon/factors/engine.h"
#include "poseidon/local/host_level.h"
#include "poseidon/messaging/frame_router.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/schedule/scheduler.h"
#include "poseidon/session/collectives.h"
#include "poseidon/session/front_end.h"
#include "poseidon/session/link_probe.h"
#include "poseidon/session/progress_watch.h"
#include "poseidon/sync/exchanges.h"
#include "poseidon/transport/transport.h"

namespace poseidon::session {

// What a member is and whom it meets. Filled at the edge (tools, front ends); the core reads no
// environment.
struct NodeOptions {
  wire::Role role = wire::Role::kWorker;
  std::uint16_t workers = 1;
  std::uint16_t servers = 0;          // dedicated ones; 0: every worker hosts a shard
  std::int32_t requested_rank = -1;   // of a server: its number among them; -1: any
  bool hosts_coordinator = false;     // exactly one worker of the job; it becomes rank 0
  std::string host = "localhost";     // the machine's name, for people
  // Whose memory this worker shares (local::ThisMachine); empty: nobody's. Workers of one machine combine
  // on it before anything crosses the network, if the `levels` of the member with the coordinator say so.
  std::string machine;
  plan::Levels levels = plan::Levels::kFlat;
  transport::Address listen{"127.0.0.1", 0};
  std::string advertise_host;         // where others reach `listen`; empty: listen.host
  transport::Address coordinator;     // where rank 0 listens; unused by rank 0
  Duration join_timeout = coordinator::MembershipOptions{}.form_within;
  coordinator::LivenessRule liveness;
  coordinator::ProgressRule progress;  // the coordinator's counts; of the others, how idle they call themselves
  plan::PlanOptions planning;
  std::uint64_t final_plan_step = plan::kFinalPlanStep;
  messaging::Flow flow;  // until the link has been measured, which then decides
  bool flow_is_fixed = false;
  messaging::Order order = messaging::Order::kNextForward;  // the same on every member
  plan::Placement placement = plan::Placement::kEven;       // likewise
  std::uint64_t memory_limit_bytes = 0;  // a dedicated server refuses to need more; 0: no limit
  std::uint64_t probe_bytes = 4u << 20;  // sent once to measure the link; 0: nothing is measured
  double cores = 1;  // that this member may use; less than 1 where members share one
  std::uint32_t compute_threads = 1;
  // What moving a byte costs a CPU worker, both ends and the sum together; 0: computing does not
  // compete with it.
  double cpu_seconds_per_wire_byte = 0;
};

// What a member runs on. Everything outlives the node.
struct NodeEnvironment {
  Executor& io;
  Executor& compute;      // engine products
  Executor& completions;  // where completions of pushes and collectives fire
  transport::Context& context;
  LogSink& log;
  factors::ProductEngine* engine = nullptr;  // null: no layer uses factors
  TraceRecorder* trace = nullptr;
  // Where gradients and factors live; made on `io`. Null: the host.
  device::Device* device = nullptr;
  const FrontEnd* front_end = nullptr;          // null: nothing is known of it
  std::function<Duration()> processor_time = {};  // of this process; none: it counts as busy
};

// One member of a job, assembled: mesh, coordinator (in rank 0's process), key-value store, factor
// broadcasting, scheduler. Asynchronous throughout; session.h is the blocking face for front ends.
//
// Thread: every member is called on `io`; completions fire on `completions` unless said otherwise.
// Failure: the first one is final. It is told once through `on_failure` (on `io`; it must not destroy
// the node), with the culprit's member id where there is one, before anything completes with it;
// everything outstanding does, within the moment that the last words to the others may take.
// Lifetime: destroyed on `io` while no product of its pushes is under way on `compute`, because products
// read its memory; AwaitEnd tells when.
class Node final : public messaging::MeshObserver, public coordinator::CoordinatorPort {
 public:
  Node(const NodeEnvironment& environment, const NodeOptions& options,
       UniqueFunction<void(const Status&)> on_failure);
  ~Node() override;

  // Binds the listener. Then address() is known.
  Status Listen();
  const transport::Address& address() const { return listener_->address(); }
  // Joins the job; `ready` fires when every member is connected to every other.
  void Start(Completion ready);

  bool is_worker() const { return options_.role == wire::Role::kWorker; }
  MemberId member() const { return self_; }
  Rank rank() const { return rank_; }
  const std::vector<wire::RosterEntry>& roster() const { return roster_; }
  // "worker 2 on host b".
  std::string NameOf(std::int32_t member) const;

  // Declares the layers of a model and waits until all workers agree; `done` gets the provisional
  // plan. Models are numbered from 0, below wire::kMaxModels, alike on all workers; each once.
  void Commit(ModelId model, std::vector<plan::LayerSpec> layers,
              UniqueFunction<void(Result<plan::Plan>)> done);
  // Tells the coordinator what the first steps of a model took; its final plan follows.
  void Report(const wire::Measured& measured);
  // Fires, on `completions`, once the model's final plan is known (at once if it is).
  void AwaitFinalPlan(ModelId model, UniqueFunction<void(Result<plan::Plan>)> done);

  // One step of one layer. See sync::SyncRequest; priority and epoch are set here.
  void Push(ModelId model, LayerId layer, sync::SyncRequest request);

  // One-off keys of the store, in the same order on every worker. Each sums `view` over the ranks
  // that contribute, in rank order, unscaled, and leaves the sum in every rank's `view`.
  void Collective(TensorView view, bool contribute, Completion done);
  // The same, and only `root` contributes; workers that name different roots, or call Collective, end the job.
  void Broadcast(TensorView view, Rank root, Completion done);

  // A one-off key of this model's step, summed like Collective's, in no order with them or with other steps'.
  void StepSum(ModelId model, Step step, TensorView view, Completion done);

  // This member is done; `done` fires when all workers are and the connections may end.
  void Leave(Completion done);
  // Ends the job for everybody. `reason` should carry the culprit, if any.
  void Abort(const Status& reason);
  // Ends at once and without a word, as a process that is killed: the others see a lost member. Not told
  // through `on_failure`.
  void Vanish();
  // `done` fires when the job has ended here and everything outstanding has been completed: OK after
  // the orderly end, else the failure. For dedicated servers, which leave when the workers have.
  void AwaitEnd(Completion done);

  const messaging::Mesh& mesh() const { return mesh_; }
  // Null before the model is committed, and in servers.
  schedule::Scheduler* scheduler(ModelId model) const;
  // What this worker wrote to its host's shared memory or read from it; 0 where it shares none.
  std::uint64_t local_bytes(ModelId model, LayerId layer) const;
  // What the core has allocated for landing places and sums.
  std::uint64_t allocated_bytes() const;
  const LinkMeasurement& link() const { return link_; }

 private:
  struct Model {
    std::unique_ptr<schedule::Scheduler> scheduler;  // of workers
    std::optional<plan::Plan> provisional_plan;
    std::optional<plan::Plan> final_plan;
    bool backward_ends = false;  // little is to be committed for its sake
    UniqueFunction<void(Result<plan::Plan>)> committed;
    std::vector<UniqueFunction<void(Result<plan::Plan>)>> awaiting_plan;
  };

  enum class Phase : std::uint8_t { kNew, kJoining, kConnecting, kReady, kRunning, kLeaving, kEnded };

  // messaging::MeshObserver:
  Status OnControl(MemberId from, ConstBytes message) override;
  Status OnIntroduction(const std::shared_ptr<messaging::Channel>& stranger,
                        ConstBytes message) override;
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
  void JoinCoordinator();
  wire::Join OwnJoin() const;
  void AwaitWelcome();
  void BeatBeforeWelcome(const std::shared_ptr<messaging::Channel>& coordinator);
  void BeatToJoiners();
  void LimitStart();
  std::int32_t CoordinatorIfHere() const;
  coordinator::ConnectionId JoinerOf(const std::shared_ptr<messaging::Channel>& stranger);
  Status CheckRoster(const wire::Welcome& welcome) const;
  Status OnMessage(MemberId from, const wire::Message& message);
  Status OnWelcome(const wire::Welcome& welcome);
  void ConnectToPeers();
  void OnPeerConnected();
  Status OnHello(const std::shared_ptr<messaging::Channel>& channel, const wire::Hello& hello);
  void OnStart();
  Status OnAgreed(const wire::Agreed& agreed);
  void SetUpModel(Model& model, const wire::Agreed& agreed);
  void FollowPlan(ModelId model, const plan::Plan& plan);
  void CommitLittleAtTheEnd(Model& model, const wire::Agreed& agreed);
  messaging::LinkSpeed link_speed() const;
  void OnGo(ModelId id);
  Status OnAbortMessage(MemberId from, const wire::Abort& abort);
  void OnGoodbye();
  void Beat();
  void ReportProgress();
  void Weigh(const coordinator::EvidenceEvent& event);
  void ArmEvidenceTimer();
  void SendTo(MemberId to, const wire::Message& message);
  void End(const Status& reason);
  void FinishEnding();
  void TellOver();
  sync::Topology MakeTopology() const;
  // Among hosts, where workers combine on theirs first.
  sync::Topology AmongHosts(sync::Topology flat) const;
  bool levelled() const { return !host_of_rank_.empty(); }
  void MakeExchanges();
  void MakeLocal(const std::vector<MemberId>& worker_of_rank);
  MemberId ProbedMember() const;
  std::size_t layer_peers() const;
  Status OnSegment(MemberId from, const wire::Segment& offer);
  void AnswerDeclared(ModelId model);
  void CannotShare(const Status& reason);
  void CollectivesDiffer(const Status& how);
  bool CheckMemory();
  bool MayCollect(Completion& done);
  Completion OnCompletions(Completion done);
  void RunProductTests(ModelId model, std::vector<plan::LayerSpec> layers);
  void Cancel(TimerId& timer);
  void PostDone(Completion& done, const Status& status);
  template <typename F>
  auto Guarded(F f);

  NodeEnvironment env_;
  const NodeOptions options_;
  UniqueFunction<void(const Status&)> on_failure_;
  Phase phase_ = Phase::kNew;
  Status failure_;  // why it ended; "the job has ended" after an orderly end
  bool ended_well_ = false;
  bool over_ = false;  // nothing is in flight any more
  StatusCode abort_code_ = StatusCode::kUnavailable;

  std::unique_ptr<transport::Listener> listener_;
  messaging::Mesh mesh_;
  std::unique_ptr<coordinator::Coordinator> coordinator_;  // in rank 0's process
  std::optional<coordinator::EvidenceState> evidence_;     // elsewhere
  TimerId join_timer_ = 0;  // until everybody has met
  TimePoint started_at_;
  TimerId evidence_timer_ = 0;
  TimerId beat_timer_ = 0;
  TimerId end_timer_ = 0;
  std::map<MemberId, TimePoint> heard_at_;
  ProgressWatch progress_watch_;
  std::uint64_t calls_ = 0;  // by the front end, that others may have to answer

  std::map<coordinator::ConnectionId, std::shared_ptr<messaging::Channel>> joiners_;
  const messaging::Channel* to_coordinator_ = nullptr;  // of a joiner; compared, never used
  std::uint64_t next_connection_ = 1;
  std::vector<std::pair<std::shared_ptr<messaging::Channel>, wire::Hello>> early_hellos_;

  MemberId self_;
  Rank rank_;
  std::vector<wire::RosterEntry> roster_;
  std::unique_ptr<LinkProbe> probe_;
  LinkMeasurement link_;

  std::vector<std::uint32_t> host_of_rank_;  // empty: flat
  // Where workers combine on their hosts first; it holds the memory that the rest works on.
  std::unique_ptr<local::HostLevel> host_level_;
  sync::Exchanges exchanges_;               // of layers
  std::optional<Collectives> collectives_;  // of one-off keys, always among workers
  messaging::FrameRouter router_;           // to these two
  std::map<ModelId, Model> models_;

  Completion ready_;
  Completion left_;
  std::vector<Completion> awaiting_end_;
  std::shared_ptr<Node*> alive_;
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_NODE_H_
