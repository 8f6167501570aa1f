// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sync/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poseidon::sync {
namespace {

using ::testing::HasSubstr;

TEST(StrategyNamed, HasEachNameAndPoseidonsIsTheDefault) {
  for (const std::string& name : StrategyNames()) EXPECT_EQ(StrategyNamed(name).value().name, name);
  EXPECT_EQ(StrategyNamed("poseidon").value(), Strategy{});
  EXPECT_THAT(StrategyNamed("ps").status().message(), HasSubstr("strategy is 'ps', expected one of poseidon, wfbp, "));
}

TEST(PlanningUnder, TakesTheUsersPolicyWhereTheStrategyHasNone) {
  const plan::PlanOptions bytes{.policy = plan::Policy::kBytes};
  EXPECT_EQ(PlanningUnder(StrategyNamed("p3").value(), bytes).policy, plan::Policy::kBytes);
  EXPECT_EQ(PlanningUnder(StrategyNamed("p3").value(), {}).policy, plan::Policy::kTime);
  const plan::PlanOptions old = PlanningUnder(StrategyNamed("ps-2017").value(), {});
  EXPECT_EQ(old.policy, plan::Policy::kBytes);
  EXPECT_EQ(old.placement, plan::Placement::kPairs);
  EXPECT_TRUE(old.waits_for_all);
  EXPECT_TRUE(PlanningUnder(StrategyNamed("dense").value(), {}).only_dense);
}

}  // namespace
}  // namespace poseidon::sync
