// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/subnormals.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <gtest/gtest.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>

namespace poseidon::caffe {
namespace {

// Without OpenMP, as some compilers build us, parallel_for is a plain loop; the library's operators have the pool.
#if defined(_OPENMP)
constexpr std::size_t kThreads = 4;
#else
constexpr std::size_t kThreads = 1;
#endif

// Whether the calling thread counts subnormals as zero: as operands and as results.
bool Flushes() {
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;
  const unsigned mode = _mm_getcsr();
  return (mode & kFlushToZero) != 0 && (mode & kDenormalsAreZero) != 0;
#else
  volatile float tiny = 1e-40F;
  const volatile float product = tiny * 1.0F;
  return product == 0.0F;
#endif
}

// The mode of every thread of the calling thread's pool, the caller among them. Each of as many tasks as threads waits
// for all others, so that no thread does two.
std::map<std::thread::id, bool> ModesOfPool() {
  std::map<std::thread::id, bool> modes;
  std::mutex mutex;
  std::condition_variable all_there;
  at::parallel_for(0, std::int64_t{kThreads}, 1, [&](std::int64_t, std::int64_t) {
    std::unique_lock lock(mutex);
    modes[std::this_thread::get_id()] = Flushes();
    if (modes.size() == kThreads) all_there.notify_all();
    all_there.wait(lock, [&] { return modes.size() == kThreads; });
  });
  return modes;
}

// Every thread of its own has a pool of its own, which it makes when it first needs one.
template <typename Work>
void OnANewThread(Work work) {
  std::thread([&] {
    at::set_num_threads(static_cast<int>(kThreads));
    work();
  }).join();
}

TEST(Subnormals, WithoutTheCallTheyAreComputed) {
  OnANewThread([] {
    for (const auto& [thread, flushes] : ModesOfPool()) EXPECT_FALSE(flushes);
  });
}

TEST(Subnormals, AreZeroInEveryThreadOfThePool) {
  OnANewThread([] {
    FlushSubnormals();
    const std::map<std::thread::id, bool> modes = ModesOfPool();
    EXPECT_EQ(modes.size(), kThreads);
    for (const auto& [thread, flushes] : modes) EXPECT_TRUE(flushes);
  });
}

// The session's threads, which sum gradients and multiply factors, are started by the one that trains.
TEST(Subnormals, AreZeroInThreadsStartedLaterAndInTheirPools) {
  OnANewThread([] {
    FlushSubnormals();
    OnANewThread([] {
      for (const auto& [thread, flushes] : ModesOfPool()) EXPECT_TRUE(flushes);
    });
  });
}

TEST(Subnormals, AreZeroInTheLibrarysOperators) {
  OnANewThread([] {
    const at::Tensor tiny = at::full({1 << 18}, 1e-40F, at::TensorOptions().dtype(at::kFloat));
    EXPECT_NE(at::mul(tiny, 0.5).abs().max().item<float>(), 0.0F);
  });
  OnANewThread([] {
    FlushSubnormals();
    const at::Tensor small = at::full({1 << 18}, 1e-30F, at::TensorOptions().dtype(at::kFloat));
    EXPECT_EQ(at::mul(small, 1e-10F).abs().max().item<float>(), 0.0F);
  });
}

}  // namespace
}  // namespace poseidon::caffe
