// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SIM_SIMULATION_H_
#define POSEIDON_SIM_SIMULATION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "poseidon/base/executor.h"
#include "poseidon/base/mutex.h"
#include "poseidon/base/random.h"
#include "poseidon/base/strong_id.h"

// Simulated time: any number of processes, each with any number of executors, run in the thread that
// calls Run, in an order that depends on the seed alone.
namespace poseidon::sim {

class VirtualExecutor;

// A simulated operating-system process: the executors that die and freeze together.
using ProcessId = StrongId<struct ProcessTag, std::uint32_t>;

struct SimulationOptions {
  std::uint64_t seed = 1;
  // Before each of its tasks an executor oversleeps by a random time up to this, so that the tasks of
  // different executors come in ever different orders; one executor's own tasks keep theirs. 0: the tasks
  // of all executors run in the order (time, arrival).
  Duration max_jitter{0};
};

// The clock and the one event queue. Compute that takes time is a PostAfter, or a task that spends it.
//
// Thread: everything runs, and is to be called, in the thread that calls Run; only the members of
// Executor may be called from others as well (and a run in which others do does not repeat).
// Lifetime: outlives its executors.
class Simulation {
 public:
  explicit Simulation(SimulationOptions options = {});
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  ProcessId AddProcess(std::string name);
  // An executor of `process`, kept as a std::unique_ptr as a thread executor would be. Its OnExecutor
  // also holds while its dropped tasks are destroyed. `jitter` false exempts it from the options'.
  std::unique_ptr<Executor> MakeExecutor(ProcessId process, bool jitter = true);

  // SIGKILL: the task under way returns, all other tasks of the process are dropped, and so is what
  // is posted to its executors later. Before that the observers of AtKill run, in order.
  void Kill(ProcessId process);
  void AtKill(ProcessId process, Task observer);
  // SIGSTOP and SIGCONT: tasks and timers of the process wait; time goes on for everyone.
  void Pause(ProcessId process);
  void Resume(ProcessId process);
  bool alive(ProcessId process) const;
  const std::string& name(ProcessId process) const;

  // The task under way takes this much longer: its executor is busy until then, and for whatever it does
  // from now on it is that much later. Called from a task.
  void Spend(Duration time);

  // Whether the executor of the task under way was idle before it; true once for a task. Called from a task.
  bool TakeWake();

  // Runs the next task, moving the clock to its time; false when there is none.
  bool Step();
  // Runs until nothing is left to run. A heartbeat never ends: see the bounded ones below.
  void Run();
  // Runs all that is due up to `end` and leaves the clock there.
  void RunUntil(TimePoint end);
  void RunFor(Duration duration) { RunUntil(now() + duration); }
  // Until `reached` holds (asked before each task), nothing is left, or `limit` has passed; whether
  // it holds.
  bool RunUntil(const std::function<bool()>& reached, Duration limit);

  // While a task runs, with the time that it has spent so far.
  TimePoint now() const;
  // The same without it.
  TimePoint task_began() const;
  // Tasks run so far, and a hash over (time, executor, arrival) of each: equal hashes mean that two
  // runs took the same course.
  std::uint64_t events() const;
  std::uint64_t hash() const;

 private:
  friend class VirtualExecutor;
  friend class Visit;

  // When an executor is to wake up, and for which of its tasks.
  struct Wake {
    TimePoint at;
    std::uint64_t sequence = 0;
    VirtualExecutor* executor = nullptr;
    friend auto operator<=>(const Wake&, const Wake&) = default;
  };
  struct Process {
    std::string name;
    bool alive = true;
    bool paused = false;
    std::vector<Task> observers;
    std::vector<VirtualExecutor*> executors;
  };

  void Schedule(VirtualExecutor& executor) POSEIDON_REQUIRES(mutex_);
  // Releases the mutex meanwhile.
  void Drop(VirtualExecutor& executor) POSEIDON_REQUIRES(mutex_);
  Process& At(ProcessId process) POSEIDON_REQUIRES(mutex_);
  const Process& At(ProcessId process) const POSEIDON_REQUIRES(mutex_);

  const SimulationOptions options_;

  // For Post from other threads. Tasks and observers run and die outside it.
  mutable Mutex mutex_;
  Random random_ POSEIDON_GUARDED_BY(mutex_);
  TimePoint now_ POSEIDON_GUARDED_BY(mutex_);
  Duration spent_ POSEIDON_GUARDED_BY(mutex_){0};  // by the task under way
  bool woke_ POSEIDON_GUARDED_BY(mutex_) = false;   // its executor, and TakeWake has not said so yet
  std::uint64_t next_sequence_ POSEIDON_GUARDED_BY(mutex_) = 1;
  std::uint64_t events_ POSEIDON_GUARDED_BY(mutex_) = 0;
  std::uint64_t hash_ POSEIDON_GUARDED_BY(mutex_) = 0;
  std::uint32_t next_executor_ POSEIDON_GUARDED_BY(mutex_) = 0;
  std::vector<Process> processes_ POSEIDON_GUARDED_BY(mutex_);
  std::set<Wake> wakes_ POSEIDON_GUARDED_BY(mutex_);  // at most one per executor
  const VirtualExecutor* current_ POSEIDON_GUARDED_BY(mutex_) = nullptr;
  std::thread::id runner_ POSEIDON_GUARDED_BY(mutex_);
};

// For tests: while it lives, what the caller does counts as done in a task of `executor`, an executor of this
// simulation. No other task runs and no time passes. Several may be nested.
class Visit {
 public:
  Visit(Simulation& simulation, const Executor& executor);
  ~Visit();
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

 private:
  Simulation& simulation_;
  const VirtualExecutor* outer_;
  std::thread::id outer_runner_;
};

}  // namespace poseidon::sim

#endif  // POSEIDON_SIM_SIMULATION_H_
