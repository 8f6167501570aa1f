// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/update_rule.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "frontends/caffe/proto/at.h"
#include "frontends/caffe/proto/read.h"
#include "frontends/caffe/solver/gradient_norm.h"

namespace poseidon::caffe {
namespace {

using ::testing::HasSubstr;

SolverParameter Parameters(const std::string& text) {
  SolverParameter parameters;
  EXPECT_TRUE(ParseText(text, "test", &parameters).ok());
  return parameters;
}

at::Tensor Random(std::int64_t count, at::ScalarType dtype, unsigned seed) {
  at::Tensor tensor = at::empty({count}, at::TensorOptions().dtype(dtype));
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (std::int64_t i = 0; i < count; ++i) {
    if (dtype == at::kDouble) {
      tensor.mutable_data_ptr<double>()[i] = uniform(engine);
    } else {
      tensor.mutable_data_ptr<float>()[i] = static_cast<float>(uniform(engine));
    }
  }
  return tensor;
}

// The published formulas for one weight, written as they are found in text books.
struct Scalar {
  double w, h0 = 0, h1 = 0;
  void Step(const SolverParameter& s, double g, double rate, int t) {
    const double mu = s.momentum();
    if (s.type() == "SGD") {
      h0 = mu * h0 + rate * g;
      w -= h0;
    } else if (s.type() == "Nesterov") {
      const double before = h0;
      h0 = mu * h0 + rate * g;
      w -= (1 + mu) * h0 - mu * before;
    } else if (s.type() == "AdaGrad") {
      h0 += g * g;
      w -= rate * g / (std::sqrt(h0) + s.delta());
    } else if (s.type() == "RMSProp") {
      h0 = s.rms_decay() * h0 + (1 - s.rms_decay()) * g * g;
      w -= rate * g / (std::sqrt(h0) + s.delta());
    } else if (s.type() == "AdaDelta") {
      h0 = mu * h0 + (1 - mu) * g * g;
      const double step = g * std::sqrt((h1 + s.delta()) / (h0 + s.delta()));
      h1 = mu * h1 + (1 - mu) * step * step;
      w -= rate * step;
    } else {
      const double beta2 = s.momentum2();
      h0 = mu * h0 + (1 - mu) * g;
      h1 = beta2 * h1 + (1 - beta2) * g * g;
      const double correction = std::sqrt(1 - std::pow(beta2, t + 1)) / (1 - std::pow(mu, t + 1));
      w -= rate * correction * h0 / (std::sqrt(h1) + s.delta());
    }
  }
};

class UpdateRuleTest : public ::testing::TestWithParam<const char*> {};

TEST_P(UpdateRuleTest, AgreesWithItsFormula) {
  for (const char* regularization : {"L1", "L2"}) {
    const SolverParameter s = Parameters(
        std::string(GetParam()) + " delta: 1e-4 regularization_type: '" + regularization + "'");
    auto rule = MakeUpdateRule(s);
    ASSERT_TRUE(rule.ok()) << rule.status().ToString();
    const std::int64_t count = 1003;
    BlobUpdate update;
    update.weights = Random(count, at::kDouble, 1);
    for (auto& history : update.history) {
      history = at::zeros({count}, at::TensorOptions().dtype(at::kDouble));
    }
    std::vector<Scalar> want;
    for (std::int64_t i = 0; i < count; ++i) {
      want.push_back({.w = update.weights.const_data_ptr<double>()[i]});
    }
    for (int t = 0; t < 5; ++t) {
      update.gradient = Random(count, at::kDouble, 100 + static_cast<unsigned>(t));
      update.iteration = static_cast<std::uint64_t>(t);
      update.rate = 0.1 / (t + 1);
      update.decay = t == 3 ? 0 : 0.05;
      update.clip = 0.75;
      update.average = 0.5;
      (*rule)->Apply(update);
      for (std::int64_t i = 0; i < count; ++i) {
        Scalar& scalar = At(want, i);
        const double sign = scalar.w > 0 ? 1 : scalar.w < 0 ? -1 : 0;
        const double pull = s.regularization_type() == "L1" ? sign : scalar.w;
        const double g = update.gradient.const_data_ptr<double>()[i] * 0.375 + update.decay * pull;
        scalar.Step(s, g, update.rate, t);
        EXPECT_NEAR(update.weights.const_data_ptr<double>()[i], scalar.w, 1e-13);
        EXPECT_NEAR(update.history[0].const_data_ptr<double>()[i], scalar.h0, 1e-13);
        EXPECT_NEAR(update.history[1].const_data_ptr<double>()[i], scalar.h1, 1e-13);
      }
    }
  }
}

TEST_P(UpdateRuleTest, DoesNotDependOnThreads) {
  const SolverParameter s = Parameters(GetParam());
  auto rule = MakeUpdateRule(s);
  ASSERT_TRUE(rule.ok());
  const std::int64_t count = 400'003;  // a dozen times what torch gives a thread at least
  at::Tensor results[2];
  for (int run = 0; run < 2; ++run) {
    at::set_num_threads(run + 1);
    BlobUpdate update;
    update.weights = Random(count, at::kFloat, 1);
    update.gradient = Random(count, at::kFloat, 2);
    for (auto& history : update.history) {
      history = at::zeros({count}, at::TensorOptions().dtype(at::kFloat));
    }
    update.rate = 0.1;
    update.decay = 0.01;
    for (int t = 0; t < 3; ++t) (*rule)->Apply(update);
    results[run] = update.weights;
  }
  EXPECT_TRUE(results[0].equal(results[1]));
}

INSTANTIATE_TEST_SUITE_P(AllSolvers, UpdateRuleTest,
                         ::testing::Values("type: 'SGD' momentum: 0.9",
                                           "type: 'Nesterov' momentum: 0.95", "type: 'AdaGrad'",
                                           "type: 'RMSProp' rms_decay: 0.9",
                                           "type: 'AdaDelta' momentum: 0.95",
                                           "type: 'Adam' momentum: 0.9 momentum2: 0.99"));

TEST(MakeUpdateRule, RefusesWithASentence) {
  const auto refusal = [](const std::string& text) {
    return MakeUpdateRule(Parameters(text)).status().message();
  };
  EXPECT_THAT(refusal("type: 'LBFGS'"),
              HasSubstr("expected one of SGD, Nesterov, AdaGrad, RMSProp, "
                        "AdaDelta, Adam"));
  EXPECT_THAT(refusal("regularization_type: 'L3'"), HasSubstr("expected L1 or L2"));
  EXPECT_THAT(refusal("type: 'AdaGrad' momentum: 0.9"), HasSubstr("takes no momentum"));
  EXPECT_THAT(refusal("type: 'RMSProp' momentum: 0.9"), HasSubstr("takes no momentum"));
  EXPECT_THAT(refusal("type: 'RMSProp' rms_decay: 1"), HasSubstr("rms_decay"));
  EXPECT_THAT(refusal("type: 'Adam' momentum: 1"), HasSubstr("momentum2"));
}

TEST(SumOfSquares, IsRightAndTheSameForAnyThreads) {
  for (const std::int64_t count : {0, 1, 7, 8192, 8193, 1'000'001}) {
    const at::Tensor x = Random(count, at::kFloat, 3);
    double want = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      want += std::pow(double{x.const_data_ptr<float>()[i]}, 2);
    }
    at::set_num_threads(1);
    const double one = SumOfSquares({x});
    at::set_num_threads(2);
    EXPECT_EQ(one, SumOfSquares({x}));
    EXPECT_NEAR(one, want, 1e-9 * (1 + want));
  }
}

}  // namespace
}  // namespace poseidon::caffe
