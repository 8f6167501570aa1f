// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BENCHMARKS_REPLAY_RULES_H_
#define POSEIDON_BENCHMARKS_REPLAY_RULES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/replay/scaled_model.h"
#include "poseidon/base/result.h"
#include "poseidon/plan/payload.h"
#include "poseidon/plan/plan.h"
#include "poseidon/plan/planner.h"
#include "poseidon/sync/strategy.h"
#include "poseidon/wire/messages.h"

// The parts of a played step and how long they take: the same whether it is slept
// (replay.cc) or simulated (benchmarks/simulate).
namespace poseidon::replay {

// How a published system schedules.
struct Mode {
  sync::Strategy strategy = {};
  // A key-value store of fixed-size pairs, each whole at one server, which answers when it has all
  // contributions; the system's buffers, schemes by bytes.
  bool pairs = false;
};
// kInvalidArgument naming the modes there are.
Result<Mode> ModeNamed(const std::string& name);

// One thing after the other of a worker's step.
struct Action {
  enum class Kind : std::uint8_t { kAwait, kForward, kBackward, kPush };
  Kind kind = Kind::kAwait;
  std::size_t layer = 0;
};
std::vector<Action> StepOf(const Mode& mode, std::size_t layers);

// The user's wishes for the plan: empty where the mode decides. `scheme` is forced on all layers that have
// factors.
struct Wishes {
  std::string policy;
  std::string scheme;
};
Result<plan::PlanOptions> PlanningOf(const Wishes& wishes, const Mode& mode,
                                     const ScaledModel& model);

// Bytes per second of payload at a port's rate in bit/s, which carries frames: TCP's share of full-sized ones is
// 0.956 at 1,500 bytes.
constexpr double PayloadRate(double bits_per_second) { return bits_per_second / 8 * 0.956; }

constexpr double kPairMib = 4;  // of a key-value pair before scaling, as published
// Of a pair of so many MiB before scaling.
constexpr double PairElements(double mib, double scale) { return mib * (1 << 20) / sizeof(float) / scale; }
// Returns the model as the mode sees it: where the mode has pairs, the layers that it will not send as factors
// are cut into pairs of `pair_elements`.
Result<ScaledModel> AsModeSeesIt(const Wishes& wishes, const Mode& mode, ScaledModel model,
                                 std::uint16_t workers, double pair_elements);

// How workers differ from each other and steps from one another.
struct Unevenness {
  std::uint16_t workers = 1;
  double jitter = 0;     // relative standard deviation of every layer's time
  double straggler = 1;  // factor on the last rank's times
};

// The times of each worker's layers in each step, known to all workers: they draw the same numbers.
// Lifetime: the model outlives it.
class ComputeTimes {
 public:
  ComputeTimes(const ScaledModel& model, const Unevenness& unevenness)
      : model_(model), unevenness_(unevenness) {}

  double forward(std::uint16_t rank, std::uint64_t step, std::size_t layer) const;
  // A layer that hands over its factors does not compute their product.
  double backward(std::uint16_t rank, std::uint64_t step, std::size_t layer, bool factors) const;
  // Returns the rank's measurement of each layer under a plan with its schemes: the mean of the first steps.
  wire::Measured MeasuredBy(std::uint16_t rank, const plan::Plan& under) const;
  // Returns all ranks' measurements as the coordinator combines them.
  std::vector<plan::LayerMeasurement> MeasuredBySlowest() const;

 private:
  double factor(std::uint16_t rank, std::uint64_t step, std::size_t layer, int pass) const;

  const ScaledModel& model_;
  const Unevenness unevenness_;
};

// Returns the payload that each worker sends and receives of each layer in a step: [rank][layer]. Pre: no dedicated
// servers.
std::vector<std::vector<plan::NodeBytes>> TrafficOf(const ScaledModel& model, const plan::Plan& plan,
                                                    std::uint16_t workers);
std::uint64_t SentOf(const std::vector<plan::NodeBytes>& layers);

// The mean bound of `steps` steps from `first` for the schemes that were used, on a fluid network of the
// given rate; what is copied within a host takes no time. A step's bound is that of its slowest worker: of every
// worker's own times and own link, the highest. (Each layer's slowest time or busiest link, whoever's, makes a trace
// that no worker has, and no bound.)
struct Bounds {
  double least = 0;      // T*
  double wait_free = 0;  // T_wfbp
};
Bounds BoundsOf(const ScaledModel& model, const ComputeTimes& times, const plan::Plan& plan,
                std::uint16_t workers, double bytes_per_second, std::uint64_t first,
                std::uint64_t steps);

}  // namespace poseidon::replay

#endif  // POSEIDON_BENCHMARKS_REPLAY_RULES_H_
