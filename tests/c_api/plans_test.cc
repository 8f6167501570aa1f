// SPDX-License-Identifier: Apache-2.0
// Plans: when they come, what they are made of, and what a program may say about them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/c_api/one_process.h"

namespace {

using namespace poseidon_test;  // NOLINT(google-build-using-namespace)

TEST(Steps, TheFinalPlanComesAtItsStep) {
  Job job(2);
  ExpectAllOk(job.Run([](std::uint32_t, poseidon_options options) {
    options.final_plan_step = 2;
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 4));
    model.Commit();
    std::vector<float> gradient(4, 1.0f);
    for (std::uint64_t step = 0; step < 4; ++step) {
      if (step == 2) {
        EXPECT_EQ(FailureOf([&] { model.TakesFactors(a, 2); }).code, POSEIDON_FAILED_PRECONDITION);
      }
      model.BeginStep(step);
      EXPECT_EQ(model.Plan().final_plan, step < 2 ? 0 : 1);
      EXPECT_FALSE(model.TakesFactors(a, step));
      model.Push(a, step, View(gradient));
      model.Wait(a);
      if (step == 0) {
        poseidon_measurement measured = POSEIDON_NEW(poseidon_measurement);
        measured.forward_seconds = 0.001;
        measured.backward_seconds = 0.002;
        model.Measured(a, measured);
        model.Report();
      }
    }
    EXPECT_EQ(model.Plan().switch_step, 2u);
    EXPECT_GT(model.Plan().step_seconds, 0.002);
    session.Leave();
  }));
}

// It pays for memory, and on a GPU for what is loaded when it is first used.
TEST(Steps, TheFirstStepCountsInNoPlan) {
  Job job(2);
  ExpectAllOk(job.Run([](std::uint32_t, poseidon_options options) {
    options.final_plan_step = 5;
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 4));
    model.Commit();
    std::vector<float> gradient(4, 1.0f);
    for (std::uint64_t step = 0; step < 6; ++step) {
      model.BeginStep(step);
      model.Push(a, step, View(gradient));
      model.Wait(a);
      const std::int64_t took = step == 0 ? 1'000'000'000 : 2'000'000;
      EXPECT_EQ(poseidon_timed(model.get(), a, step, POSEIDON_BACKWARD, 0, took, nullptr), POSEIDON_OK);
    }
    EXPECT_EQ(model.Plan().final_plan, 1);
    EXPECT_DOUBLE_EQ(model.Plan().single_worker_seconds, 0.002);
    session.Leave();
  }));
}

TEST(Steps, APinnedPlanHoldsAndTheUserWins) {
  Job job(2);
  ExpectAllOk(job.Run([](std::uint32_t, poseidon_options options) {
    options.plan_pin = "one=sfb\ntwo=sfb\n";
    options.schemes = "two=kv";
    Session session(options);
    Model model = session.NewModel();
    model.Declare(WithFactors("one", 4, 4));
    model.Declare(WithFactors("two", 4, 4));
    model.Commit();
    EXPECT_EQ(model.PlanText(), "one=sfb\ntwo=kv\n");
    session.Leave();
  }));
}

TEST(Steps, SmallLayersAreToBeDeclaredAsOne) {
  poseidon_options options = Alone();
  options.schemes = "named=kv";
  const Session session(options);
  poseidon_layer wide = Dense("f64", 10);
  wide.dtype = POSEIDON_F64;
  EXPECT_THAT(session.JoinSmall({Dense("a", 10), Dense("large", 40000), WithFactors("factors", 65, 64), Dense("b", 10),
                                 Dense("named", 10), wide, Dense("c", 10)}),
              ::testing::ElementsAre(0, 1, 2, 0, 4, 5, 0));
  poseidon_layer on_device = Dense("b", 10);
  on_device.on_device = 1;
  EXPECT_THAT(session.JoinSmall({Dense("a", 100000), on_device, Dense("c", 100000)}), ::testing::ElementsAre(0, 0, 2));
  EXPECT_EQ(FailureOf([&] { session.JoinSmall({Dense("a", 10), Dense("a", 10)}); }).code, POSEIDON_INVALID_ARGUMENT);
  EXPECT_EQ(FailureOf([&] { session.JoinSmall({Dense(nullptr, 10)}); }).message, "a layer's name is NULL");
  EXPECT_TRUE(session.JoinSmall({}).empty());
}

TEST(Steps, APlansTextPinsLayersOfAnyName) {
  const std::vector<std::string> names = {"a;b", " edges ", "back\\slash", "two\nlines", "x=kv"};
  const auto text_of_plan = [&](const char* pin) {
    Job job(2);
    std::string text;
    ExpectAllOk(job.Run([&](std::uint32_t rank, poseidon_options options) {
      options.plan_pin = pin;
      Session session(options);
      Model model = session.NewModel();
      for (const std::string& name : names) model.Declare(WithFactors(name.c_str(), 4, 4));
      model.Commit();
      if (rank == 0) text = model.PlanText();
      session.Leave();
    }));
    return text;
  };
  std::string other;
  for (const char c : text_of_plan(nullptr)) {  // each layer by the scheme that it was not sent by
    other += c;
    for (const auto& [now, then] : {std::pair("=kv\n", "=sfb\n"), std::pair("=sfb\n", "=kv\n")}) {
      if (!other.ends_with(now)) continue;
      other.replace(other.size() - std::strlen(now), std::string::npos, then);
      break;
    }
  }
  EXPECT_EQ(text_of_plan(other.c_str()), other);
}

}  // namespace
