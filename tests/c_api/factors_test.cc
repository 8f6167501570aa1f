// SPDX-License-Identifier: Apache-2.0
// Factors and rows, products of the program and of its device, and weights, whichever the scheme.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "tests/c_api/one_process.h"

namespace {

using namespace poseidon_test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

// Rank r brings r rows of entry r and one of entry 0, but in step 3, where only rank 1 has any.
TEST(Steps, RowsOfATableComeBackFromAllRanksInTheirOrder) {
  for (const std::uint32_t servers : {0u, 1u}) {
    constexpr std::uint32_t kRanks = 3;
    Job job(kRanks, servers);
    std::future<void> server;
    if (servers > 0) {
      server = std::async(std::launch::async, [&job] {
        poseidon_options options = job.Options(1);
        options.role = POSEIDON_SERVER;
        options.requested_rank = 0;
        poseidon_cpp::Serve(options);
      });
    }
    ExpectAllOk(job.Run([](std::uint32_t rank, const poseidon_options& options) {
      Session session(options);
      Model model = session.NewModel();
      const std::uint32_t words = model.Declare(Table("words", 10, 2));
      const std::uint32_t tags = model.Declare(Table("tags", 5, 1, POSEIDON_F64));
      const std::uint32_t dense = model.Declare(Dense("dense", 1001));
      model.Commit();
      EXPECT_EQ(model.PlanText(), "words=sfb\ntags=sfb\ndense=kv\n");
      EXPECT_EQ(model.LayerPlan(words).reason, std::string("the rows of a table go to every worker as they are"));
      std::vector<float> gradient(1001, 3.0f);
      for (std::uint64_t step = 0; step < 5; ++step) {
        model.BeginStep(step);
        EXPECT_TRUE(model.TakesFactors(words, step));
        std::vector<std::int64_t> indices(step == 3 && rank != 1 ? 0 : rank + 1, rank);
        if (!indices.empty()) indices.back() = 0;
        std::vector<float> values(2 * indices.size(), static_cast<float>(3 * (rank + 1)));
        std::vector<double> one = {3.0 * rank};
        std::vector<std::int64_t> last = {4};
        poseidon_push more = POSEIDON_NEW(poseidon_push);
        more.weight = rank;  // 0 + 1 + 2
        model.PushRows(words, step, indices, View(values));
        model.PushRows(tags, step, last, View(one), &more);
        model.Push(dense, step, View(gradient));
        for (const std::uint32_t layer : {words, tags, dense}) model.Wait(layer);
        const poseidon_gathered rows = model.Gathered(words);
        const std::vector<std::int64_t> all = step == 3 ? std::vector<std::int64_t>{1, 0}
                                                        : std::vector<std::int64_t>{0, 1, 0, 2, 2, 0};
        EXPECT_EQ(std::vector<std::int64_t>(rows.indices, rows.indices + rows.count), all);
        const auto* const numbers = static_cast<const float*>(rows.values);
        EXPECT_EQ(std::vector<float>(numbers, numbers + 2 * rows.count),
                  step == 3 ? std::vector<float>(4, 2.0f)
                            : (std::vector<float>{1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3}));
        // Rank 0 weighs nothing beside the others: its row is left out.
        const poseidon_gathered weighted = model.Gathered(tags);
        ASSERT_EQ(weighted.count, 2u);
        EXPECT_DOUBLE_EQ(static_cast<const double*>(weighted.values)[0], 3.0 * 1 / 3);
        EXPECT_DOUBLE_EQ(static_cast<const double*>(weighted.values)[1], 6.0 * 2 / 3);
      }
      EXPECT_EQ(model.Statistics(words).steps, 5u);
      EXPECT_EQ(model.Statistics(words).factors.payload_bytes_sent,
                (4 * (rank + 1) + (rank == 1 ? 2 : 0)) * (kRanks - 1) * (8 + 2 * sizeof(float)));
      EXPECT_EQ(model.Statistics(words).key_value.payload_bytes_sent, 0u);
      session.Leave();
    }));
    if (server.valid()) server.get();
  }
}

// Rank r brings r rows. In step 3 only rank 1 has any, and step 4 is weighted.
TEST(Steps, FactorsThatTheProgramMultipliesComeBackFromAllRanks) {
  for (const std::string hosts : {"abc", "aab", "aba"}) {
    constexpr std::uint32_t kRanks = 3;
    Job job(kRanks);
    ExpectAllOk(job.Run([&hosts](std::uint32_t rank, poseidon_options options) {
      const std::string machine(1, hosts[rank]);
      options.host = options.machine = machine.c_str();
      options.levels = POSEIDON_LEVELS_AUTO;
      options.schemes = "fc=sfb;scattered=fsc";
      Session session(options);
      Model model = session.NewModel();
      const std::uint32_t fc = model.Declare(MultipliedByDevice("fc", 2, 3, 17));
      const std::uint32_t scattered = model.Declare(MultipliedByDevice("scattered", 2, 3, 17));
      model.Commit();
      EXPECT_EQ(model.PlanText(), "fc=sfb\nscattered=fsc\n");
      EXPECT_EQ(model.LayerPlan(fc).takes, POSEIDON_GATHERED);
      EXPECT_EQ(model.LayerPlan(scattered).takes, POSEIDON_FACTORS);
      for (std::uint64_t step = 0; step < 6; ++step) {
        model.BeginStep(step);
        EXPECT_TRUE(model.TakesGathered(fc, step));
        EXPECT_TRUE(model.TakesFactors(fc, step));
        const std::uint32_t rows = step == 3 && rank != 1 ? 0 : rank;
        std::vector<float> u(rows * 2, 6.0f);
        std::vector<float> v(rows * 3, static_cast<float>(rank));
        std::vector<float> gradient(8, 99.0f);
        std::vector<float> other(8, 99.0f);
        poseidon_factors factors = POSEIDON_NEW(poseidon_factors);
        const poseidon_view u_view = View(u);
        const poseidon_view v_view = View(v);
        factors.u = &u_view;
        factors.v = &v_view;
        factors.rows = rows;
        poseidon_push more = POSEIDON_NEW(poseidon_push);
        more.weight = step == 4 ? rank : 0;  // 0 + 1 + 2
        poseidon_status status = POSEIDON_NEW(poseidon_status);
        ASSERT_EQ(poseidon_push_factors(model.get(), fc, step, &factors, nullptr, &more, &status), POSEIDON_OK)
            << status.message;
        model.PushFactors(scattered, step, u_view, v_view, rows, View(other), &more);
        model.Wait(fc);
        model.Wait(scattered);
        EXPECT_THAT(FailureOf([&] { model.Gathered(scattered); }).message,
                    HasSubstr("the last push of layer 'scattered' was not gathered"));
        const poseidon_gathered all = model.Gathered(fc);
        ASSERT_EQ(all.count, step == 3 ? 1u : 3u);
        const auto* const us = static_cast<const float*>(all.u);
        const auto* const vs = static_cast<const float*>(all.values);
        // In the order of hosts, and of the ranks of each.
        const std::vector<float> everybody =
            hosts == "aba" ? std::vector<float>{2, 2, 2, 2, 2, 2, 1, 1, 1} : std::vector<float>{1, 1, 1, 2, 2, 2, 2, 2, 2};
        EXPECT_EQ(std::vector<float>(vs, vs + 3 * all.count), step == 3 ? std::vector<float>(3, 1.0f) : everybody);
        for (std::size_t m = 0; m < 2; ++m) {
          gradient[6 + m] = 0;
          for (std::size_t n = 0; n < 3; ++n) gradient[m * 3 + n] = 0;
          for (std::size_t k = 0; k < all.count; ++k) {
            gradient[6 + m] += us[k * 2 + m];
            for (std::size_t n = 0; n < 3; ++n) gradient[m * 3 + n] += us[k * 2 + m] * vs[k * 3 + n];
          }
        }
        // 6 * (1 * 1 + 2 * 2) / 3, the first alone, and 6 * (1 * 1 * 1 + 2 * 2 * 2) / (1 + 2).
        const float weight = step == 3 ? 2 : step == 4 ? 18 : 10;
        const float bias = step == 3 ? 2 : step == 4 ? 10 : 6;
        const std::vector<float> expected = {weight, weight, weight, weight, weight, weight, bias, bias};
        EXPECT_EQ(gradient, expected) << "step " << step;
        EXPECT_EQ(other, expected) << "step " << step;
      }
      session.Leave();
    }));
  }
}

// The factors that are forced are not sent: each worker would make its own mean.
TEST(Steps, DevicesThatMultiplyDifferentlyGetWholeGradients) {
  Job job(2);
  ExpectAllOk(job.Run([](std::uint32_t rank, poseidon_options options) {
    options.schemes = "other=sfb;mixed=sfb";
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t other = model.Declare(MultipliedByDevice("other", 2, 3, 17 + rank));
    const std::uint32_t mixed = model.Declare(rank == 0 ? WithFactors("mixed", 2, 3) : MultipliedByDevice("mixed", 2, 3, 17));
    model.Commit();
    for (const std::uint32_t layer : {other, mixed}) {
      EXPECT_STREQ(model.LayerPlan(layer).scheme_name, "kv");
      EXPECT_STREQ(model.LayerPlan(layer).reason, "the members' test products differ, although factors are forced");
    }
    model.BeginStep(0);
    std::vector<float> gradient(8, static_cast<float>(2 * rank));
    for (const std::uint32_t layer : {other, mixed}) {
      model.Push(layer, 0, View(gradient));
      model.Wait(layer);
      EXPECT_THAT(gradient, testing::Each(1.0f));
      gradient.assign(8, static_cast<float>(2 * rank));
    }
    session.Leave();
  }));
}

TEST(Steps, TheEnginesOwnProductIsUsed) {
  struct Engine {
    std::atomic<int> products{0};
    static poseidon_code Multiply(void* user, const poseidon_product* p) {
      ++static_cast<Engine*>(user)->products;
      const auto* const u = static_cast<const float*>(p->u);
      const auto* const v = static_cast<const float*>(p->v);
      auto* const out = static_cast<float*>(p->out);
      for (std::uint64_t m = 0; m < p->outputs; ++m) {
        for (std::uint64_t n = 0; n < p->inputs; ++n) {
          float sum = 0;
          for (std::uint64_t k = 0; k < p->rows; ++k)
            sum += u[k * p->outputs + m] * v[k * p->inputs + n];
          out[m * p->inputs + n] = static_cast<float>(p->alpha) * sum;
        }
      }
      return POSEIDON_OK;
    }
  };
  Job job(2);
  ExpectAllOk(job.Run([](std::uint32_t rank, poseidon_options options) {
    Engine mine;
    poseidon_engine engine = POSEIDON_NEW(poseidon_engine);
    engine.multiply = &Engine::Multiply;
    engine.user = &mine;
    engine.description = "three loops";
    options.engine = &engine;
    options.schemes = "fc=sfb";
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t fc = model.Declare(WithFactors("fc", 2, 3));
    model.Commit();
    const int before = mine.products;
    std::vector<float> u = {1.0f, static_cast<float>(rank)};
    std::vector<float> v = {2.0f, 4.0f, 6.0f};
    std::vector<float> gradient(8);
    model.BeginStep(0);
    model.PushFactors(fc, 0, View(u), View(v), 1, View(gradient));
    model.Wait(fc);
    EXPECT_EQ(gradient, (std::vector<float>{2, 4, 6, 1, 2, 3, 1, 0.5f}));
    EXPECT_EQ(mine.products, before + 1);
    session.Leave();
  }));
}

// A worker's contribution to one step.
struct Said {
  std::uint32_t rows = 0;
  std::uint32_t weight = 0;
  bool absent = false;
  bool nonsense = false;  // in every number
};
using SaidByAll = std::array<Said, 3>;

constexpr std::uint32_t kLayerOutputs = 5;
constexpr std::uint32_t kLayerInputs = 7;

// Number i of a factor of one worker in one step.
std::vector<float> FactorOf(std::uint32_t rank, const Said& said, std::uint64_t step, std::uint32_t width) {
  std::vector<float> factor(said.rows * width);
  for (std::size_t i = 0; i < factor.size(); ++i) {
    const double angle = static_cast<double>(1 + i + 100 * width + 1000 * rank) + static_cast<double>(step) / 10;
    factor[i] = said.nonsense ? std::nanf("") : static_cast<float>(std::sin(angle));
  }
  return factor;
}

// u^T v and the column sums of u, in double.
std::vector<double> ProductOf(const std::vector<float>& u, const std::vector<float>& v) {
  std::vector<double> product(kLayerOutputs * (kLayerInputs + 1));
  for (std::size_t k = 0; k < u.size() / kLayerOutputs; ++k) {
    for (std::size_t m = 0; m < kLayerOutputs; ++m) {
      const double error = u[k * kLayerOutputs + m];
      for (std::size_t n = 0; n < kLayerInputs; ++n) product[m * kLayerInputs + n] += error * v[k * kLayerInputs + n];
      product[kLayerOutputs * kLayerInputs + m] += error;
    }
  }
  return product;
}

// The mean by its definition.
std::vector<double> MeanOf(const SaidByAll& all, std::uint64_t step) {
  double weights = 0;
  for (const Said& said : all) weights += said.absent ? 0 : said.weight;
  std::vector<double> mean(kLayerOutputs * (kLayerInputs + 1));
  for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
    const Said& said = all[rank];
    if (said.absent || (weights != 0 && said.weight == 0)) continue;
    const std::vector<double> product =
        ProductOf(FactorOf(rank, said, step, kLayerOutputs), FactorOf(rank, said, step, kLayerInputs));
    const double share = weights != 0 ? said.weight / weights : 1.0 / static_cast<double>(all.size());
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += share * product[i];
  }
  return mean;
}

