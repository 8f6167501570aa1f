// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TESTS_SHARED_CAFFE_WORKERS_H_
#define POSEIDON_TESTS_SHARED_CAFFE_WORKERS_H_

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "frontends/caffe/train/aten_engine.h"
#include "poseidon/session/session.h"

namespace poseidon::caffe {

// Of the jobs below.
inline constexpr std::uint64_t kFinalPlanStep = 4;

// A job within this process: calls `work(rank, session)` on a thread of every worker's own, then leaves. `adapt(rank, &options)` says there,
// before, how the worker joins.
template <typename Work, typename Adapt>
void OnWorkers(int workers, const Work& work, const Adapt& adapt) {
  transport::InprocNetwork network;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      const auto engine = MakeAtenEngine(1);
      session::SessionOptions options;
      options.node.workers = static_cast<std::uint16_t>(workers);
      options.node.requested_rank = rank;
      options.node.hosts_coordinator = rank == 0;
      options.node.listen = {"job", rank == 0 ? std::uint16_t{1} : std::uint16_t{0}};
      options.node.coordinator = {"job", 1};
      options.node.probe_bytes = 0;
      options.node.final_plan_step = kFinalPlanStep;
      options.engine = engine.get();
      adapt(rank, &options);
      auto session = session::Session::Open(session::MakeInprocRuntime(network, "member"), options);
      ASSERT_TRUE(session.ok()) << session.status().message();
      work(rank, **session);
      const Status left = (*session)->Leave();
      EXPECT_TRUE(left.ok()) << left.message();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace poseidon::caffe

#endif  // POSEIDON_TESTS_SHARED_CAFFE_WORKERS_H_
