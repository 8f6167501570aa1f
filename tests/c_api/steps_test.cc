// SPDX-License-Identifier: Apache-2.0
// Steps: what is pushed lands as the mean, and what is said about it meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tests/c_api/one_process.h"

namespace {

using namespace poseidon_test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

// Every rank pushes small whole numbers, whose sums are exact in whichever scheme.
TEST(Steps, DenseAndFactorLayersLandTheMean) {
  constexpr std::uint32_t kRanks = 3;
  constexpr std::uint32_t kOutputs = 3;
  constexpr std::uint32_t kInputs = 5;
  Job job(kRanks);
  ExpectAllOk(job.Run([](std::uint32_t rank, poseidon_options options) {
    options.schemes = "fc=sfb";
    Session session(options);
    EXPECT_EQ(session.rank(), rank);
    EXPECT_EQ(session.MemberName(static_cast<std::int32_t>(rank)),
              "worker " + std::to_string(rank) + " on host localhost");
    Model model = session.NewModel();
    const std::uint32_t fc = model.Declare(WithFactors("fc", kOutputs, kInputs));
    const std::uint32_t dense = model.Declare(Dense("dense", 1001));
    model.Commit();
    EXPECT_EQ(model.PlanText(), "fc=sfb\ndense=kv\n");
    EXPECT_EQ(model.LayerPlan(fc).forced, 1);
    EXPECT_STREQ(model.LayerPlan(fc).scheme_name, "sfb");
    EXPECT_EQ(model.LayerPlan(fc).takes, POSEIDON_FACTORS);
    EXPECT_EQ(model.Plan().layers, 2u);

    std::vector<float> gradient(1001);
    std::vector<float> product(kOutputs * (kInputs + 1));
    for (std::uint64_t step = 0; step < 5; ++step) {
      model.BeginStep(step);
      EXPECT_TRUE(model.TakesFactors(fc, step));
      // Rank r brings r rows, all ones; so every entry of the sum is the number of rows, 3.
      std::vector<float> u(rank * kOutputs, 1.0f);
      std::vector<float> v(rank * kInputs, 1.0f);
      model.PushFactors(fc, step, View(u), View(v), rank, View(product));
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = static_cast<float>(i * rank + step);
      }
      model.Push(dense, step, View(gradient));
      model.Wait(dense);
      model.Wait(fc);
      EXPECT_THAT(product, testing::Each(1.0f));
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        ASSERT_FLOAT_EQ(gradient[i], static_cast<float>(i + step));
      }
    }
    EXPECT_EQ(model.Statistics(fc).steps, 5u);
    EXPECT_EQ(model.Statistics(fc).factors.payload_bytes_sent,
              5u * rank * (kRanks - 1) * (kOutputs + kInputs) * sizeof(float));
    EXPECT_EQ(model.Statistics(fc).key_value.payload_bytes_sent, 0u);
    EXPECT_GT(session.Statistics().wire_bytes_sent, 0u);
    session.Leave();
  }));
}

// Two models of one session train in turns: the same layer names and numbers, other sizes, steps of their own, and
// a final plan of their own.
TEST(Steps, ASessionHoldsSeveralModels) {
  constexpr std::uint32_t kRanks = 3;
  constexpr std::uint64_t kSteps = 6;
  Job job(kRanks);
  ExpectAllOk(job.Run([kSteps](std::uint32_t rank, poseidon_options options) {
    options.final_plan_step = 4;
    Session session(options);
    Model generator = session.NewModel();
    Model critic = session.NewModel();
    const std::uint32_t a = generator.Declare(Dense("a", 6000));
    const std::uint32_t b = critic.Declare(Dense("a", 50));
    const std::uint32_t c = critic.Declare(WithFactors("c", 3, 4));
    critic.Commit();  // in another order than they were made
    generator.Commit();
    std::vector<float> of_a(6000), of_b(50), of_c(15);
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      critic.BeginStep(step);
      of_b.assign(50, static_cast<float>(rank + step));
      of_c.assign(15, 3.0f);
      critic.Push(b, step, View(of_b));
      // The other model's step begins while this one's layer is under way.
      if (step % 2 == 0) {
        generator.BeginStep(step / 2);
        of_a.assign(6000, static_cast<float>(10 * rank));
        generator.Push(a, step / 2, View(of_a));
      }
      if (!critic.TakesFactors(c, step)) {
        critic.Push(c, step, View(of_c));
      } else {
        std::vector<float> u(3, 1.0f), v(4, 3.0f);
        critic.PushFactors(c, step, View(u), View(v), 1, View(of_c));
        critic.Wait(c);
      }
      critic.Wait(b);
      critic.Wait(c);
      EXPECT_THAT(of_b, testing::Each(static_cast<float>(1 + step)));
      if (step % 2 == 0) {
        generator.Wait(a);
        EXPECT_THAT(of_a, testing::Each(10.0f));
      }
      if (step == 1) {
        poseidon_measurement measured = POSEIDON_NEW(poseidon_measurement);
        measured.forward_seconds = measured.backward_seconds = 1e-3;
        measured.rows = 1;
        critic.Measured(c, measured);
        critic.Report();
      }
    }
    EXPECT_TRUE(critic.Plan().final_plan);
    EXPECT_FALSE(generator.Plan().final_plan);
    EXPECT_EQ(generator.Statistics(a).steps, kSteps / 2);
    EXPECT_EQ(critic.Statistics(b).steps, kSteps);
    // Each slice goes out once and comes back once, whichever other model there is.
    EXPECT_EQ(generator.Statistics(a).key_value.payload_bytes_sent,
              generator.Statistics(a).key_value.payload_bytes_received);
    session.Leave();
  }));
}

