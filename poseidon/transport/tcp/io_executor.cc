// SPDX-License-Identifier: Apache-2.0
// The only source that includes Asio: its event loop carries our own task queue (so that posted
// tasks keep one order whichever thread they come from) and watches descriptors.
#include "poseidon/transport/tcp/io_executor.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/base/mutex.h"
#include "poseidon/base/task_queue.h"
#include "poseidon/transport/tcp/descriptor.h"
#include "poseidon/transport/tcp/forked.h"

namespace poseidon::transport::tcp {
namespace {

using Clock = std::chrono::steady_clock;

TimePoint Now() { return {std::chrono::duration_cast<Duration>(Clock::now().time_since_epoch())}; }

// A delay so long that the sum would overflow means "never": a hundred years will do.
TimePoint After(TimePoint now, Duration delay) {
  constexpr Duration kForever = std::chrono::hours(24 * 365 * 100);
  return now + (delay < kForever ? delay : kForever);
}

// How long a turn goes on with what its own tasks post: a message takes a few of them, and between two turns the system is
// asked which sockets are ready, which costs more than they do.
constexpr Duration kTurn = std::chrono::microseconds(50);

// Where Asio keeps the one turn that waits in its queue. It would ask the system for the memory of each that another thread
// posts.
struct TurnMemory {
  alignas(std::max_align_t) std::array<std::byte, 128> bytes;
};

template <typename T>
struct TurnAllocator {
  using value_type = T;
  explicit TurnAllocator(TurnMemory& in) : memory(&in) {}
  template <typename Other>
  TurnAllocator(const TurnAllocator<Other>& other) : memory(other.memory) {}  // NOLINT(google-explicit-constructor)

  T* allocate(std::size_t count) {
    static_assert(sizeof(T) <= sizeof(TurnMemory::bytes) && alignof(T) <= alignof(TurnMemory));
    POSEIDON_CHECK(count == 1, "one turn waits at a time");
    return reinterpret_cast<T*>(memory->bytes.data());
  }
  void deallocate(T*, std::size_t) {}
  template <typename Other>
  bool operator==(const TurnAllocator<Other>& other) const {
    return memory == other.memory;
  }

  TurnMemory* memory;
};

}  // namespace

struct IoExecutor::Loop {
  explicit Loop(const std::string& name)
      : io(std::in_place, 1),
        work(io->get_executor()),
        alarm(std::in_place, *io),
        thread([this, name = name.substr(0, 15)] { Run(name); }) {}

  void Run(const std::string& name) {
    pthread_setname_np(pthread_self(), name.c_str());
    io->run();
    TaskQueue dropped;
    {
      MutexLock lock(mutex);
      dropped = std::exchange(queue, TaskQueue());
    }
    // Outside the lock, because what a task owned may post. That is dropped too: `stopping` is set.
    dropped = TaskQueue();
    // The alarm and the guard refer to the loop, so they go before it.
    alarm.reset();
    work.reset();
    io.reset();  // destroys the tasks that still wait for a descriptor, and what they own
  }

  struct NextTurn {
    using allocator_type = TurnAllocator<NextTurn>;
    allocator_type get_allocator() const { return allocator_type(loop->turn_memory); }
    void operator()() const { loop->Turn(); }
    Loop* loop;
  };

  // Has Turn run soon.
  void ScheduleTurn() POSEIDON_REQUIRES(mutex) {
    // One turn runs all that is due, so that a second entry in Asio's queue would find nothing.
    if (turn_scheduled) return;
    turn_scheduled = true;
    asio::post(*io, NextTurn{this});
  }

  // Runs the tasks that are due by now, and for a moment what they post, then arranges for the next turn.
  void Turn() {
    const TimePoint turn_began = Now();
    MutexLock lock(mutex);
    for (;;) {
      const std::optional<TaskQueue::Place> next = queue.Next();
      if (stopping || !next) break;
      if (next->due > turn_began && next->due > std::min(Now(), turn_began + kTurn)) break;
      Task task = queue.Pop();
      lock.Unlock();
      task();
      task = nullptr;  // what it owned dies before the next task, and outside the lock
      lock.Lock();
    }
    turn_scheduled = false;
    if (stopping) return;
    if (const std::optional<TaskQueue::Place> next = queue.Next(); next) {
      // Through Asio's queue and not in this loop: the sockets that are ready have their turn first.
      if (next->due <= Now()) {
        ScheduleTurn();
      } else if (alarm_at != next->due) {
        SetAlarm(next->due);
      }
    }
  }

