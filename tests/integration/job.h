// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TESTS_INTEGRATION_JOB_H_
#define POSEIDON_TESTS_INTEGRATION_JOB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "poseidon/session/node.h"
#include "tests/integration/gradients.h"
#include "tests/integration/world.h"

// A whole job in any world: workers that train for some steps on known gradients and compare every
// result with the oracle, and dedicated servers.
namespace poseidon::integration {

struct JobOptions {
  std::uint16_t workers = 2;
  std::uint16_t servers = 0;
  std::vector<plan::LayerSpec> layers;
  GradientOptions gradients;
  std::uint64_t steps = 50;
  // The machine of each rank; with node.levels workers of one machine combine first.
  std::vector<std::string> machines = {};
  // The options of all members; roles, ranks and addresses are filled in.
  session::NodeOptions node;
  // A step begins when all layers of the last one have landed; else each layer goes on by itself.
  bool lockstep = true;
  // Before every push, up to this long; virtual worlds only.
  Duration max_compute{0};
  // Gradients and factors live on an accelerator of the worker's own (device::FakeDevice), whose
  // kernels make them and whose copies take time.
  bool on_device = false;
  bool device_registers = true;  // the host's shared memory, and copies into it
  // Dense gradients come in parts of random sizes, while their beginning is under way.
  bool in_parts = false;
  bool collectives = true;
  std::uint64_t collective_elements = 5000;
  // Where given, the workers that leave the others in a step: they call a collective there. Each worker's program then
  // waits once it has pushed all that it pushes, and uses no processor. With `lockstep` only.
  enum class Stray : std::uint8_t {
    kNo,
    kBeforeThePushes,
    kBetweenThePushes,  // after the last layer's, which is the first
  };
  std::function<Stray(Rank, std::uint64_t step)> strays = {};
  // Where given, what a worker declares instead of `layers`, and its engine (null: none).
  std::function<std::vector<plan::LayerSpec>(Rank)> declared;
  std::function<factors::ProductEngine*(Rank)> engine;
};

// One gradient at a time of one layer, as a test's own front end holds it.
struct Outcome {
  Status ended = Internal("still running");
  TimePoint ended_at;
  Status failure;  // the argument of on_failure, OK if it was never called
  int failures_told = 0;
  MemberId member;
  Rank rank;
  std::optional<plan::Plan> provisional;
  std::optional<plan::Plan> final_plan;
  std::uint64_t means = 0;  // results that equalled the oracle's
  std::uint64_t collectives = 0;
  std::uint64_t allocated_bytes = 0;
  std::vector<messaging::TrafficCell> gradients;  // by layer
  std::vector<messaging::TrafficCell> factors;
  std::vector<std::uint64_t> local_bytes;  // by layer
  messaging::TrafficCell collective_traffic;
  std::vector<std::string> log;
};

class Job {
 public:
  Job(World& world, const JobOptions& options);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Workers by rank, then servers; these get their member ids in the order in which they arrive.
  std::uint16_t members() const;
  // Starts all members. Rank 0 first, because the others need its address.
  void Start();
  // Until every member that was not killed has ended, all its completions included.
  bool AwaitEnd();
  bool AwaitReady();
  bool Run() {
    Start();
    return AwaitEnd();
  }

  // The process is gone and sent nothing more.
  void Kill(MemberId member);
  void Abort(MemberId member, const Status& reason);
  const Outcome& outcome(MemberId member) const;
  Site& site(MemberId member);
  Gradients& gradients() { return gradients_; }
  // Members that have met all others; results that workers have compared, all together.
  std::uint64_t ready() const { return ready_.value(); }
  const Tally& landed() const { return landed_; }
  // Workers that have everything and say goodbye.
  std::uint64_t leaving() const { return leaving_.value(); }

  // Every member ended well, and every result of every step was compared.
  void ExpectAllWell() const;
  // Counted payload equals the formulas of plan/payload.h, at every member, layer and scheme.
  void ExpectExactPayload() const;
  // Every member but the killed ones ended with a failure that blames `culprit`.
  void ExpectAllBlame(std::int32_t culprit) const;

 private:
  class Member;
  class Worker;
  class Server;

  World& world_;
  const JobOptions options_;
  Gradients gradients_;
  std::unique_ptr<factors::ProductEngine> engine_;
  Tally listening_;
  Tally ready_;
  Tally landed_;
  Tally leaving_;
  Tally ended_;
  std::vector<std::unique_ptr<Member>> members_;
};

// "layer <i>" with so many numbers; factors where given.
plan::LayerSpec Dense(std::string name, std::uint64_t elements, DType dtype = DType::kF32);
plan::LayerSpec FullyConnected(std::string name, std::uint64_t outputs, std::uint64_t inputs,
                               bool bias = true, DType dtype = DType::kF32);
plan::LayerSpec Table(std::string name, std::uint64_t entries, std::uint64_t width, DType dtype = DType::kF32);
// Numbers the layers' places in the forward pass in the order given.
std::vector<plan::LayerSpec> InForwardOrder(std::vector<plan::LayerSpec> layers);

}  // namespace poseidon::integration

#endif  // POSEIDON_TESTS_INTEGRATION_JOB_H_
