// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_MODELS_H_
#define POSEIDON_SESSION_MODELS_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/local/host_level.h"
#include "poseidon/plan/plan.h"
#include "poseidon/schedule/scheduler.h"
#include "poseidon/session/declaration.h"
#include "poseidon/session/ending.h"
#include "poseidon/session/formation.h"
#include "poseidon/session/lanes.h"
#include "poseidon/session/liveness.h"
#include "poseidon/session/member.h"
#include "poseidon/sync/exchanges.h"

namespace poseidon::session {

// The models of a member: what they declare, the plans that the workers agree on, and the scheduler that
// follows them.
//
// Thread: the I/O executor; completions fire on the completions executor. Failure: what keeps a model from
// being followed ends the job through Ending. Lifetime: the other rooms and the exchanges outlive it.
class Models {
 public:
  using PlanTaker = UniqueFunction<void(Result<plan::Plan>)>;

  // `open` opens so many lanes and makes the exchanges of layers, then calls what it is given.
  Models(Member& member, Ending& ending, Liveness& liveness, Formation& formation, Lanes& lanes,
         const sync::Exchanges& exchanges, std::function<void(std::uint16_t, std::function<void()>)> open);

  // Where workers combine on their hosts first; not null. It outlives this.
  void UseHostLevel(local::HostLevel* level) { level_ = level; }

  // Declares the layers of a model and waits until all workers agree; `done` gets the provisional
  // plan. Models are numbered from 0, below wire::kMaxModels, alike on all workers; each once.
  void Commit(ModelId model, std::vector<plan::LayerSpec> layers, DeviceTests by_device, PlanTaker done);
  // Tells the coordinator what the first steps of a model took; its final plan follows.
  void Report(const wire::Measured& measured);
  // `done` fires once the model's final plan is known (at once if it is).
  void AwaitFinalPlan(ModelId model, PlanTaker done);
  // One step of one layer. The priority of the request is set on the way.
  void Push(ModelId model, LayerId layer, sync::SyncRequest request);
  // See schedule::Scheduler. Ignored once the job has ended.
  void Arrived(ModelId model, LayerId layer, std::uint64_t elements);
  // Null before the model is committed, and in servers.
  schedule::Scheduler* scheduler(ModelId model) const;

  // The coordinator has a plan for layers that all workers declared alike.
  Status OnAgreed(const wire::Agreed& agreed);
  // All have set the model up.
  void OnAllDeclared(ModelId model);
  // The first worker of this host offers its shared memory.
  Status OnSegment(MemberId from, const wire::Segment& offer);

  // The job has ended: fails whoever waits for a plan, and pushes that are not whole, with Member::failure.
  void Abandon();

 private:
  struct Model {
    std::unique_ptr<schedule::Scheduler> scheduler;  // of workers
    std::optional<plan::Plan> provisional_plan;
    std::optional<plan::Plan> final_plan;
    bool set_up = false;  // every lane has its layers
    bool backward_ends = false;  // little is to be committed for its sake
    double rate = 0;             // bytes a second to which its transfers are held; 0: as many as go
    PlanTaker committed;
    std::vector<PlanTaker> awaiting_plan;
  };

  void Declare(ModelId model, std::vector<plan::LayerSpec> layers, DeviceTests by_device);
  void SetUpModel(Model& model, const wire::Agreed& agreed);
  void DeclareLayers(Model& model, const wire::Agreed& agreed);
  void FinishSetUp(Model& model, const wire::Agreed& agreed, std::uint64_t declared_bytes);
  bool CheckMemory(std::uint64_t needed);
  std::size_t connections() const;
  LinkMeasurement link() const;
  bool flow_follows_plans() const;
  void SetFlow();
  void CommitLittleAtTheEnd(Model& model, const wire::Agreed& agreed);
  void FollowPlan(ModelId model, const plan::Plan& plan);
  void AnswerDeclared(ModelId model);
  void CannotShare(const Status& reason);

  Member& member_;
  Ending& ending_;
  Liveness& liveness_;
  const Formation& formation_;
  Lanes& lanes_;
  const sync::Exchanges& exchanges_;
  const std::function<void(std::uint16_t, std::function<void()>)> open_;
  local::HostLevel* level_ = nullptr;
  std::map<ModelId, Model> models_;
  Alive alive_;
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_MODELS_H_
