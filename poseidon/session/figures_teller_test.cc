// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/figures_teller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <vector>

namespace poseidon::session {
namespace {

Sighting After(const OverlapMeter& overlap) {
  Sighting seen{.figures = {.steps = overlap.steps() + 1}, .overlap = overlap};
  return seen;
}

TEST(FiguresMaker, CountsNeverFall) {
  FiguresMaker maker;
  OverlapMeter meter;
  meter.AddStep({.waited = 0.4, .seconds = 1, .busy = 0.8}, {0.6, 0.8});  // 0.2 s for bytes, 0.2 s for a slower worker
  place::Figures figures = maker.Make(After(meter), 1);
  EXPECT_EQ(figures.steps, 2u);
  EXPECT_EQ(figures.measured, 1u);
  EXPECT_NEAR(figures.communication, 0.2, 1e-12);
  EXPECT_NEAR(figures.slower_workers, 0.2, 1e-12);
  EXPECT_NEAR(figures.computing(), 0.6, 1e-12);
  meter.AddStep({.waited = 0, .seconds = 1, .busy = 0.8}, {1, 1.3});  // began late: takes some of what the first one showed back
  figures = maker.Make(After(meter), 2);
  EXPECT_NEAR(figures.communication, 0.2, 1e-12);
  EXPECT_GE(figures.slower_workers, 0.2);
}

TEST(FiguresMaker, WhatWasHiddenIsThatOfTheLastSteps) {
  FiguresMaker maker;
  OverlapMeter meter;
  for (int second = 0; second < 20; ++second) {
    meter.AddStep({.waited = 0.5, .seconds = 1, .busy = 0.5}, {0.5});  // nothing was hidden
    EXPECT_NEAR(maker.Make(After(meter), second).hidden, 0, 1e-12);
  }
  double hidden = 0;
  for (int second = 20; second < 31; ++second) {
    meter.AddStep({.waited = 0, .seconds = 1, .busy = 0.5}, {1});  // all was
    hidden = maker.Make(After(meter), second).hidden;
  }
  EXPECT_NEAR(hidden, 1, 1e-9);
  EXPECT_EQ(maker.Make(After(meter), 60).hidden, hidden);  // no step since
}

TEST(FiguresTeller, TellsAtOnceAndAtTheEnd) {
  std::vector<std::uint64_t> told;
  std::atomic<std::uint64_t> steps = 7;
  std::promise<void> first;
  {
    FiguresTeller teller([&steps] { return Sighting{.figures = {.steps = steps}, .overlap = {}}; },
                         [&](const place::Figures& figures) {
                           told.push_back(figures.steps);
                           if (told.size() == 1) first.set_value();
                         });
    ASSERT_EQ(first.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
    steps = 8;
  }
  EXPECT_EQ(told.front(), 7u);
  EXPECT_EQ(told.back(), 8u);
}

}  // namespace
}  // namespace poseidon::session
