// SPDX-License-Identifier: Apache-2.0
// How a job ends, and who is told what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <thread>
#include <vector>

#include "tests/c_api/one_process.h"

namespace {

using namespace poseidon_test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

TEST(Ends, AnAbortNamesItsAuthor) {
  Job job(3);
  const std::vector<Failure> failures =
      job.Run([](std::uint32_t rank, const poseidon_options& options) {
        Session session(options);
        if (rank == 1) {
          session.Abort("the disk is full");
          return;
        }
        session.Barrier();
      });
  EXPECT_EQ(failures[1].code, POSEIDON_OK);
  for (const std::size_t rank : {0u, 2u}) {
    EXPECT_EQ(failures[rank].code, POSEIDON_ABORTED);
    EXPECT_EQ(failures[rank].scope, POSEIDON_SCOPE_JOB);
    EXPECT_EQ(failures[rank].culprit, 1);
    EXPECT_THAT(failures[rank].message, HasSubstr("worker 1 on host localhost: the disk is full"));
  }
}

// A session that is closed while a push is under way informs the others, and calls its own callback,
// before it returns.
TEST(Ends, ClosingWithoutLeavingEndsTheJobAndCompletesEveryPush) {
  Job job(2);
  std::promise<void> pushed;
  std::shared_future<void> closing = pushed.get_future().share();
  const std::vector<Failure> failures =
      job.Run([&](std::uint32_t rank, const poseidon_options& options) {
        std::vector<float> gradient(4, 1.0f);
        std::atomic<poseidon_code> told{-1};
        {
          Session session(options);
          Model model = session.NewModel();
          const std::uint32_t a = model.Declare(Dense("a", 4));
          model.Commit();
          model.BeginStep(0);
          if (rank == 0) {
            closing.wait();
            session.Barrier();
            return;
          }
          poseidon_push more = POSEIDON_NEW(poseidon_push);
          more.landed_user = &told;
          more.landed = [](void* user, const poseidon_status* status) {
            static_cast<std::atomic<poseidon_code>*>(user)->store(status->code);
          };
          model.Push(a, 0, View(gradient), &more);
          pushed.set_value();
        }
        EXPECT_EQ(told, POSEIDON_ABORTED);
      });
  EXPECT_EQ(failures[1].code, POSEIDON_OK);
  EXPECT_EQ(failures[0].code, POSEIDON_ABORTED);
  EXPECT_EQ(failures[0].culprit, 1);
  EXPECT_THAT(failures[0].message, HasSubstr("worker 1 on host localhost: closed its session"));
}

// Half of a gradient is under way when the job ends: the push fails once, and parts that follow get the job's failure.
TEST(Ends, AnAbortBetweenTwoPartsFailsThePush) {
  Job job(2);
  std::promise<void> half;
  std::shared_future<void> brought = half.get_future().share();
  const std::vector<Failure> failures = job.Run([&](std::uint32_t rank, const poseidon_options& options) {
    std::vector<float> gradient(100'000, 1.0f);
    std::atomic<int> told = 0;
    {
      Session session(options);
      Model model = session.NewModel();
      const std::uint32_t a = model.Declare(Dense("a", gradient.size()));
      model.Commit();
      model.BeginStep(0);
      if (rank == 1) {
        model.Push(a, 0, View(gradient));
        brought.wait();
        session.Abort("the disk is full");
        return;
      }
      poseidon_push more = POSEIDON_NEW(poseidon_push);
      more.in_parts = 1;
      more.landed_user = &told;
      more.landed = [](void* user, const poseidon_status* status) {
        EXPECT_EQ(status->code, POSEIDON_ABORTED);
        ++*static_cast<std::atomic<int>*>(user);
      };
      model.Push(a, 0, View(gradient), &more);
      model.Arrived(a, gradient.size() / 2);
      half.set_value();
      EXPECT_EQ(FailureOf([&] { model.Wait(a); }).code, POSEIDON_ABORTED);
      const Failure late = FailureOf([&] { model.Arrived(a, gradient.size()); });
      EXPECT_EQ(late.code, POSEIDON_ABORTED);
      EXPECT_THAT(late.message, HasSubstr("the disk is full"));
    }
    EXPECT_EQ(told, 1);
  });
  ExpectAllOk(failures);
}

TEST(Ends, ADedicatedServerReturnsWhenTheWorkersHaveLeft) {
  Job job(2, 1);
  poseidon_options serving;
  std::promise<Failure> served;
  const std::vector<Failure> failures =
      job.Run([&](std::uint32_t rank, const poseidon_options& options) {
        std::thread server;
        if (rank == 1) {
          serving = options;
          serving.role = POSEIDON_SERVER;
          serving.requested_rank = 0;
          server = std::thread(
              [&] { served.set_value(FailureOf([&] { poseidon_cpp::Serve(serving); })); });
        }
        const Failure failure = FailureOf([&] {
          Session session(options);
          Model model = session.NewModel();
          const std::uint32_t a = model.Declare(Dense("a", 10));
          model.Commit();
          std::vector<float> gradient(10, static_cast<float>(2 * rank));
          model.BeginStep(0);
          model.Push(a, 0, View(gradient));
          model.Wait(a);
          EXPECT_THAT(gradient, testing::Each(1.0f));
          EXPECT_EQ(model.Statistics(a).key_value.payload_bytes_sent, 40u);
          session.Leave();
        });
        EXPECT_EQ(failure.code, POSEIDON_OK) << failure.message;
        if (server.joinable()) server.join();
      });
  ExpectAllOk(failures);
  const Failure failure = served.get_future().get();
  EXPECT_EQ(failure.code, POSEIDON_OK) << failure.message;
}

// The program is interrupted (Ctrl-C) in a call that would block for ever: the call ends the job and returns.
TEST(Ends, AnInterruptedWaitEndsTheJob) {
  Job job(2);
  std::promise<void> ended;
  std::shared_future<void> rank_0_ended = ended.get_future().share();
  const std::vector<Failure> failures = job.Run([&](std::uint32_t rank, poseidon_options options) {
    std::atomic<bool> waits = false;
    if (rank == 0) {
      options.interrupted = [](void* user) { return static_cast<std::atomic<bool>*>(user)->load() ? 1 : 0; };
      options.interrupted_user = &waits;
    }
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 4));
    model.Commit();
    model.BeginStep(0);
    if (rank == 1) {  // never pushes
      rank_0_ended.wait();
      session.Barrier();
      return;
    }
    std::vector<float> gradient(4, 1.0f);
    model.Push(a, 0, View(gradient));
    waits = true;
    const Failure failure = FailureOf([&] { model.Wait(a); });
    EXPECT_EQ(failure.code, POSEIDON_ABORTED);
    EXPECT_THAT(failure.message, HasSubstr("was interrupted"));
    ended.set_value();
  });
  EXPECT_EQ(failures[1].code, POSEIDON_ABORTED);
  EXPECT_EQ(failures[1].culprit, 0);
}

