// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_MUTEX_H_
#define POSEIDON_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

// Members name the mutex that guards them, and Clang's thread-safety analysis checks it at compile time
// (-Wthread-safety). Other compilers see nothing.
#ifdef __clang__
#define POSEIDON_THREAD_ANNOTATION(annotation) __attribute__((annotation))
#else
#define POSEIDON_THREAD_ANNOTATION(annotation)
#endif
// Of a member: it is read and written with `mutex` held.
#define POSEIDON_GUARDED_BY(mutex) POSEIDON_THREAD_ANNOTATION(guarded_by(mutex))
// Of a function: its caller holds the mutexes, or must not hold them.
#define POSEIDON_REQUIRES(...) POSEIDON_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define POSEIDON_EXCLUDES(...) POSEIDON_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// Of a function that takes a mutex and keeps it, or gives it up.
#define POSEIDON_ACQUIRE(...) POSEIDON_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define POSEIDON_RELEASE(...) POSEIDON_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
// Of a function that the analysis cannot follow. Say why.
#define POSEIDON_NO_THREAD_SAFETY_ANALYSIS POSEIDON_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace poseidon {

// std::mutex, known to the analysis. Thread: any.
class POSEIDON_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void Lock() POSEIDON_ACQUIRE() { mutex_.lock(); }
  void Unlock() POSEIDON_RELEASE() { mutex_.unlock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a mutex while it lives, but between Unlock and Lock.
class POSEIDON_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) POSEIDON_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() POSEIDON_RELEASE() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  void Unlock() POSEIDON_RELEASE() { lock_.unlock(); }
  void Lock() POSEIDON_ACQUIRE() { lock_.lock(); }

 private:
  friend class ConditionVariable;
  std::unique_lock<std::mutex> lock_;
};

// A wait returns after a notification, and now and then without one. There is none that takes a condition, because the
// analysis does not know in a lambda what its caller holds:
//
//   while (queue_.empty()) changed_.Wait(lock);
//
// Thread: any. The mutex is held again when a wait returns.
class ConditionVariable {
 public:
  void Wait(MutexLock& lock) { changed_.wait(lock.lock_); }
  // False once `end` has passed.
  bool WaitUntil(MutexLock& lock, std::chrono::steady_clock::time_point end) {
    return changed_.wait_until(lock.lock_, end) == std::cv_status::no_timeout;
  }
  void NotifyOne() { changed_.notify_one(); }
  void NotifyAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace poseidon

#endif  // POSEIDON_BASE_MUTEX_H_
