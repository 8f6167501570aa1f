// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/learning_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "frontends/caffe/proto/read.h"

namespace poseidon::caffe {
namespace {

using ::testing::HasSubstr;

SolverParameter RateParameters(const std::string& text) {
  SolverParameter parameters;
  EXPECT_TRUE(ParseText("base_lr: 0.5 " + text, "test", &parameters).ok());
  return parameters;
}

double RateAt(const std::string& text, std::uint64_t iteration) {
  const SolverParameter parameters = RateParameters(text);
  EXPECT_TRUE(CheckLearningRate(parameters).ok());
  return LearningRateAt(parameters, iteration, 0).rate;
}

TEST(LearningRate, ClosedForms) {
  for (const std::uint64_t t : {0, 1, 9, 10, 11, 57, 99}) {
    const auto x = static_cast<double>(t);
    EXPECT_DOUBLE_EQ(RateAt("lr_policy: 'fixed'", t), 0.5);
    EXPECT_DOUBLE_EQ(RateAt("lr_policy: 'step' gamma: 0.5 stepsize: 10", t),
                     0.5 * std::pow(0.5, std::floor(x / 10)));
    EXPECT_DOUBLE_EQ(RateAt("lr_policy: 'exp' gamma: 0.75", t), 0.5 * std::pow(0.75, x));
    EXPECT_DOUBLE_EQ(RateAt("lr_policy: 'inv' gamma: 0.125 power: 0.75", t),
                     0.5 * std::pow(1 + 0.125 * x, -0.75));
    EXPECT_DOUBLE_EQ(RateAt("lr_policy: 'poly' power: 1.5 max_iter: 100", t),
                     0.5 * std::pow(1 - x / 100, 1.5));
    EXPECT_DOUBLE_EQ(RateAt("lr_policy: 'sigmoid' gamma: 0.25 stepsize: 20", t),
                     0.5 / (1 + std::exp(-0.25 * (x - 20))));
  }
}

TEST(LearningRate, MultiStepTakesOneStepPerIteration) {
  const SolverParameter parameters =
      RateParameters("lr_policy: 'multistep' gamma: 0.5 stepvalue: 3 stepvalue: 4 stepvalue: 4");
  int current = 0;
  const int want[] = {0, 0, 0, 1, 2, 3, 3, 3};
  for (std::uint64_t t = 0; t < 8; ++t) {
    const LearningRate rate = LearningRateAt(parameters, t, current);
    current = rate.current_step;
    EXPECT_EQ(current, want[t]);
    EXPECT_DOUBLE_EQ(rate.rate, 0.5 * std::pow(0.5, current));
  }
  // Begun late without a state, as Caffe would: one step, not three.
  EXPECT_EQ(LearningRateAt(parameters, 100, 0).current_step, 1);
}

TEST(LearningRate, StepReportsItsStep) {
  const SolverParameter parameters = RateParameters("lr_policy: 'step' gamma: 0.5 stepsize: 10");
  EXPECT_EQ(LearningRateAt(parameters, 39, 0).current_step, 3);
}

TEST(LearningRate, RefusesWithASentence) {
  const auto refusal = [](const std::string& text) {
    return CheckLearningRate(RateParameters(text)).message();
  };
  EXPECT_THAT(
      refusal("lr_policy: 'cosine'"),
      HasSubstr("'cosine', expected one of fixed, step, exp, inv, multistep, poly, sigmoid"));
  EXPECT_THAT(refusal(""), HasSubstr("unknown lr_policy ''"));
  EXPECT_THAT(refusal("lr_policy: 'step' gamma: 0.5"), HasSubstr("stepsize above 0"));
  EXPECT_THAT(refusal("lr_policy: 'poly' power: 1"), HasSubstr("max_iter above 0"));
  EXPECT_THAT(refusal("lr_policy: 'exp' gamma: -1"), HasSubstr("gamma of at least 0"));
}

}  // namespace
}  // namespace poseidon::caffe
