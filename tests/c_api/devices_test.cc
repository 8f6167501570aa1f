// SPDX-License-Identifier: Apache-2.0
// An accelerator's memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/c_api/one_process.h"

namespace {

using namespace poseidon_test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

// Two on each machine.
const char* MachineOf(std::uint32_t rank) { return rank < 2 ? "a" : "b"; }

// Kernels that make gradient and factors run after they were pushed; the means land on the device, and have the
// bits that the same numbers in host memory give, also where the device copies into the memory of the workers' host. A layer in host
// memory is pushed beside it.
TEST(Devices, MeansLandInMemoryThatOnlyCopiesTouch) {
  constexpr std::uint32_t kRanks = 4;
  constexpr std::uint64_t kOutputs = 7, kInputs = 11, kRows = 5, kSteps = 4;
  constexpr std::uint64_t kFlat = kOutputs * kInputs + kOutputs;
  const auto number = [](std::uint32_t rank, std::uint64_t step, std::uint64_t i) {
    return 0.25f * static_cast<float>((rank * 31 + step * 7 + i * 13) % 97) - 11.0f;
  };
  // Of rank 0: on the host, on the device, there with workers that combine first, of one machine and of two.
  std::array<std::vector<float>, 4> means;
  for (const int way : {0, 1, 2, 3}) {
    const bool on_device = way > 0;
    Job job(kRanks);
    ExpectAllOk(job.Run([&](std::uint32_t rank, poseidon_options options) {
      FakeAccelerator accelerator(1 << 20);
      const poseidon_device device = accelerator.Device();
      options.device = &device;
      options.schemes = "fc=sfb";
      options.levels = way >= 2 ? POSEIDON_LEVELS_HOST : POSEIDON_LEVELS_FLAT;
      if (way == 3) options.machine = MachineOf(rank);
      Session session(options);
      Model model = session.NewModel();
      const std::uint32_t a = model.Declare(Dense("a", 3000));
      const std::uint32_t f = model.Declare(WithFactors("fc", kOutputs, kInputs));
      const std::uint32_t h = model.Declare(Dense("on the host", 9));
      model.Commit();
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        model.BeginStep(step);
        std::vector<float> numbers(3000 + kFlat + kRows * (kOutputs + kInputs));
        for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = number(rank, step, i);
        const std::uint64_t at_f = 3000, at_u = at_f + kFlat, at_v = at_u + kRows * kOutputs;
        std::vector<float> host(9, static_cast<float>(rank));
        FakeAccelerator::Event made;
        if (on_device) {
          accelerator.Launch(
              [&] { std::memcpy(accelerator.Inside(accelerator.At(0)), numbers.data(), numbers.size() * 4); }, &made);
          model.Push(a, step, OnDevice(accelerator, 0, 3000, &made));
          model.PushFactors(f, step, OnDevice(accelerator, at_u * 4, kRows * kOutputs, &made),
                            OnDevice(accelerator, at_v * 4, kRows * kInputs, &made), kRows,
                            OnDevice(accelerator, at_f * 4, kFlat));
        } else {
          model.Push(a, step, View(numbers.data(), 3000));
          model.PushFactors(f, step, View(&numbers[at_u], kRows * kOutputs), View(&numbers[at_v], kRows * kInputs),
                            kRows, View(&numbers[at_f], kFlat));
        }
        model.Push(h, step, View(host));
        model.Wait(a);
        model.Wait(f);
        model.Wait(h);
        EXPECT_THAT(host, testing::Each(1.5f));
        if (on_device) std::memcpy(numbers.data(), accelerator.Inside(accelerator.At(0)), numbers.size() * 4);
        if (rank == 0) means[way].insert(means[way].end(), numbers.begin(), numbers.begin() + at_u);
      }
      EXPECT_EQ(accelerator.copies_out, on_device ? static_cast<int>(3 * kSteps) : 0);
      EXPECT_EQ(accelerator.copies_in, on_device ? static_cast<int>(2 * kSteps) : 0);
      EXPECT_EQ(accelerator.registered, way < 2 ? 0 : way == 2 ? 2 : 4) << "what a layer brings, and its mean; on one machine factors are not combined";
      EXPECT_EQ(model.Memory(a).brought, nullptr) << "there is none, or the session uses it itself";
      session.Leave();
    }));
  }
  EXPECT_EQ(means[0], means[1]);
  EXPECT_EQ(means[0], means[2]);
  EXPECT_EQ(means[0], means[3]);
  EXPECT_EQ(means[0][1], (number(0, 0, 1) + number(1, 0, 1) + number(2, 0, 1) + number(3, 0, 1)) / 4);
}