TEST(Steps, AbsentAndWeightedContributions) {
  Job job(2);
  ExpectAllOk(job.Run([](std::uint32_t rank, const poseidon_options& options) {
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 3));
    model.Commit();
    std::vector<float> gradient(3, rank == 0 ? 8.0f : 16.0f);
    poseidon_push more = POSEIDON_NEW(poseidon_push);
    more.weight = rank == 0 ? 3 : 1;
    model.BeginStep(0);
    model.Push(a, 0, View(gradient), &more);
    model.Wait(a);
    EXPECT_THAT(gradient, testing::Each(10.0f));  // (3 * 8 + 16) / 4
    more.weight = 2;
    more.absent = rank == 0;
    gradient.assign(3, 6.0f);
    model.BeginStep(1);
    model.Push(a, 1, View(gradient), &more);
    model.Wait(a);
    EXPECT_THAT(gradient, testing::Each(6.0f));  // rank 1's alone
    session.Leave();
  }));
}

// Each rank brings its gradient in steps of its own, the last of which is not the program's main thread's: a copier's.
TEST(Steps, AGradientMayComeInParts) {
  constexpr std::uint64_t kElements = 10'001;
  constexpr std::uint32_t kRanks = 3;
  for (const bool weighted : {false, true}) {
    Job job(kRanks);
    ExpectAllOk(job.Run([&](std::uint32_t rank, const poseidon_options& options) {
      Session session(options);
      Model model = session.NewModel();
      const std::uint32_t a = model.Declare(Dense("a", kElements));
      model.Commit();
      const auto value = [](std::uint64_t step, std::uint32_t of, std::uint64_t i) {
        return static_cast<float>((step + 1) * (of + 1) * (i % 1000));
      };
      for (std::uint64_t step = 0; step < 5; ++step) {
        model.BeginStep(step);
        std::vector<float> gradient(kElements, 1e30f);
        poseidon_push more = POSEIDON_NEW(poseidon_push);
        more.weight = weighted ? 2 * rank + 2 : 0;
        more.in_parts = rank == step % 4 ? 0 : 1;
        const auto make = [&](std::uint64_t begin, std::uint64_t end) {
          for (std::uint64_t i = begin; i < end; ++i) gradient[i] = value(step, rank, i);
        };
        if (more.in_parts == 0) make(0, kElements);
        model.Push(a, step, View(gradient), &more);
        if (more.in_parts != 0) {
          EXPECT_FALSE(model.Landed(a));
          std::thread([&] {
            for (std::uint64_t arrived = 0; arrived < kElements;) {
              const std::uint64_t next = std::min(kElements, arrived + 1 + 997 * (rank + 1));
              make(arrived, next);
              model.Arrived(a, next);
              arrived = next;
            }
          }).join();
        }
        model.Wait(a);
        for (std::uint64_t i = 0; i < kElements; ++i) {
          // Whole numbers that floats hold, so that the order of the sum does not count.
          float sum = 0;
          for (std::uint32_t of = 0; of < kRanks; ++of) {
            sum += (weighted ? 2.0f * static_cast<float>(of + 1) : 1.0f) * value(step, of, i);
          }
          ASSERT_FLOAT_EQ(gradient[i], sum / (weighted ? 12.0f : 3.0f)) << "number " << i << " of step " << step;
        }
      }
      session.Leave();
    }));
  }
}

