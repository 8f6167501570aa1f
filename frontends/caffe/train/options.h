// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_OPTIONS_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_OPTIONS_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "poseidon/coordinator/progress.h"
#include "poseidon/plan/plan.h"

namespace poseidon::caffe {

// The flags of `poseidon train` as values. A member on another host gets them as JSON.
struct TrainOptions {
  std::string solver;    // path of the solver prototxt
  std::string snapshot;  // a .solverstate to resume from
  std::string weights;   // .caffemodel files to fine-tune from, separated by commas
  std::uint64_t iterations = 0;  // trains so many, without tests and snapshots; 0: as the solver says
  int level = 0;
  std::vector<std::string> stages;
  std::uint16_t workers = 1;
  std::uint16_t servers = 0;
  bool sync = false;          // run hooks, scheduler and a shard of one's own even with one worker
  bool global_batch = false;  // batch_size is of all workers together
  std::string policy = "time";
  std::map<std::string, std::string> schemes;  // by layer, by their names
  std::string plan_file;                       // plan.json to follow
  std::string wire = "auto";                   // auto, tls, auth, plain
  std::string strategy = "poseidon";           // sync/strategy.h
  std::string bandwidth;                       // that a member may use of its link, as in 400Mbit; empty: all
  std::string levels = "auto";                 // flat, host, auto: plan/hosts.h
  std::string zero_compression = "auto";       // auto, off, always: plan/compression.h
  std::uint16_t lanes = 0;                     // of the network; 0: as many as the links need (plan/lanes.h)
  std::vector<std::string> machines;           // by rank, instead of what each worker sees
  double dead_after = ToSeconds(coordinator::LivenessRule{}.dead_after);                      // seconds
  double stuck_after = ToSeconds(coordinator::ProgressRule{}.stuck_after);                     // seconds
  double join_timeout = ToSeconds(coordinator::MembershipOptions{}.form_within);                   // seconds
  int threads = 0;                             // compute threads of a worker; 0: share the cores
  std::string run_dir;
  std::string sigint_effect = "stop";  // stop, snapshot, none
  std::string sighup_effect = "snapshot";
  std::string on_nan = "stop";  // a loss that is not finite: stop, go
  std::string dtype = "f32";  // f64 for numeric tests
  std::string gpu;  // which devices the workers of a host compute on, by turns: "0", "0,1", "all"; empty: as the solver says
  bool tf32 = false;          // devices may round what they multiply: net/placement.h
  bool caffe_log = false;     // prints Caffe's log too (caffe_log.h)
  bool one_stream = false;    // to where all else goes
  std::string net_outputs;    // prefix of the CSV file that Poseidon-Caffe wrote (net_outputs.h); empty: none
  std::uint64_t final_plan_step = plan::kFinalPlanStep;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TrainOptions, solver, snapshot, weights, iterations, level, stages, workers, servers, sync,
                                   global_batch, policy, schemes, plan_file, wire, strategy, bandwidth, levels, zero_compression, lanes, machines,
                                   dead_after, stuck_after, join_timeout, threads, run_dir, sigint_effect,
                                   sighup_effect, on_nan, dtype, gpu, tf32, caffe_log, one_stream, net_outputs, final_plan_step)

// One member's part in the job. The token travels beside it, never here.
struct MemberTask {
  bool server = false;
  int rank = 0;  // of a worker; a server's number among the servers
  std::string host = "localhost";
  std::string listen_host = "127.0.0.1";
  std::uint16_t listen_port = 0;
  std::string coordinator_host;
  std::uint16_t coordinator_port = 0;
  bool one_machine = true;  // no member is on another one
  int local_members = 1;  // on this host: they share its cores
  int local_worker = 0;   // number of a worker among those of its host
  bool tells_figures = false;  // its launcher asks for them (poseidon/place/figures.h)
  TrainOptions options;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_OPTIONS_H_
