// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BENCHMARKS_SIMULATE_SCENE_H_
#define POSEIDON_BENCHMARKS_SIMULATE_SCENE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "benchmarks/replay/rules.h"
#include "benchmarks/replay/scaled_model.h"
#include "poseidon/base/executor.h"
#include "poseidon/base/result.h"
#include "poseidon/messaging/flow.h"
#include "poseidon/plan/planner.h"
#include "poseidon/sim/virtual_network.h"

// A training job on virtual time: the product's nodes, every one with its scheduler, exchanges and
// channels, on a simulated network, under workers whose computing is a delay.
namespace poseidon::simulate {

struct Scene {
  replay::ScaledModel model;
  replay::Mode mode;
  replay::Unevenness unevenness;  // and the number of workers
  plan::PlanOptions planning;
  // Every worker has a port of its own to one switch.
  double bytes_per_second = 0;  // each way, that our frames get
  Duration latency{0};          // one way
  // The pieces in which connections share a port.
  std::size_t segment_bytes = 16 * 1024;
  std::optional<messaging::Flow> flow;  // instead of the one that follows the measured link
  // What its connections cost a worker's I/O thread.
  sim::TransferCosts costs;
  // Lanes of every worker, each with an I/O thread of its own (plan/lanes.h); 0: as many as the links need.
  std::uint16_t lanes = 1;
  // Cores of one machine on which the I/O threads of all workers run, as those of an emulated cluster do; 0: each has one of its own.
  std::size_t shared_cores = 0;
  // Cores that computing takes of a worker's machine, where the I/O thread has none of its own: what it takes of them makes computing
  // longer. 0: it has one.
  std::size_t computing_cores = 0;
  std::uint64_t warm_up = 3;
  std::uint64_t steps = 5;
};

struct Findings {
  // From the end of the step before to its own end, the mean over the workers; by measured step.
  std::vector<double> step_seconds;
  // The time for which a step's forward pass waited for a layer, the mean over steps and workers; by layer.
  std::vector<double> waited_seconds;
  replay::Bounds bounds;
  plan::Plan plan;            // with its prediction for a link of the scene's rate and latency
  messaging::LinkSpeed link;  // as rank 0 measured it
  messaging::Flow flow;       // that it chose, or was given
  // Through the ports, of one measured step.
  double mean_bytes = 0;    // of a worker and direction
  double max_to_mean = 0;   // the busiest worker and direction against that
  double peak_to_mean = 0;  // the busiest 10 ms of a port and direction against its own mean
  // Of one measured step: what the connections cost a worker's I/O thread, and how often it is woken.
  double io_seconds = 0;  // of all lanes
  double io_wakes = 0;
  std::uint64_t events = 0;

  double median_seconds() const;
};

// Plays the scene to its end. Gradients are zeros in memory that all workers share, so that it needs
// little of it. kInvalidArgument where the plan's options do not fit the model; else the failure of the
// job.
Result<Findings> Play(const Scene& scene);

}  // namespace poseidon::simulate

#endif  // POSEIDON_BENCHMARKS_SIMULATE_SCENE_H_