// As a program does that copies gradients from a device of its own.
TEST(Devices, WhatIsPushedFromTheMemoryOfTheHostIsNotCopied) {
  constexpr std::uint64_t kElements = 5000;
  std::atomic<std::uint64_t> moved = 0;
  Job job(4);
  ExpectAllOk(job.Run([&](std::uint32_t rank, poseidon_options options) {
    options.levels = POSEIDON_LEVELS_HOST;
    options.machine = MachineOf(rank);
    options.schemes = "fc=sfb";
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", kElements));
    const std::uint32_t f = model.Declare(WithFactors("fc", 2, 3));
    EXPECT_EQ(FailureOf([&] { model.Memory(a); }).message, "the model has not been committed");
    model.Commit();
    const poseidon_memory memory = model.Memory(a);
    const poseidon_memory of_factors = model.Memory(f);
    ASSERT_GE(memory.bytes, kElements * sizeof(float));
    ASSERT_NE(memory.brought, memory.mean);
    for (std::uint64_t step = 0; step < 3; ++step) {
      model.BeginStep(step);
      std::fill_n(static_cast<float*>(memory.brought), kElements, static_cast<float>(rank + step));
      model.Push(a, step, View(static_cast<float*>(memory.brought), kElements));
      // What is elsewhere is copied.
      std::vector<float> u(2, 1.0f), v(3, static_cast<float>(rank)), landed(8);
      model.PushFactors(f, step, View(u), View(v), 1, View(landed));
      model.Wait(a);
      model.Wait(f);
      const auto* const mean = static_cast<const float*>(memory.mean);
      EXPECT_TRUE(std::all_of(mean, mean + kElements, [&](float x) { return x == 1.5f + static_cast<float>(step); }));
      EXPECT_THAT(landed, testing::ElementsAre(1.5f, 1.5f, 1.5f, 1.5f, 1.5f, 1.5f, 1.0f, 1.0f));
    }
    moved += model.Statistics(a).local_bytes;
    EXPECT_EQ(FailureOf([&] {
                model.BeginStep(3);
                std::vector<float> u(2), v(3);
                model.PushFactors(f, 3, View(u), View(v), 1, View(static_cast<float*>(of_factors.brought), 8));
              }).message,
              "the factors of layer 'fc' were pushed with a gradient in the session's own memory, expected other memory");
    // Factors of one row that are there already, u and v as the session has them.
    auto* const there = static_cast<float*>(of_factors.brought);
    std::fill_n(there, 2, 1.0f);
    std::fill_n(there + 2, 3, static_cast<float>(rank));
    std::vector<float> landed(8);
    model.PushFactors(f, 3, View(there, 2), View(there + 2, 3), 1, View(landed));
    model.Push(a, 3, View(static_cast<float*>(memory.brought), kElements));
    model.Wait(f);
    model.Wait(a);
    EXPECT_THAT(landed, testing::ElementsAre(1.5f, 1.5f, 1.5f, 1.5f, 1.5f, 1.5f, 1.0f, 1.0f));
    session.Leave();
  }));
  EXPECT_EQ(moved, 3 * 2 * kElements * sizeof(float)) << "who sums reads the others' gradients, and nobody moves more";
}

// Copied as others are, u would write over v.
TEST(Devices, FactorsInTheMemoryOfTheHostAreLaidOutAsThere) {
  Job job(4);
  std::vector<Failure> failures = job.Run([&](std::uint32_t rank, poseidon_options options) {
    options.levels = POSEIDON_LEVELS_HOST;
    options.machine = MachineOf(rank);
    options.schemes = "fc=sfb";
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t f = model.Declare(WithFactors("fc", 2, 3));
    model.Commit();
    model.BeginStep(0);
    auto* const there = static_cast<float*>(model.Memory(f).brought);
    std::fill_n(there, 8, 1.0f);
    std::vector<float> landed(8);
    model.PushFactors(f, 0, View(there + 3, 2), View(there, 3), 1, View(landed));
    model.Wait(f);
  });
  std::string messages;
  for (const Failure& failure : failures) messages += failure.message;
  EXPECT_THAT(messages,
              HasSubstr("the factors of layer 'fc' are in the session's own memory, expected u at its begin and v right behind it, or both elsewhere"));
}