// Three workers push one layer by factors and one dense, the same numbers, in each step what poseidon_takes asks for;
// each mean is the definition's, and the same bits at all.
void ExpectWeightedMeans(const std::vector<SaidByAll>& steps, const char* machines) {
  std::array<std::vector<std::vector<float>>, 3> landed;
  Job job(3);
  ExpectAllOk(job.Run([&](std::uint32_t rank, poseidon_options options) {
    options.schemes = "factors=sfb";
    const std::string machine(1, machines[rank]);
    options.machine = machine.c_str();
    options.levels = machines[0] == machines[1] ? POSEIDON_LEVELS_HOST : POSEIDON_LEVELS_FLAT;
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t factors = model.Declare(WithFactors("factors", kLayerOutputs, kLayerInputs));
    const std::uint32_t dense = model.Declare(WithFactors("dense", kLayerOutputs, kLayerInputs));
    model.Commit();
    EXPECT_EQ(model.PlanText(), "factors=sfb\ndense=kv\n");
    for (std::uint64_t step = 0; step < steps.size(); ++step) {
      const Said& said = steps[step][rank];
      std::vector<float> u = FactorOf(rank, said, step, kLayerOutputs);
      std::vector<float> v = FactorOf(rank, said, step, kLayerInputs);
      const std::vector<double> own = ProductOf(u, v);
      std::vector<float> gradient(own.begin(), own.end());
      std::vector<float> product(own.size());
      poseidon_push more = POSEIDON_NEW(poseidon_push);
      more.weight = said.weight;
      more.absent = said.absent ? 1 : 0;
      model.BeginStep(step);
      model.PushFactors(factors, step, View(u), View(v), said.rows, View(product), &more);
      model.Push(dense, step, View(gradient), &more);
      model.Wait(factors);
      model.Wait(dense);
      const std::vector<double> expected = MeanOf(steps[step], step);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(product[i], expected[i], 1e-5) << "factors, step " << step << ", number " << i;
        EXPECT_NEAR(gradient[i], expected[i], 1e-5) << "dense, step " << step << ", number " << i;
      }
      landed[rank].push_back(product);
      landed[rank].push_back(gradient);
    }
    const bool combines = std::count(machines, machines + 3, machines[rank]) > 1;
    EXPECT_EQ(model.Statistics(factors).local_bytes > 0, combines);
    session.Leave();
  }));
  EXPECT_EQ(landed[1], landed[0]);
  EXPECT_EQ(landed[2], landed[0]);
}