TEST(Ends, AnInterruptedJoinReturns) {
  poseidon_options options = Alone();
  options.workers = 2;  // of which the second never comes
  options.token_bytes = kToken.data();
  std::atomic<int> asked = 0;
  options.interrupted = [](void* user) { return static_cast<std::atomic<int>*>(user)->fetch_add(1) > 1 ? 1 : 0; };
  options.interrupted_user = &asked;
  const Failure failure = FailureOf([&] { Session session(options); });
  EXPECT_EQ(failure.code, POSEIDON_ABORTED);
  EXPECT_THAT(failure.message, HasSubstr("was interrupted"));
}

TEST(Ends, AnInterruptedCollectiveEndsTheJob) {
  Job job(2);
  const std::vector<Failure> failures = job.Run([&](std::uint32_t rank, poseidon_options options) {
    std::atomic<bool> waits = false;
    options.interrupted = [](void* user) { return static_cast<std::atomic<bool>*>(user)->load() ? 1 : 0; };
    options.interrupted_user = &waits;
    Session session(options);
    if (rank == 1) session.Leave();
    waits = true;
    session.Barrier();
  });
  EXPECT_EQ(failures[0].code, POSEIDON_ABORTED);
  EXPECT_EQ(failures[1].code, POSEIDON_ABORTED);
}

}  // namespace
