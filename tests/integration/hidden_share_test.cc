// SPDX-License-Identifier: Apache-2.0
// The hidden_share of two workers whose every moment is known: the clock of TensorFlow's steps (step_clock.h) derives
// how long each waited, and the meter (overlap.h) what that was for. Means are waited for before the update of their
// own step, or by the forward passes of the next step, whose update is late.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "frontends/tensorflow/step_clock.h"
#include "poseidon/session/overlap.h"

namespace poseidon {
namespace {

using session::OverlapMeter;
using session::StepPace;
using tensorflow::StepClock;

constexpr std::uint32_t kLayers = 3;
constexpr std::size_t kWorkers = 2;
// Milliseconds. A backward pass takes twice as long; a step computes for 180.
constexpr std::array<std::int64_t, kLayers> kForward = {10, 20, 30};

using Times = std::array<std::int64_t, kLayers>;

enum class Update { kInItsStep, kLate };

// Both workers of a job. A layer's mean lands once both have its gradient and the link has carried it, `takes` milliseconds,
// behind those that were ready before it; a layer that takes none is not exchanged.
class Job {
 public:
  Job(Times takes, std::array<std::int64_t, kWorkers> slower) : takes_(takes) {
    for (std::size_t i = 0; i < kWorkers; ++i) workers_[i].slower = slower[i];
  }

  void Step(Update update) {
    MeterEnded();
    Times ready{};
    std::array<Times, kWorkers> gradients{};
    for (std::size_t i = 0; i < kWorkers; ++i) {
      gradients[i] = Compute(workers_[i]);
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) ready[layer] = std::max(ready[layer], gradients[i][layer]);
    }
    std::int64_t link = 0;
    for (std::uint32_t layer = kLayers; layer-- > 0;) {
      if (takes_[layer] > 0) landed_[layer] = link = std::max(link, ready[layer]) + takes_[layer];
    }
    for (std::size_t i = 0; i < kWorkers; ++i) {
      Worker& worker = workers_[i];
      worker.now = gradients[i][0];
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        if (takes_[layer] == 0) continue;
        worker.flights.emplace_back(gradients[i][layer], landed_[layer]);
        if (update == Update::kLate) continue;
        if (landed_[layer] > gradients[i][layer]) {
          worker.clock.Waited(layer, step_, gradients[i][layer], landed_[layer]);
        }
        worker.now = std::max(worker.now, landed_[layer]);
      }
    }
    pending_ = update == Update::kLate;
    ++step_;
  }

  // Returns a worker's meter of the steps since the last call, the one under way not among them.
  OverlapMeter Metered(std::size_t worker) { return std::exchange(workers_[worker].meter, {}); }

 private:
  struct Worker {
    std::int64_t slower = 0;  // by so much a backward pass of the layer at the bottom takes longer
    std::int64_t now = 0;
    StepClock clock;
    std::vector<std::pair<std::int64_t, std::int64_t>> flights;  // from a gradient to its mean
    std::int64_t begin = 0;
    OverlapMeter meter;
  };

  // The step before, which ends where the next one begins: what all workers computed in it decides what waiting was for.
  void MeterEnded() {
    std::array<StepPace, kWorkers> paces;
    std::vector<double> computed;
    for (std::size_t i = 0; i < kWorkers; ++i) {
      Worker& worker = workers_[i];
      paces[i] = {.waited = static_cast<double>(worker.clock.End().waited),
                  .seconds = static_cast<double>(worker.now - worker.begin),
                  .busy = Busy(worker)};
      computed.push_back(paces[i].seconds - paces[i].waited);
    }
    for (std::size_t i = 0; i < kWorkers; ++i) workers_[i].meter.AddStep(paces[i], computed);
  }