TEST_F(AloneWithDevice, PartsOutOfTurnAreRefusedAndChangeNothing) {
  const std::uint32_t words = model.Declare(Table("words", 5, 3));
  EXPECT_EQ(FailureOf([&] { model.Arrived(a, 1); }).code, POSEIDON_FAILED_PRECONDITION) << "not committed";
  model.Commit();
  model.BeginStep(0);
  const auto expect_none = [&] {
    const Failure none = FailureOf([&] { model.Arrived(a, 1); });
    EXPECT_EQ(none.code, POSEIDON_FAILED_PRECONDITION);
    EXPECT_EQ(none.message, "a part of layer 'a' arrived, which has no push in parts under way");
  };
  expect_none();
  EXPECT_EQ(FailureOf([&] { model.Arrived(9, 1); }).code, POSEIDON_INVALID_ARGUMENT);
  EXPECT_EQ(poseidon_arrived(nullptr, 0, 1, nullptr), POSEIDON_INVALID_ARGUMENT);

  poseidon_push more = POSEIDON_NEW(poseidon_push);
  more.in_parts = 1;
  std::vector<float> numbers(8, 2.0f);
  const auto refused = [](const Failure& failure, const char* how) {
    EXPECT_EQ(failure.code, POSEIDON_INVALID_ARGUMENT);
    EXPECT_THAT(failure.message, HasSubstr(std::string("was pushed in parts ") + how +
                                           ", expected a whole gradient in host memory"));
  };
  refused(FailureOf([&] { model.Push(a, 0, OnDevice(accelerator, 0, 4), &more); }), "on a device");
  refused(FailureOf([&] {
            model.PushFactors(f, 0, View(numbers.data(), 2), View(numbers.data(), 3), 1, View(numbers), &more);
          }),
          "as factors");
  std::vector<std::int64_t> indices = {1};
  refused(FailureOf([&] { model.PushRows(words, 0, indices, View(numbers.data(), 3), &more); }), "as rows");
  EXPECT_EQ(FailureOf([&] { model.Push(f, 0, View(numbers), &more); }).code, POSEIDON_FAILED_PRECONDITION);
  more.absent = 1;
  refused(FailureOf([&] { model.Push(a, 0, View(numbers.data(), 4), &more); }), "as absent");
  more.absent = 0;
  expect_none();

  numbers.assign(8, 1e30f);
  model.Push(a, 0, View(numbers.data(), 4), &more);
  EXPECT_FALSE(model.Landed(a));
  std::fill_n(numbers.begin(), 3, 2.0f);
  model.Arrived(a, 3);
  for (const std::uint64_t wrong : {std::uint64_t{2}, std::uint64_t{5}, ~std::uint64_t{0}}) {
    const Failure failure = FailureOf([&] { model.Arrived(a, wrong); });
    EXPECT_EQ(failure.code, POSEIDON_INVALID_ARGUMENT);
    EXPECT_EQ(failure.message, std::to_string(wrong) + " numbers of layer 'a' have arrived, expected 3 to 4");
  }
  model.Arrived(a, 3);
  EXPECT_THAT(FailureOf([&] { model.Push(a, 1, View(numbers.data(), 4)); }).message,
              HasSubstr("before its step 0 had landed"));
  EXPECT_FALSE(model.Landed(a));
  numbers[3] = 2.0f;
  model.Arrived(a, 4);
  expect_none();
  model.Wait(a);
  EXPECT_EQ(std::vector<float>(numbers.begin(), numbers.begin() + 4), std::vector<float>(4, 2.0f));
  model.Push(a, 1, View(numbers.data(), 4));
  expect_none();
  model.Wait(a);
  // A program from before parts: nothing behind its struct is read.
  more.struct_size = offsetof(poseidon_push, in_parts);
  model.Push(a, 2, View(numbers.data(), 4), &more);
  model.Wait(a);
  session.Leave();
}