// 9 MiB leave in three parts; the last one's failure is the layer's.
TEST(Devices, ALargeGradientIsCopiedInParts) {
  constexpr std::uint64_t kElements = (9 << 20) / sizeof(float);
  Job job(2);
  ExpectAllOk(job.Run([&](std::uint32_t rank, poseidon_options options) {
    FakeAccelerator accelerator(16 << 20);
    const poseidon_device device = accelerator.Device();
    options.device = &device;
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", kElements));
    model.Commit();
    model.BeginStep(0);
    FakeAccelerator::Event made;
    float* const inside = static_cast<float*>(accelerator.Inside(accelerator.At(0)));
    accelerator.Launch([&] { std::fill_n(inside, kElements, static_cast<float>(rank)); }, &made);
    model.Push(a, 0, OnDevice(accelerator, 0, kElements, &made));
    model.Wait(a);
    EXPECT_EQ(accelerator.copies_out, 3);
    EXPECT_TRUE(std::all_of(inside, inside + kElements, [](float x) { return x == 0.5f; }));
    session.Leave();
  }));
}

TEST_F(AloneWithDevice, ForeignMemoryAndMixturesAreRefused) {
  model.Commit();
  model.BeginStep(0);
  poseidon_view other = OnDevice(accelerator, 0, 4);
  other.device_id = 1;
  EXPECT_THAT(FailureOf([&] { model.Push(a, 0, other); }).message, HasSubstr("expected host memory (1) or the session's device 0 of type 2"));
  std::vector<float> rows(3);
  EXPECT_THAT(FailureOf([&] { model.PushFactors(f, 0, View(rows.data(), 2), View(rows), 1, OnDevice(accelerator, 0, 8)); }).message,
              HasSubstr("are one on the host and one on the device"));
  FakeAccelerator::Event one, two;
  EXPECT_THAT(FailureOf([&] {
                model.PushFactors(f, 0, OnDevice(accelerator, 64, 2, &one), OnDevice(accelerator, 128, 3, &two), 1,
                                  OnDevice(accelerator, 0, 8));
              }).message,
              HasSubstr("two ready events"));
  EXPECT_EQ(FailureOf([&] {
              model.PushFactors(f, 0, OnDevice(accelerator, 64, 2, &one), OnDevice(accelerator, 128, 3, &one), 1,
                                OnDevice(accelerator, 0, 8, &two));
            }).message,
            "the factors of layer 'f' and its gradient have two ready events, expected the same one");
  EXPECT_THAT(FailureOf([&] { session.Sum(OnDevice(accelerator, 0, 4)); }).code, POSEIDON_UNIMPLEMENTED);
  // The header asks for the same event in all of them.
  accelerator.Launch([] {}, &one);
  model.PushFactors(f, 0, OnDevice(accelerator, 64, 2, &one), OnDevice(accelerator, 128, 3, &one), 1,
                    OnDevice(accelerator, 0, 8, &one));
  model.Wait(f);
  session.Leave();
}

// A session that is closed while a copy is under way returns when the device is through with it.
TEST(Devices, ClosingWaitsForCopiesAndAFailedCopyIsTheLayersFailure) {
  FakeAccelerator accelerator(1 << 20);
  const poseidon_device device = accelerator.Device();
  poseidon_options options = Alone();
  options.device = &device;
  {
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 1000));
    model.Commit();
    model.BeginStep(0);
    accelerator.fail_copies = true;
    model.Push(a, 0, OnDevice(accelerator, 0, 1000));
    EXPECT_THAT(FailureOf([&] { model.Wait(a); }).message, HasSubstr("a copy of 4000 bytes from fake:0 failed with code 11"));
    accelerator.fail_copies = false;
  }
  Session session(options);
  Model model = session.NewModel();
  const std::uint32_t a = model.Declare(Dense("a", 1000));
  model.Commit();
  model.BeginStep(0);
  for (int i = 0; i < 20; ++i) accelerator.Launch([] {});  // what the copy has to wait behind
  model.Push(a, 0, OnDevice(accelerator, 0, 1000));
}

}  // namespace