const std::vector<SaidByAll> kWeightedSteps = {
    {{{.rows = 2, .weight = 3}, {.rows = 5, .weight = 1}, {.rows = 1, .weight = 4}}},
    {{{.rows = 2, .weight = 3}, {.rows = 0, .weight = 0}, {.rows = 1, .weight = 4}}},  // no samples
    {{{.rows = 2, .weight = 3}, {.rows = 5, .nonsense = true}, {.rows = 1, .weight = 4}}},
    {{{.rows = 2, .nonsense = true}, {.rows = 5, .weight = 7}, {.rows = 1, .nonsense = true}}},
    {{{.rows = 2, .weight = 3}, {.rows = 0, .weight = 2}, {.rows = 1, .weight = 4}}},  // samples that make no rows
    {{{.rows = 2, .weight = 8}, {.rows = 5, .weight = 8}, {.rows = 1, .weight = 8}}},
    {{{.rows = 2}, {.rows = 5}, {.rows = 1}}},
    {{{.rows = 2, .weight = 3}, {.rows = 5, .weight = 9, .absent = true}, {.rows = 1, .weight = 4}}},
    {{{.rows = 2, .weight = 9, .absent = true}, {.rows = 5, .weight = 2}, {.rows = 1, .weight = 4}}},
    {{{.rows = 2}, {.rows = 5, .absent = true, .nonsense = true}, {.rows = 0}}},
    {{{.absent = true}, {.absent = true}, {.absent = true}}},
};

TEST(Weights, MakeTheSameMeanOfFactorsAsOfGradients) { ExpectWeightedMeans(kWeightedSteps, "abc"); }

// Ranks 0 and 1 combine before anything is sent; rank 2 is alone on its host.
TEST(Weights, CountByWorkerWhereHostsCombine) { ExpectWeightedMeans(kWeightedSteps, "aab"); }

// The expected mean of the tests above does depend on the weights.
TEST(Weights, ChangeTheMean) {
  const std::vector<double> weighted = MeanOf(kWeightedSteps[0], 0);
  const std::vector<double> unweighted = MeanOf({{{.rows = 2}, {.rows = 5}, {.rows = 1}}}, 0);
  for (std::size_t i = 0; i < weighted.size(); ++i) EXPECT_GT(std::abs(weighted[i] - unweighted[i]), 1e-4) << i;
}

}  // namespace
