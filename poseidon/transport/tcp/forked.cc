// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/forked.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "poseidon/base/mutex.h"

namespace poseidon::transport::tcp {
namespace {

struct List {
  // Locked by a thread that forks, so that the child finds the list whole; the child unlocks its own copy.
  Mutex mutex;
  std::vector<int> descriptors POSEIDON_GUARDED_BY(mutex);
  std::atomic<std::uint64_t> generation{0};
};

// Never destroyed: a child may be forked, and descriptors closed, while the program's end destroys its globals.
List& TheList() {
  static List* const list = [] {
    auto* const made = new List;
    // The analysis knows no mutex that one function locks and another unlocks.
    ::pthread_atfork([]() POSEIDON_NO_THREAD_SAFETY_ANALYSIS { TheList().mutex.Lock(); },
                     []() POSEIDON_NO_THREAD_SAFETY_ANALYSIS { TheList().mutex.Unlock(); },
                     []() POSEIDON_NO_THREAD_SAFETY_ANALYSIS {
                       // In the child, between fork and the program: nothing here allocates or waits.
                       List& inherited = TheList();
                       for (const int fd : inherited.descriptors) ::close(fd);
                       inherited.descriptors.clear();
                       inherited.generation.fetch_add(1, std::memory_order_relaxed);
                       inherited.mutex.Unlock();
                     });
    return made;
  }();
  return *list;
}

}  // namespace

int OpenListed(const std::function<int()>& open) {
  List& list = TheList();
  MutexLock lock(list.mutex);
  const int fd = open();
  if (fd >= 0) list.descriptors.push_back(fd);
  return fd;
}

void CloseListed(int fd, const std::function<void()>& close) {
  List& list = TheList();
  MutexLock lock(list.mutex);
  // Both under one lock: a fork between them would leave the child an open descriptor that is on no list.
  std::erase(list.descriptors, fd);
  close();
}

std::uint64_t ForkGeneration() { return TheList().generation.load(std::memory_order_relaxed); }

}  // namespace poseidon::transport::tcp
