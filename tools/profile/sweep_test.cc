// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poseidon::profile {
namespace {

using plan::Policy;
using plan::Scheme;
using ::testing::HasSubstr;

// One fully connected layer of 1000 x 1000 on 100 rows, and a layer below it without factors.
Profile Example() {
  Profile profile;
  profile.name = "example";
  profile.layers = {{.spec = {.name = "conv", .elements = 1000},
                     .tensors = {{"conv.weight", {1000}}},
                     .forward_seconds = 0.01,
                     .backward_seconds = 0.02},
                    {.spec = {.name = "fc",
                              .elements = 1'000'000,
                              .forward_position = 1,
                              .factors = plan::FactorShape{1000, 1000, false}},
                     .tensors = {{"fc.weight", {1000, 1000}}},
                     .forward_seconds = 0.01,
                     .backward_seconds = 0.02,
                     .rows = 100}};
  return profile;
}

TEST(Predict, IsTheBoundByHand) {
  Setting setting;
  setting.goodput = 1;
  setting.options.forced["fc"] = Scheme::kKeyValue;
  // Two workers at 8 Mbit/s: 4000 B and 4 MB of gradient, at 1 MB/s each way.
  const Point dense = Predict(Example(), setting, 2, 8e6).value();
  EXPECT_DOUBLE_EQ(dense.plan.single_worker_seconds, 0.06);
  EXPECT_NEAR(dense.plan.step_seconds, 4.004 + 0.03, 1e-9);
  EXPECT_DOUBLE_EQ(dense.t_star_seconds, dense.plan.step_seconds);
  EXPECT_NEAR(dense.plan.wfbp_seconds, 0.02 + 0.02 + 4.004, 1e-9);
  EXPECT_DOUBLE_EQ(dense.dense_wfbp_seconds, dense.plan.wfbp_seconds);
  EXPECT_NEAR(dense.plan.speedup, 2 * 0.06 / 4.034, 1e-9);
  EXPECT_NEAR(dense.dense_wfbp_speedup(), 2 * 0.06 / 4.044, 1e-9);

  // By factors: 100 rows of 2000 numbers, 0.8 MB, and no time for products.
  setting.options.forced["fc"] = Scheme::kFactorBroadcast;
  setting.goodput = 0.5;
  const Point factors = Predict(Example(), setting, 2, 16e6).value();
  EXPECT_NEAR(factors.plan.step_seconds, 0.804 + 0.03, 1e-9);
  EXPECT_NEAR(factors.dense_wfbp_seconds, 4.044, 1e-9);
}

// Eight workers on two hosts exchange what two workers would.
TEST(Predict, WorkersOfOneHostShareItsLink) {
  Setting setting;
  setting.goodput = 1;
  setting.per_host = 4;
  setting.options.forced["fc"] = Scheme::kKeyValue;
  const Point point = Predict(Example(), setting, 8, 8e6).value();
  EXPECT_NEAR(point.plan.step_seconds, 4.004 + 0.03, 1e-9);
  EXPECT_EQ(point.plan.cluster.contributors(), 2u);
}

TEST(Predict, RefusesUnknownLayers) {
  Setting setting;
  setting.options.forced["fc9"] = Scheme::kKeyValue;
  EXPECT_THAT(Predict(Example(), setting, 2, 1e9).status().message(), HasSubstr("'fc9'"));
}

// The published rule changes at K P = 2 M N / (M + N) = 1000 rows: factors up to 10 workers.
TEST(RunSweep, FindsWhereALayerChangesItsScheme) {
  Setting setting;
  setting.options.policy = Policy::kBytes;
  const Sweep sweep = RunSweep(Example(), setting, {2, 4, 8, 16, 32}, {1e9, 10e9}).value();
  ASSERT_EQ(sweep.points.size(), 10u);
  EXPECT_EQ(sweep.at(2, 1).workers, 8u);
  EXPECT_EQ(sweep.at(2, 1).rate, 10e9);
  EXPECT_EQ(sweep.crossovers, (std::vector<Crossover>{
                                  {1, 1e9, 11, Scheme::kFactorBroadcast, Scheme::kKeyValue},
                                  {1, 10e9, 11, Scheme::kFactorBroadcast, Scheme::kKeyValue},
                              }));
  const std::string text = SweepText(sweep, Example());
  EXPECT_THAT(text, HasSubstr("workers      1 Gbit/s     10 Gbit/s\n      2"));
  EXPECT_THAT(text, HasSubstr("  fc: 1 Gbit/s sfb, kv from 11; 10 Gbit/s sfb, kv from 11\n"));
  EXPECT_THAT(text, Not(HasSubstr("conv")));
}

TEST(RunSweep, SpeedUpsGrowWithTheRateAndStayBelowTheNumberOfWorkers) {
  const Sweep sweep = RunSweep(Example(), {}).value();
  for (std::size_t i = 0; i < sweep.workers.size(); ++i) {
    for (std::size_t j = 0; j < sweep.rates.size(); ++j) {
      const Point& point = sweep.at(i, j);
      EXPECT_LE(point.plan.speedup, point.workers * (1 + 1e-9));
      EXPECT_GE(point.plan.speedup, point.dense_wfbp_speedup() * (1 - 1e-9));
      if (j > 0) {
        EXPECT_GE(point.plan.speedup, sweep.at(i, j - 1).plan.speedup * (1 - 1e-9));
      }
    }
  }
}

TEST(SweepText, SaysWhereNothingChanges) {
  Setting setting;
  setting.options.forced["fc"] = Scheme::kFactorBroadcast;
  const Sweep sweep = RunSweep(Example(), setting, {2, 4}, {1e9}).value();
  EXPECT_TRUE(sweep.crossovers.empty());
  EXPECT_THAT(SweepText(sweep, Example()), HasSubstr("  fc: sfb everywhere\n"));
  Profile plain = Example();
  plain.layers.pop_back();
  EXPECT_THAT(SweepText(RunSweep(plain, {}, {2}, {1e9}).value(), plain),
              HasSubstr("no layer has factors"));
}

TEST(SweepJson, HasEveryPointAndCrossover) {
  Setting setting;
  setting.options.policy = Policy::kBytes;
  const Sweep sweep = RunSweep(Example(), setting, {8, 16}, {1e9}).value();
  const nlohmann::json document = SweepJson(sweep, Example());
  ASSERT_EQ(document["points"].size(), 2u);
  EXPECT_EQ(document["points"][0]["schemes"], nlohmann::json({{"fc", "sfb"}}));
  EXPECT_EQ(document["points"][1]["schemes"], nlohmann::json({{"fc", "kv"}}));
  EXPECT_EQ(document["points"][1]["workers"], 16);
  EXPECT_GT(document["points"][1]["speedup"], 0);
  EXPECT_EQ(document["crossovers"], nlohmann::json::parse(R"([{"layer": "fc",
      "rate_bits_per_second": 1e9, "workers": 11, "below": "sfb", "from": "kv"}])"));
}

}  // namespace
}  // namespace poseidon::profile
