// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_COORDINATOR_COORDINATOR_H_
#define POSEIDON_COORDINATOR_COORDINATOR_H_

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/base/executor.h"
#include "poseidon/base/log.h"
#include "poseidon/coordinator/membership.h"
#include "poseidon/coordinator/progress.h"
#include "poseidon/plan/hosts.h"
#include "poseidon/plan/lanes.h"
#include "poseidon/plan/planner.h"
#include "poseidon/wire/messages.h"

namespace poseidon::coordinator {

// How the coordinator reaches processes: the member that hosts it implements this. Messages to
// member 0 are the host's own and come back to it like anyone's, posted.
class CoordinatorPort {
 public:
  virtual ~CoordinatorPort() = default;
  virtual void SendToMember(MemberId member, const wire::Message& message) = 0;
  virtual void SendToJoiner(ConnectionId connection, const wire::Message& message) = 0;
  // The joiner is this member from now on.
  virtual void AdmitJoiner(ConnectionId connection, MemberId member) = 0;
  // Send what is queued, then close.
  virtual void DismissJoiner(ConnectionId connection) = 0;
  // To every connection that is no member yet: those that have joined, and those whose JOIN is still under way.
  virtual void SendToStrangers(const wire::Message& message) = 0;
  // The verdict has been sent to everybody: the host ends too.
  virtual void OnVerdict(const AbortAll& verdict) = 0;
};

struct CoordinatorOptions {
  MembershipOptions membership;
  plan::PlanOptions planning;
  plan::Levels levels = plan::Levels::kFlat;
  std::uint16_t lanes = 0;  // of every member; 0: as many as the links need (plan::LanesFor)
  // The step from which the plan made of measurements holds; workers wait for it there.
  std::uint64_t final_plan_step = plan::kFinalPlanStep;
  ProgressRule progress;
};

// Rank 0's process runs the coordinator: it gathers the members, compares what they declare, makes
// the plan, watches who lives, and gives the verdict when someone does not. It decides with pure
// functions (membership.h, agreement.h, plan/planner.h) and does what they answer.
//
// Thread: `executor`. Lifetime: port and log outlive it.
class Coordinator {
 public:
  Coordinator(Executor& executor, CoordinatorPort& port, LogSink& log,
              const CoordinatorOptions& options);
  ~Coordinator();

  // A process introduced itself on `connection`.
  void OnJoin(ConnectionId connection, const wire::Join& join, bool hosts_coordinator);
  void OnJoinerLost(ConnectionId connection, const std::string& how, const Status& why = {});
  // The hosting member has waited so long for members to connect to each other and to measure their links.
  void OnSlowStart(Duration waited);
  // A member's message; those that are not for the coordinator are refused as kDataLoss.
  Status OnMessage(MemberId from, const wire::Message& message);
  // A message of the member arrived, at some moment up to now (none: now).
  void OnHeard(MemberId member, std::optional<TimePoint> at = std::nullopt);
  void OnLost(MemberId member, MemberId from, const Status& why);
  // The member that hosts the coordinator gives up, or its program asks it to.
  void OnOwnAbort(const Status& reason);
  StatusCode verdict_code() const { return verdict_code_; }
  bool ended() const { return state_.verdict.has_value(); }

 private:
  struct Model {
    std::map<Rank, wire::Declare> declared;
    std::optional<plan::Plan> provisional;
    std::vector<plan::LayerSpec> layers;
    std::vector<bool> products_agree;
    plan::ClusterSpec cluster;
    std::set<MemberId> acknowledged;
    std::map<Rank, wire::Measured> measured;
    bool planned = false;  // the final plan has been made
  };

  void Apply(const Event& event);
  void Act(const Action& action);
  void ArmTimer();
  void SendToAll(const wire::Message& message);
  void SendToOthers(const wire::Message& message);
  void Welcome();
  void Announce(const AbortAll& verdict);
  Status OnDeclare(MemberId from, const wire::Declare& declare);
  Status OnReached(MemberId from, const wire::Reached& reached);
  Status OnDeclared(MemberId from, ModelId model);
  Status OnMeasured(MemberId from, const wire::Measured& measured);
  // `names`: see Aborted.
  void EndWith(const Status& reason, std::optional<MemberId> culprit, bool names = false);
  Status OnProgress(MemberId from, const wire::Progress& progress);
  Wait WaitOf(const wire::Wait& wait) const;
  // " of model 1", where the job has several.
  // The reports that members owe the coordinator while others wait for them.
  std::vector<Wait> OwnWaits() const;
  const Member* WorkerOf(MemberId member) const;
  // By rank, where workers combine on their hosts first; empty where every worker exchanges for itself.
  std::vector<std::uint32_t> HostOfRank() const;

  Executor& executor_;
  CoordinatorPort& port_;
  LogSink& log_;
  const CoordinatorOptions options_;
  MembershipState state_;
  std::optional<ProgressState> progress_;  // from the welcome on
  std::set<MemberId> probed_;  // members that know their links
  std::optional<std::uint16_t> lanes_;  // of every member, once a model is agreed on
  std::map<ModelId, Model> models_;
  StatusCode verdict_code_ = StatusCode::kUnavailable;  // of a death; an ABORT brings its own
  TimerId timer_ = 0;
  Alive alive_;
};

}  // namespace poseidon::coordinator

#endif  // POSEIDON_COORDINATOR_COORDINATOR_H_
