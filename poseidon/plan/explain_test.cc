// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "poseidon/plan/planner.h"
#include "poseidon/plan/units.h"

namespace poseidon::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Units, HaveThreeDigits) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(999), "999 B");
  EXPECT_EQ(BytesText(1'000), "1.00 kB");
  EXPECT_EQ(BytesText(9'996), "10.0 kB");
  EXPECT_EQ(BytesText(999'600), "1.00 MB");
  EXPECT_EQ(BytesText(1'602'000), "1.60 MB");
  EXPECT_EQ(BytesText(~std::uint64_t{0}), "18.4 EB");
  EXPECT_EQ(SecondsText(0), "0 s");
  EXPECT_EQ(SecondsText(12.34e-6), "12.3 us");
  EXPECT_EQ(SecondsText(0.9996e-3), "1.00 ms");
  EXPECT_EQ(SecondsText(0.0123), "12.3 ms");
  EXPECT_EQ(SecondsText(123.4), "123 s");
  EXPECT_EQ(FactorText(3.914), "3.91x");
}

std::vector<LayerSpec> Layers() {
  return {{.name = "conv1", .shape = "20x1x5x5+20", .elements = 520},
          {.name = "ip1",
           .shape = "500x800+500",
           .elements = 400'500,
           .forward_position = 1,
           .factors = FactorShape{500, 800, true}}};
}

Plan MakeExample(double bandwidth) {
  ClusterSpec cluster;
  cluster.workers = 4;
  cluster.bandwidth = bandwidth;
  cluster.rebuild_flops = 1e11;
  LayerMeasurement measured;
  measured.forward_seconds = 2e-3;
  measured.backward_seconds = 4e-3;
  measured.rows = {64, 64, 64, 64};
  std::vector<LayerMeasurement> all = {measured, measured};
  all[1].rows[3] = 60;
  return MakePlan(Layers(), cluster, all, {}).value();
}

TEST(PlanTable, IsAlignedAndComplete) {
  EXPECT_EQ(
      PlanTable(MakeExample(20e6), Layers()),
      "layer  shape          rows  scheme    sends  receives  transfer  rebuild  reason\n"
      "conv1  20x1x5x5+20       -  kv      6.24 kB   6.24 kB    312 us        -  its gradient is "
      "not a product of factors\n"
      "ip1    500x800+500  60..64  sfb      998 kB    998 kB   49.9 ms  2.02 ms  step 57.7 ms, "
      "with slices 126 ms, with scattered factors 102 ms: slices 2.40 MB, factors 998 kB, rebuild 2.02 ms, "
      "scattered factors 1.91 MB, rebuild 504 us\n");
}

TEST(PlanTable, PutsOutcomesBesidePredictions) {
  const std::vector<LayerOutcome> outcomes = {{6'240, 6'240, 1e-3}, {998'400, 982'800, 0.0512}};
  const std::string table = PlanTable(MakeExample(20e6), Layers(), outcomes);
  EXPECT_THAT(table, HasSubstr("    sent  received  landed after  reason\n"));
  EXPECT_THAT(table, HasSubstr(" 998 kB    983 kB       51.2 ms  step"));
}

TEST(PlanTable, IsAsWideAsItsLinesMayBe) {
  const std::vector<LayerOutcome> outcomes = {{6'240, 6'240, 1e-3}, {998'400, 982'800, 0.0512}};
  const Plan plan = MakeExample(20e6);
  EXPECT_EQ(PlanTable(plan, Layers(), outcomes, 80),
            "layer  shape          rows  scheme    sends  receives  transfer  rebuild\n"
            "conv1  20x1x5x5+20       -  kv      6.24 kB   6.24 kB    312 us        -\n"
            "    sent 6.24 kB, received 6.24 kB, landed after 1.00 ms; its gradient is not a\n"
            "    product of factors\n"
            "ip1    500x800+500  60..64  sfb      998 kB    998 kB   49.9 ms  2.02 ms\n"
            "    sent 998 kB, received 983 kB, landed after 51.2 ms; step 57.7 ms, with\n"
            "    slices 126 ms, with scattered factors 102 ms: slices 2.40 MB, factors 998\n"
            "    kB, rebuild 2.02 ms, scattered factors 1.91 MB, rebuild 504 us\n");
  EXPECT_THAT(PlanTable(plan, Layers(), {}, 60), HasSubstr("\nconv1 20x1x5x5+20\n         -  kv      6.24 kB   6.24 kB "));
  EXPECT_EQ(PlanTable(plan, Layers(), {}, 1000), PlanTable(plan, Layers()));
}

TEST(PlanSummary, SaysTimeSpeedAndBytes) {
  const std::string text = PlanSummary(MakeExample(20e6), 0.0603);
  EXPECT_THAT(text, HasSubstr("predicted step 57.7 ms, measured median 60.3 ms (1.04x)"));
  EXPECT_THAT(text, HasSubstr("; predicted with a machine for each worker: "));
  EXPECT_THAT(text, HasSubstr("a worker sends 1.00 MB per step, 58 % less than 2.41 MB"));
  const Plan provisional = ProvisionalPlan(Layers(), MakeExample(1).cluster, {}).value();
  EXPECT_EQ(PlanSummary(provisional), "nothing was measured yet; a worker sends 2.41 MB per step");
}

TEST(WhatWouldHelp, NamesTheNetworkOrComputing) {
  EXPECT_THAT(WhatWouldHelp(MakeExample(20e6), Layers()),
              HasSubstr("a network twice as fast makes the step"));
  EXPECT_THAT(WhatWouldHelp(MakeExample(10e9), Layers()), HasSubstr("computing bounds the step"));
  const Plan provisional = ProvisionalPlan(Layers(), MakeExample(1).cluster, {}).value();
  EXPECT_THAT(WhatWouldHelp(provisional, Layers()), HasSubstr("known once"));
}

TEST(WhatBounds, NamesTheResourceWhoseDoublingHelpsMost) {
  EXPECT_THAT(
      WhatBounds(MakeExample(20e6), Layers()),
      AllOf(HasSubstr("the network bounds the step: a network twice as fast makes the step "),
            HasSubstr(", computing twice as fast 1."), HasSubstr(", rebuilding twice")));
  const Plan fast = MakeExample(20e9);
  EXPECT_THAT(WhatBounds(fast, Layers()),
              AllOf(HasSubstr("computing bounds the step: computing twice as fast makes the step "),
                    HasSubstr("a network twice as fast 1.00x")));
  const Doubled doubled = DoubledOf(fast, Layers());
  EXPECT_LT(doubled.computing, 0.6 * fast.step_seconds);
  EXPECT_LE(doubled.network, fast.step_seconds);
  EXPECT_DOUBLE_EQ(doubled.cores, fast.step_seconds);
  Plan far = fast;
  far.cluster.latency = 10;
  EXPECT_THAT(WhatBounds(far, Layers()), HasSubstr("the network's latency bounds the step: half the latency makes "));
  EXPECT_THAT(WhatWouldHelp(far, Layers()), HasSubstr("what would help most: half the latency makes the step "));
}

TEST(WhatBounds, OnOneHostCopiesMay) {
  const std::vector<LayerSpec> layers = {{.name = "conv", .elements = 250'000}};
  const std::vector<LayerMeasurement> measured = {{.forward_seconds = 0.1, .backward_seconds = 0.1}};
  const Plan plan = MakePlan(layers, {.workers = 2, .host_of_rank = {0, 0}, .copy_bytes_per_second = 1e6, .bandwidth = 1e9}, measured, {}).value();
  EXPECT_THAT(WhatBounds(plan, layers),
              HasSubstr("copying through the host's memory bounds the step: copying twice as fast makes the step "));
  EXPECT_THAT(WhatWouldHelp(plan, layers), HasSubstr("copying through the host's memory twice as fast makes the step "));
  EXPECT_EQ(HowSpread(plan, layers), "") << "there is nothing to spread";
  EXPECT_THAT(PlanSummary(plan), HasSubstr("2 workers combine on one host; nothing is sent"));
}

TEST(HowSpread, IsSaidWhereTheNetworkHasTimeToSpare) {
  EXPECT_EQ(HowSpread(MakeExample(20e6), Layers()), "");
  EXPECT_EQ(HowSpread(MakeExample(20e9), Layers()),
            "transfers are spread over the step: a worker sends at most 10 % of the network's rate");
}

TEST(WhatCompressionSaved, IsSaidWhereZerosWereLeftOut) {
  EXPECT_EQ(WhatCompressionSaved({}), "");
  std::vector<LayerOutcome> outcomes(2);
  outcomes[0].bytes_sent = outcomes[1].bytes_sent = 500'000;
  outcomes[0].whole_bytes_sent = outcomes[1].whole_bytes_sent = 500'000;
  EXPECT_EQ(WhatCompressionSaved(outcomes), "");
  outcomes[1].whole_bytes_sent = 1'100'000;
  EXPECT_EQ(WhatCompressionSaved(outcomes),
            "factors left without their zeros: sent 1.00 MB per step in place of 1.60 MB (1.60x fewer)");
}

}  // namespace
}  // namespace poseidon::plan