  // A step from its begin to its last gradient: when each was there.
  Times Compute(Worker& worker) {
    worker.begin = worker.now;
    worker.clock.Begin(step_, worker.begin);
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      if (pending_ && landed_[layer] > worker.begin) {
        worker.clock.Waited(layer, step_ - 1, worker.begin, landed_[layer]);
      }
      worker.now = (pending_ ? std::max(worker.now, landed_[layer]) : worker.now) + kForward[layer];
    }
    Times gradients{};
    for (std::uint32_t layer = kLayers; layer-- > 0;) {
      worker.now += 2 * kForward[layer] + (layer == 0 ? worker.slower : 0);
      gradients[layer] = worker.now;
      worker.clock.GradientIsThere(layer, worker.now);
    }
    return gradients;
  }

  // How much of the step some layer was on its way.
  static double Busy(const Worker& worker) {
    double busy = 0;
    for (std::int64_t at = worker.begin; at < worker.now; ++at) {
      busy += std::any_of(worker.flights.begin(), worker.flights.end(),
                          [&](const auto& flight) { return flight.first <= at && at < flight.second; });
    }
    return busy;
  }

  const Times takes_;
  std::array<Worker, kWorkers> workers_;
  std::uint64_t step_ = 0;
  Times landed_{};
  bool pending_ = false;  // the means of the step before are not waited for yet
};

// Of ten steps, after some in which every mean is waited for in its own step: those that a front end measures layers in.
OverlapMeter Play(Update update, Times takes, std::array<std::int64_t, kWorkers> slower = {}) {
  Job job(takes, slower);
  for (int i = 0; i < 4; ++i) job.Step(Update::kInItsStep);
  for (int i = 0; i < 4; ++i) job.Step(update);
  job.Metered(0);
  for (int i = 0; i < 10; ++i) job.Step(update);
  return job.Metered(0);
}

// The gradient at the top is there after 120 of 180 ms, that at the bottom when all is computed.
TEST(HiddenShare, OfMeansThatAreWaitedForBeforeTheUpdate) {
  EXPECT_NEAR(Play(Update::kInItsStep, {0, 0, 60}).hidden_share(), 1, 1e-9);
  EXPECT_NEAR(Play(Update::kInItsStep, {0, 0, 120}).hidden_share(), 0.5, 1e-9);
  EXPECT_NEAR(Play(Update::kInItsStep, {80, 0, 0}).hidden_share(), 0, 1e-9);
}

// The forward pass at the top begins after 30 ms, that at the bottom at once.
TEST(HiddenShare, OfMeansThatTheNextForwardPassWaitsFor) {
  EXPECT_NEAR(Play(Update::kLate, {0, 0, 90}).hidden_share(), 1, 1e-9);
  EXPECT_NEAR(Play(Update::kLate, {0, 0, 180}).hidden_share(), 0.5, 1e-9);
  EXPECT_NEAR(Play(Update::kLate, {80, 0, 0}).hidden_share(), 0, 1e-9);
}

TEST(HiddenShare, WhatIsWaitedForIsWhatAStepTakesLonger) {
  EXPECT_NEAR(Play(Update::kInItsStep, {0, 0, 120}).waited(), 10 * 60, 1e-9);
  EXPECT_NEAR(Play(Update::kLate, {0, 0, 120}).waited(), 10 * 30, 1e-9);
  EXPECT_NEAR(Play(Update::kLate, {80, 0, 0}).waited(), 10 * 80, 1e-9);
}

// The other worker's step takes 50 ms longer: of 51 ms of waiting 1 is for bytes, and means of the top are there in time.
TEST(HiddenShare, WaitingForASlowerWorkerIsNoCommunication) {
  for (const Update update : {Update::kInItsStep, Update::kLate}) {
    const OverlapMeter meter = Play(update, {1, 0, 0}, {0, 50});
    EXPECT_NEAR(meter.waited(), 10 * 51, 1e-9);
    EXPECT_NEAR(meter.exposed(), 10 * 1, 1e-9);
    EXPECT_NEAR(meter.hidden_share(), 0, 1e-9);
    EXPECT_NEAR(Play(update, {0, 0, 100}, {0, 50}).hidden_share(), 1, 1e-9);
  }
}

}  // namespace
}  // namespace poseidon
