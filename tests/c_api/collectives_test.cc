// SPDX-License-Identifier: Apache-2.0
// Beside the steps: collectives and the trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/c_api/one_process.h"

namespace {

using namespace poseidon_test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

TEST(Collectives, SumBroadcastBarrierGather) {
  constexpr std::uint32_t kRanks = 3;
  Job job(kRanks);
  ExpectAllOk(job.Run([](std::uint32_t rank, const poseidon_options& options) {
    Session session(options);
    std::vector<double> numbers(100, 1.0 + rank);
    session.Sum(View(numbers));
    EXPECT_THAT(numbers, testing::Each(6.0));
    std::vector<std::int64_t> counts(7, rank == 2 ? 42 : -1);
    session.Broadcast(View(counts), 2);
    EXPECT_THAT(counts, testing::Each(42));
    session.Barrier();
    EXPECT_EQ(session.Gather(std::string(rank * 5, static_cast<char>('a' + rank))),
              (std::vector<std::string>{"", "bbbbb", "cccccccccc"}));
    session.Leave();
  }));
}

// Each worker sums what the other does not; whose call comes first, and who owns the small one, both end.
TEST(Collectives, OfTwoSizesEndTheJobForAll) {
  for (const std::uint32_t small : {0u, 1u}) {
    for (const int before : {0, 1}) {
      Job job(2);
      const std::vector<Failure> failures = job.Run([&](std::uint32_t rank, const poseidon_options& options) {
        Session session(options);
        for (int i = 0; i < before; ++i) session.Barrier();
        std::vector<float> numbers(rank == small ? 10 : 2000, 1);
        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));  // most often rank 0's comes first
        session.Sum(View(numbers));
      });
      for (const Failure& failure : failures) {
        EXPECT_NE(failure.code, POSEIDON_OK);
        EXPECT_THAT(failure.message, HasSubstr("collective")) << "small " << small << ", before " << before;
      }
    }
  }
}

TEST(Trace, HoldsTheEnginesSpansAndTheCores) {
  Job job(2);
  ExpectAllOk(job.Run([](std::uint32_t, poseidon_options options) {
    options.trace_spans = 1000;
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 5000));
    model.Commit();
    std::vector<float> gradient(5000, 1.0f);
    model.BeginStep(3);
    poseidon_span span = POSEIDON_NEW(poseidon_span);
    span.lane = POSEIDON_LANE_COMPUTE;
    span.step = 3;
    span.begin_nanoseconds = poseidon_now(session.get());
    span.end_nanoseconds = poseidon_now(session.get());
    span.label = "backward";
    EXPECT_EQ(poseidon_record(session.get(), &span, nullptr), POSEIDON_OK);
    span.lane = 17;
    EXPECT_EQ(poseidon_record(session.get(), &span, nullptr), POSEIDON_INVALID_ARGUMENT);
    model.Push(a, 3, View(gradient));
    model.Wait(a);
    bool computed = false;
    bool sent = false;
    for (const poseidon_span& found : session.TakeTrace()) {
      EXPECT_LE(found.begin_nanoseconds, found.end_nanoseconds);
      computed = computed || std::string(found.label) == "backward";
      sent = sent || (found.lane == POSEIDON_LANE_SEND && found.bytes > 0 && found.step == 3);
    }
    EXPECT_TRUE(computed);
    EXPECT_TRUE(sent);
    session.Leave();
  }));
}

}  // namespace