  void SetAlarm(TimePoint at) POSEIDON_REQUIRES(mutex) {
    alarm_at = at;
    alarm->expires_at(Clock::time_point(at.since_origin));
    alarm->async_wait([this](const std::error_code& error) {
      if (error) return;
      MutexLock lock(mutex);
      alarm_at.reset();
      ScheduleTurn();
    });
  }

  // Tasks run and die outside it.
  Mutex mutex;
  TaskQueue queue POSEIDON_GUARDED_BY(mutex);
  std::uint64_t next_sequence POSEIDON_GUARDED_BY(mutex) = 1;
  bool turn_scheduled POSEIDON_GUARDED_BY(mutex) = false;
  bool stopping POSEIDON_GUARDED_BY(mutex) = false;
  std::optional<TimePoint> alarm_at POSEIDON_GUARDED_BY(mutex);  // for which the alarm is set: to set it takes system calls

  TurnMemory turn_memory;  // of the turn that is scheduled
  std::optional<asio::io_context> io;  // destroyed by the thread itself
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::optional<asio::steady_timer> alarm;
  std::thread thread;  // last, because it uses all of the above
};

IoExecutor::IoExecutor(const std::string& name) : loop_(std::make_unique<Loop>(name)) {}

IoExecutor::~IoExecutor() {
  POSEIDON_CHECK(!OnExecutor(), "an executor cannot be destroyed by its own task");
  {
    MutexLock lock(loop_->mutex);
    loop_->stopping = true;
    // Under the lock: the thread takes it before it destroys `io`, so `io` is there until this call has returned.
    loop_->io->stop();
  }
  loop_->thread.join();
}

void IoExecutor::Post(Task task) {
  MutexLock lock(loop_->mutex);
  if (loop_->stopping) return;  // `task` dies with the argument, after the lock is released
  // The clock is read under the lock, so that posted tasks are in order of their times.
  loop_->queue.Post(Now(), loop_->next_sequence++, std::move(task));
  loop_->ScheduleTurn();
}

TimerId IoExecutor::PostAfter(Duration delay, Task task) {
  POSEIDON_CHECK(delay >= Duration::zero(), "a delay must not be negative");
  MutexLock lock(loop_->mutex);
  const TimerId id = loop_->next_sequence++;
  if (loop_->stopping) return id;
  loop_->queue.PostAt(After(Now(), delay), id, std::move(task));
  // A turn sets the alarm anew; only the earliest task has an alarm.
  if (loop_->queue.Next()->sequence == id) loop_->ScheduleTurn();
  return id;
}

bool IoExecutor::Cancel(TimerId timer) {
  Task cancelled;
  {
    MutexLock lock(loop_->mutex);
    cancelled = loop_->queue.Cancel(timer);
  }
  return static_cast<bool>(cancelled);
}

TimePoint IoExecutor::now() const { return Now(); }

bool IoExecutor::OnExecutor() const { return std::this_thread::get_id() == loop_->thread.get_id(); }

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) CloseListed(fd_, [this] { ::close(fd_); });
}

struct Descriptor::Watched {
  explicit Watched(asio::io_context& io) : descriptor(io) {}
  asio::posix::stream_descriptor descriptor;
};

Result<std::unique_ptr<Descriptor>> Descriptor::Watch(IoExecutor& executor, UniqueFd fd) {
  POSEIDON_ASSERT_ON(executor);
  auto watched = std::make_unique<Watched>(*executor.loop_->io);
  std::error_code error;
  watched->descriptor.assign(fd.get(), error);
  if (error) {
    return ResourceExhausted("the system cannot watch another socket (" + error.message() + ")");
  }
  // Only once the loop has it: a descriptor that cannot be watched is closed by `fd`.
  fd.release();
  return std::unique_ptr<Descriptor>(new Descriptor(std::move(watched)));
}

Descriptor::Descriptor(std::unique_ptr<Watched> watched) : watched_(std::move(watched)) {}
Descriptor::~Descriptor() {
  CloseListed(fd(), [this] { watched_.reset(); });
}

int Descriptor::fd() const { return watched_->descriptor.native_handle(); }

namespace {

// ~Descriptor cancels what waits; the header promises that those tasks are dropped unrun.
auto RunUnlessCancelled(Task task) {
  return [task = std::move(task)](const std::error_code& error) {
    if (!error) task();
  };
}

}  // namespace

void Descriptor::WhenReadable(Task task) {
  watched_->descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                                  RunUnlessCancelled(std::move(task)));
}

void Descriptor::WhenWritable(Task task) {
  watched_->descriptor.async_wait(asio::posix::stream_descriptor::wait_write,
                                  RunUnlessCancelled(std::move(task)));
}

}  // namespace poseidon::transport::tcp
