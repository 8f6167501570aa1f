// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_NODE_OPTIONS_H_
#define POSEIDON_SESSION_NODE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "poseidon/base/executor.h"
#include "poseidon/base/log.h"
#include "poseidon/base/result.h"
#include "poseidon/base/trace.h"
#include "poseidon/coordinator/membership.h"
#include "poseidon/coordinator/progress.h"
#include "poseidon/device/device.h"
#include "poseidon/factors/engine.h"
#include "poseidon/plan/hosts.h"
#include "poseidon/plan/planner.h"
#include "poseidon/session/front_end.h"
#include "poseidon/sync/strategy.h"
#include "poseidon/transport/transport.h"
#include "poseidon/wire/messages.h"

namespace poseidon::session {

// A member's role, its peers and its settings. Filled at the edge (tools, front ends); the core reads no
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
  // How many lanes every member has, where this one hosts the coordinator; 0: as many as the links need.
  std::uint16_t lanes = 0;
  // Of its link, in bytes per second and direction, that this member may use; 0: all. A job keeps to the least of its members'.
  double bandwidth = 0;
  plan::PlanOptions planning;
  std::uint64_t final_plan_step = plan::kFinalPlanStep;
  sync::Strategy strategy;
  std::uint64_t memory_limit_bytes = 0;  // a dedicated server refuses to need more; 0: no limit
  std::uint64_t probe_bytes = 4u << 20;  // sent once to measure the link; 0: nothing is measured
  double cores = 1;  // that this member may use; less than 1 where members share one
  std::uint32_t compute_threads = 1;
  // Seconds of processor time that a CPU worker spends per byte moved, both ends and the sum together; 0:
  // computing does not compete with it.
  double cpu_seconds_per_wire_byte = 0;
};

// What one lane of the network runs on (plan/lanes.h). `context` lives on `executor`.
struct LaneServices {
  Executor& executor;
  transport::Context& context;
};

// The executors and services that a member uses. Everything outlives the node.
struct NodeEnvironment {
  Executor& io;
  Executor& compute;      // engine products
  Executor& completions;  // where completions of pushes and collectives fire
  transport::Context& context;
  LogSink& log;
  // Makes, when first asked on `io`, what lane `number` (never 0) runs on. Where it is empty, there is one lane.
  std::function<Result<LaneServices>(std::uint16_t number)> lane = {};
  factors::ProductEngine* engine = nullptr;  // null: no layer uses factors
  TraceRecorder* trace = nullptr;
  // The device whose memory gradients and factors may be in; made on `io`. Null: the host.
  device::Device* device = nullptr;
  const FrontEnd* front_end = nullptr;          // null: nothing is known of it
  std::function<Duration()> processor_time = {};  // of this process; none: it counts as busy
  // Of the processes that it has started; asked while nothing moves. None: it has none.
  std::function<Duration()> children_processor_time = {};
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_NODE_OPTIONS_H_