TEST(Steps, LandedIsCalledOncePerPush) {
  Job job(2);
  ExpectAllOk(job.Run([](std::uint32_t, const poseidon_options& options) {
    struct Counter {
      std::atomic<int> calls{0};
      std::promise<void> all;
    } counter;
    constexpr int kLayers = 6;
    Session session(options);
    Model model = session.NewModel();
    std::vector<std::vector<double>> gradients(kLayers, std::vector<double>(100, 1.0));
    for (int l = 0; l < kLayers; ++l) {
      poseidon_layer layer = Dense("", 100);
      const std::string name = "layer" + std::to_string(l);
      layer.name = name.c_str();
      layer.dtype = POSEIDON_F64;
      model.Declare(layer);
    }
    model.Commit();
    poseidon_push more = POSEIDON_NEW(poseidon_push);
    more.landed_user = &counter;
    more.landed = [](void* user, const poseidon_status* status) {
      auto* const counted = static_cast<Counter*>(user);
      EXPECT_EQ(status->code, POSEIDON_OK);
      if (++counted->calls == kLayers) counted->all.set_value();
    };
    model.BeginStep(0);
    for (std::uint32_t l = 0; l < kLayers; ++l) model.Push(l, 0, View(gradients[l]), &more);
    counter.all.get_future().wait();
    for (std::uint32_t l = 0; l < kLayers; ++l) EXPECT_TRUE(model.Landed(l));
    session.Leave();
    EXPECT_EQ(counter.calls, kLayers);
  }));
}

TEST(Steps, OfSeveralLayersTheFirstThatHasLandedIsNamed) {
  Job job(2);
  std::promise<void> b_landed;
  std::shared_future<void> after = b_landed.get_future().share();
  ExpectAllOk(job.Run([&](std::uint32_t rank, const poseidon_options& options) {
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 4));
    const std::uint32_t b = model.Declare(Dense("b", 4));
    model.Commit();
    std::vector<float> of_a(4, 1.0f);
    std::vector<float> of_b(4, static_cast<float>(rank));
    model.BeginStep(0);
    model.Push(b, 0, View(of_b));
    if (rank == 1) after.wait();  // so rank 0's mean of a cannot have landed
    model.Push(a, 0, View(of_a));
    if (rank == 0) {
      EXPECT_EQ(model.WaitAny({a, b}), b);
      EXPECT_EQ(of_b, std::vector<float>(4, 0.5f));
      EXPECT_FALSE(model.Landed(a));
      b_landed.set_value();
      EXPECT_EQ(model.WaitAny({a}), a);
    }
    model.Wait(a);
    EXPECT_EQ(model.WaitAny({b, a}), b);
    EXPECT_THAT(FailureOf([&] { model.WaitAny({}); }).message, HasSubstr("no layer"));
    EXPECT_THAT(FailureOf([&] { model.WaitAny({a, 2}); }).message,
                HasSubstr("layer 2 does not exist"));
    session.Leave();
  }));
}

// Both workers hand on what has landed and never block: what they say that they waited is all that counts.
TEST(Steps, AnEngineThatNeverBlocksSaysHowLongItStoodStill) {
  constexpr std::int64_t kWaited = 40'000'000;  // ns, a step
  constexpr std::uint64_t kSteps = 4;
  Job job(2);
  ExpectAllOk(job.Run([&](std::uint32_t, const poseidon_options& options) {
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 4));
    model.Commit();
    std::vector<float> gradient(4, 1.0f);
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      model.BeginStep(step);
      model.Push(a, step, View(gradient));
      std::this_thread::sleep_for(std::chrono::nanoseconds(kWaited));
      EXPECT_TRUE(model.Landed(a));
      auto status = POSEIDON_NEW(poseidon_status);
      EXPECT_EQ(poseidon_waited(model.get(), kWaited, &status), POSEIDON_OK);
      EXPECT_NE(poseidon_waited(model.get(), -1, &status), POSEIDON_OK);
      EXPECT_THAT(status.message, HasSubstr("waited -1 ns, expected 0 or more"));
    }
    auto known = POSEIDON_NEW(poseidon_statistics);
    ASSERT_EQ(poseidon_get_statistics(session.get(), &known, nullptr), POSEIDON_OK);
    EXPECT_NEAR(known.waited_seconds, 1e-9 * kWaited * kSteps, 1e-9);
    session.Leave();
  }));
}

TEST(Steps, ALayerIsPushedAgainOnlyAfterItLanded) {
  Job job(2);
  std::promise<void> refused;
  std::shared_future<void> after = refused.get_future().share();
  ExpectAllOk(job.Run([&](std::uint32_t rank, const poseidon_options& options) {
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 4));
    model.Commit();
    std::vector<float> gradient(4, 1.0f);
    model.BeginStep(0);
    if (rank == 1) after.wait();  // so rank 0's push cannot have landed
    model.Push(a, 0, View(gradient));
    if (rank == 0) {
      EXPECT_FALSE(model.Landed(a));
      EXPECT_THAT(FailureOf([&] { model.Push(a, 1, View(gradient)); }).message,
                  HasSubstr("'a' was pushed for step 1 before its step 0 had landed"));
      refused.set_value();
    }
    model.Wait(a);
    session.Leave();
  }));
}

}  // namespace
