// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sim/simulation.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/base/task_queue.h"

namespace poseidon::sim {

class VirtualExecutor final : public Executor {
 public:
  VirtualExecutor(Simulation& simulation, ProcessId process, std::uint32_t id, bool jitter)
      : simulation_(simulation), process_(process), id_(id), jitter_(jitter) {}
  ~VirtualExecutor() override;

  void Post(Task task) override;
  TimerId PostAfter(Duration delay, Task task) override;
  bool Cancel(TimerId timer) override;
  TimePoint now() const override { return simulation_.now(); }
  bool OnExecutor() const override;

 private:
  friend class Simulation;

  Simulation& simulation_;
  const ProcessId process_;
  const std::uint32_t id_;
  const bool jitter_;
  // Guarded by the simulation's mutex. Not annotated: the analysis cannot know that simulation_.mutex_ is the mutex
  // that the simulation's own functions hold.
  TaskQueue queue_;
  std::optional<Simulation::Wake> wake_;
  TimePoint free_at_;  // its last task has taken its time by then
  bool closing_ = false;
};

VirtualExecutor::~VirtualExecutor() {
  MutexLock lock(simulation_.mutex_);
  POSEIDON_CHECK(simulation_.current_ != this, "an executor cannot be destroyed by its own task");
  closing_ = true;
  simulation_.Drop(*this);
  auto& siblings = simulation_.At(process_).executors;
  siblings.erase(std::find(siblings.begin(), siblings.end(), this));
}

void VirtualExecutor::Post(Task task) {
  MutexLock lock(simulation_.mutex_);
  const std::uint64_t sequence = simulation_.next_sequence_++;
  if (closing_ || !simulation_.At(process_).alive) {  // what the task owns dies on this executor all the same
    queue_.Post(simulation_.now_, sequence, std::move(task));
    return simulation_.Drop(*this);
  }
  if (simulation_.spent_ == Duration::zero()) {
    queue_.Post(simulation_.now_, sequence, std::move(task));
  } else {  // others may still post for an earlier time
    queue_.PostAt(simulation_.now_ + simulation_.spent_, sequence, std::move(task));
  }
  simulation_.Schedule(*this);
}

TimerId VirtualExecutor::PostAfter(Duration delay, Task task) {
  POSEIDON_CHECK(delay >= Duration::zero(), "a delay must not be negative");
  constexpr Duration kForever = std::chrono::hours(24 * 365 * 100);  // beyond it the sum overflows
  MutexLock lock(simulation_.mutex_);
  const TimerId id = simulation_.next_sequence_++;
  if (closing_ || !simulation_.At(process_).alive) {
    queue_.PostAt(simulation_.now_, id, std::move(task));
    simulation_.Drop(*this);
    return id;
  }
  queue_.PostAt(simulation_.now_ + simulation_.spent_ + std::min(delay, kForever), id,
                std::move(task));
  simulation_.Schedule(*this);
  return id;
}

bool VirtualExecutor::Cancel(TimerId timer) {
  Task cancelled;
  {
    MutexLock lock(simulation_.mutex_);
    cancelled = queue_.Cancel(timer);
    // The cancelled one may be the task that the executor was to wake for.
    simulation_.Schedule(*this);
  }
  return static_cast<bool>(cancelled);
}

bool VirtualExecutor::OnExecutor() const {
  MutexLock lock(simulation_.mutex_);
  return simulation_.current_ == this && simulation_.runner_ == std::this_thread::get_id();
}

Simulation::Simulation(SimulationOptions options) : options_(options), random_(options.seed) {}

Simulation::~Simulation() {
  for (const Process& process : processes_) {
    POSEIDON_CHECK(process.executors.empty(), "a simulation outlives its executors");
  }
}

ProcessId Simulation::AddProcess(std::string name) {
  MutexLock lock(mutex_);
  Process& process = processes_.emplace_back();
  process.name = std::move(name);
  return ProcessId(static_cast<std::uint32_t>(processes_.size() - 1));
}

std::unique_ptr<Executor> Simulation::MakeExecutor(ProcessId process, bool jitter) {
  MutexLock lock(mutex_);
  auto executor = std::make_unique<VirtualExecutor>(*this, process, next_executor_++, jitter);
  At(process).executors.push_back(executor.get());
  return executor;
}

void Simulation::Kill(ProcessId process) {
  MutexLock lock(mutex_);
  if (!At(process).alive) return;
  At(process).alive = false;
  std::vector<Task> observers = std::exchange(At(process).observers, {});
  // Observers post, which takes the mutex: the network ends the connections of the process as a kernel would.
  lock.Unlock();
  for (const Task& observer : observers) observer();
  observers.clear();
  lock.Lock();
  // Objects that a dropped task owned may destroy executors of the process, so each is looked up afresh.
  const auto has_tasks = [](const VirtualExecutor* executor) { return executor->queue_.Next().has_value(); };
  for (;;) {
    const auto& executors = At(process).executors;
    const auto next = std::find_if(executors.begin(), executors.end(), has_tasks);
    if (next == executors.end()) return;
    Drop(**next);
  }
}

void Simulation::AtKill(ProcessId process, Task observer) {
  MutexLock lock(mutex_);
  At(process).observers.push_back(std::move(observer));
}

void Simulation::Pause(ProcessId process) {
  MutexLock lock(mutex_);
  At(process).paused = true;
  for (VirtualExecutor* executor : At(process).executors) Schedule(*executor);
}

void Simulation::Resume(ProcessId process) {
  MutexLock lock(mutex_);
  At(process).paused = false;
  for (VirtualExecutor* executor : At(process).executors) Schedule(*executor);
}

bool Simulation::alive(ProcessId process) const {
  MutexLock lock(mutex_);
  return At(process).alive;
}

const std::string& Simulation::name(ProcessId process) const {
  MutexLock lock(mutex_);
  return At(process).name;
}

// Brings an executor's place in wakes_ in line with its queue. A wake that is still for the same
// task keeps its time, so that jitter is drawn once per task; unless the task that posted it to its
// own executor then spent more.
void Simulation::Schedule(VirtualExecutor& executor) {
  const Process& process = At(executor.process_);
  const std::optional<TaskQueue::Place> next = executor.queue_.Next();
  const bool runs = next && process.alive && !process.paused;
  if (runs && executor.wake_ && executor.wake_->sequence == next->sequence && executor.wake_->at >= executor.free_at_) {
    return;
  }
  if (executor.wake_) wakes_.erase(*executor.wake_);
  executor.wake_.reset();
  if (!runs) return;
  Duration oversleep{0};
  if (executor.jitter_ && options_.max_jitter > Duration::zero()) {
    oversleep = Duration(static_cast<std::int64_t>(
        random_.Below(static_cast<std::uint64_t>(options_.max_jitter.count()) + 1)));
  }
  executor.wake_ = Wake{std::max({now_, next->due, executor.free_at_}) + oversleep, next->sequence,
                        &executor};
  // No two wakes have the same sequence, so that the pointer in Wake, which differs from run to run, never decides.
  wakes_.insert(*executor.wake_);
}

void Simulation::Drop(VirtualExecutor& executor) {
  if (executor.wake_) wakes_.erase(*executor.wake_);
  executor.wake_.reset();
  // OnExecutor holds while dropped tasks are destroyed, as the header promises, also where a task of another executor
  // drops them.
  const VirtualExecutor* const outer = std::exchange(current_, &executor);
  const std::thread::id outer_runner = std::exchange(runner_, std::this_thread::get_id());
  {
    TaskQueue dropped = std::exchange(executor.queue_, TaskQueue());
    mutex_.Unlock();
  }  // the tasks die here
  mutex_.Lock();
  current_ = outer;
  runner_ = outer_runner;
}

Simulation::Process& Simulation::At(ProcessId process) {
  POSEIDON_CHECK(process.value() < processes_.size(), "no such process");
  return processes_[process.value()];
}
const Simulation::Process& Simulation::At(ProcessId process) const {
  POSEIDON_CHECK(process.value() < processes_.size(), "no such process");
  return processes_[process.value()];
}

void Simulation::Spend(Duration time) {
  MutexLock lock(mutex_);
  POSEIDON_CHECK(current_ != nullptr && time >= Duration::zero(), "a task spends time, not less than none");
  spent_ += time;
}

bool Simulation::TakeWake() {
  MutexLock lock(mutex_);
  return std::exchange(woke_, false);
}

bool Simulation::Step() {
  MutexLock lock(mutex_);
  POSEIDON_CHECK(current_ == nullptr, "a simulation is not run from one of its own tasks");
  if (wakes_.empty()) return false;
  const Wake wake = *wakes_.begin();
  wakes_.erase(wakes_.begin());
  VirtualExecutor& executor = *wake.executor;
  executor.wake_.reset();
  now_ = wake.at;
  ++events_;
  // Time, executor and arrival, as hash() promises. Nothing may enter that differs between two runs of one seed.
  hash_ = Mix64(hash_ ^ static_cast<std::uint64_t>(now_.since_origin.count()));
  hash_ = Mix64(hash_ ^ (std::uint64_t{executor.id_} << 40) ^ wake.sequence);
  woke_ = now_ > executor.free_at_;
  Task task = executor.queue_.Pop();
  current_ = &executor;
  runner_ = std::this_thread::get_id();
  lock.Unlock();
  task();
  // Before current_ is cleared: what the task owned dies on its executor, as after a task of a thread executor.
  task = nullptr;
  lock.Lock();
  current_ = nullptr;
  // Before Schedule, which makes the executor's next task wait for the time that this one has spent.
  executor.free_at_ = now_ + std::exchange(spent_, Duration::zero());
  Schedule(executor);
  return true;
}

void Simulation::Run() {
  while (Step()) {
  }
}

void Simulation::RunUntil(TimePoint end) {
  const auto due = [this, end] {
    MutexLock lock(mutex_);
    return !wakes_.empty() && wakes_.begin()->at <= end;
  };
  while (due()) Step();
  MutexLock lock(mutex_);
  now_ = std::max(now_, end);
}

bool Simulation::RunUntil(const std::function<bool()>& reached, Duration limit) {
  const TimePoint end = now() + limit;
  const auto due = [this, end] {
    MutexLock lock(mutex_);
    return !wakes_.empty() && wakes_.begin()->at <= end;
  };
  while (!reached()) {
    if (!due()) {
      MutexLock lock(mutex_);
      if (!wakes_.empty()) now_ = std::max(now_, end);
      return false;
    }
    Step();
  }
  return true;
}

TimePoint Simulation::now() const {
  MutexLock lock(mutex_);
  return now_ + spent_;
}
TimePoint Simulation::task_began() const {
  MutexLock lock(mutex_);
  return now_;
}
std::uint64_t Simulation::events() const {
  MutexLock lock(mutex_);
  return events_;
}
std::uint64_t Simulation::hash() const {
  MutexLock lock(mutex_);
  return hash_;
}

Visit::Visit(Simulation& simulation, const Executor& executor) : simulation_(simulation) {
  MutexLock lock(simulation_.mutex_);
  outer_ = std::exchange(simulation_.current_, static_cast<const VirtualExecutor*>(&executor));
  outer_runner_ = std::exchange(simulation_.runner_, std::this_thread::get_id());
}

Visit::~Visit() {
  MutexLock lock(simulation_.mutex_);
  simulation_.current_ = outer_;
  simulation_.runner_ = outer_runner_;
}

}  // namespace poseidon::sim
