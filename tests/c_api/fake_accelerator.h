// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TESTS_C_API_FAKE_ACCELERATOR_H_
#define POSEIDON_TESTS_C_API_FAKE_ACCELERATOR_H_

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "poseidon/c/poseidon.h"

// An accelerator as an engine beside the C header has one: memory that nobody else can touch (its addresses are
// mapped without access, so that a load or store at them ends the program), and a thread that runs
// kernels and copies one after the other, later than they were asked for. For tests on one process's threads.
class FakeAccelerator {
 public:
  static constexpr std::int32_t kType = POSEIDON_CUDA;

  explicit FakeAccelerator(std::size_t bytes) : bytes_(bytes) {
    const int file = memfd_create("fake-accelerator", 0);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) throw std::runtime_error("no memory");
    inside_ = Map(file, PROT_READ | PROT_WRITE);
    outside_ = Map(file, PROT_NONE);
    close(file);
    thread_ = std::thread([this] { Work(); });
  }
  ~FakeAccelerator() {
    Launch([this] { stop_ = true; });
    thread_.join();
    if (registered != 0) std::terminate();  // the session's memory is gone, and the device would copy to it
    munmap(inside_, bytes_);
    munmap(outside_, bytes_);
  }

  poseidon_device Device() {
    poseidon_device device = POSEIDON_NEW(poseidon_device);
    device.device_type = kType;
    device.name = "fake:0";
    device.user = this;
    device.copy_to_host = [](void* user, const void* from, void* into, size_t bytes, void* ready,
                             void (*done)(void*, poseidon_code), void* token) {
      auto& self = *static_cast<FakeAccelerator*>(user);
      self.Launch([&self, from, into, bytes, ready, done, token] {
        if (ready != nullptr && !static_cast<Event*>(ready)->happened) std::terminate();  // one stream: it has
        if (self.fail_copies) return done(token, POSEIDON_INTERNAL);
        std::memcpy(into, self.Inside(from), bytes);
        ++self.copies_out;
        done(token, POSEIDON_OK);
      });
    };
    device.copy_from_host = [](void* user, const void* from, void* into, size_t bytes,
                               void (*done)(void*, poseidon_code), void* token) {
      auto& self = *static_cast<FakeAccelerator*>(user);
      self.Launch([&self, from, into, bytes, done, token] {
        std::memcpy(self.Inside(into), from, bytes);
        ++self.copies_in;
        done(token, POSEIDON_OK);
      });
    };
    device.register_host = [](void* user, void* memory, size_t bytes) {
      ++static_cast<FakeAccelerator*>(user)->registered;
      return static_cast<std::int32_t>((reinterpret_cast<std::uintptr_t>(memory) | bytes) % 4096 == 0);
    };
    device.unregister_host = [](void* user, void*, size_t) { --static_cast<FakeAccelerator*>(user)->registered; };
    return device;
  }

  // A part of the memory, by its address on the device.
  void* At(std::size_t offset) { return static_cast<std::byte*>(outside_) + offset; }
  // The same place as kernels and copies see it.
  void* Inside(const void* address) {
    return static_cast<std::byte*>(inside_) + (static_cast<const std::byte*>(address) -
                                               static_cast<const std::byte*>(outside_));
  }

  struct Event {
    std::atomic<bool> happened = false;
  };
  // Runs later, behind what was launched before; then `event` has happened.
  void Launch(std::function<void()> work, Event* event = nullptr) {
    std::lock_guard lock(mutex_);
    queue_.push_back([work = std::move(work), event] {
      work();
      if (event != nullptr) event->happened = true;
    });
    changed_.notify_all();
  }
  // Waits until everything launched so far has run.
  void Synchronize() {
    std::atomic<bool> run = false;
    Launch([&] { run = true; });
    while (!run) std::this_thread::yield();
  }

  std::atomic<int> copies_out = 0;
  std::atomic<int> copies_in = 0;
  std::atomic<bool> fail_copies = false;
  std::atomic<int> registered = 0;  // ranges of the session's memory

 private:
  void* Map(int file, int access) {
    void* const at = mmap(nullptr, bytes_, access, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) throw std::runtime_error("no address space");
    return at;
  }
  void Work() {
    while (!stop_) {
      std::function<void()> next;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !queue_.empty(); });
        next = std::move(queue_.front());
        queue_.pop_front();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a device is always a little behind its program
      next();
    }
  }

  const std::size_t bytes_;
  void* inside_ = nullptr;
  void* outside_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stop_ = false;  // the thread's own
  std::thread thread_;
};

#endif  // POSEIDON_TESTS_C_API_FAKE_ACCELERATOR_H_
