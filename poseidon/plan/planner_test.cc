// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "poseidon/base/random.h"
#include "poseidon/plan/plan_model.h"
#include "poseidon/plan/schemes.h"

namespace poseidon::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

LayerSpec Convolution(std::string name, std::uint64_t elements, std::uint32_t position) {
  return {.name = std::move(name), .elements = elements, .forward_position = position};
}
LayerSpec FullyConnected(std::string name, std::uint64_t outputs, std::uint64_t inputs,
                         std::uint32_t position) {
  return {.name = std::move(name),
          .elements = outputs * inputs + outputs,
          .forward_position = position,
          .factors = FactorShape{outputs, inputs, true}};
}

ClusterSpec Cluster(std::uint32_t workers, double bandwidth, double flops) {
  ClusterSpec cluster;
  cluster.workers = workers;
  cluster.bandwidth = bandwidth;
  cluster.rebuild_flops = flops;
  return cluster;
}

// LeNet's learnable layers on `workers` workers with `rows` samples each.
std::vector<LayerSpec> LeNet() {
  return {Convolution("conv1", 520, 0), Convolution("conv2", 25'050, 1),
          FullyConnected("ip1", 500, 800, 2), FullyConnected("ip2", 10, 500, 3)};
}
std::vector<LayerMeasurement> Measured(const std::vector<LayerSpec>& layers, std::uint32_t workers,
                                       std::uint32_t rows, double forward, double backward) {
  LayerMeasurement one;
  one.forward_seconds = forward;
  one.backward_seconds = backward;
  one.rows.assign(workers, rows);
  return std::vector<LayerMeasurement>(layers.size(), one);
}

Plan MustPlan(std::span<const LayerSpec> layers, const ClusterSpec& cluster,
              std::span<const LayerMeasurement> measured, const PlanOptions& options = {}) {
  auto plan = MakePlan(layers, cluster, measured, options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return std::move(plan).value();
}

TEST(BytesPolicy, IsThePublishedRule) {
  // With S = P: factors iff K P <= 2 M N / (M + N). Thresholds of K P from the published shapes.
  struct Case {
    std::uint64_t outputs, inputs, threshold;
  };
  for (const Case& c : {Case{4096, 4096, 4096}, Case{4096, 25088, 7042}, Case{21841, 4096, 6898},
                        Case{1000, 4096, 1607}, Case{1000, 1024, 1011}}) {
    const std::vector<LayerSpec> layers = {FullyConnected("fc", c.outputs, c.inputs, 0)};
    for (const std::uint32_t workers : {2u, 3u, 8u}) {
      for (const std::uint64_t k : {c.threshold / workers, c.threshold / workers + 1}) {
        const auto measured = Measured(layers, workers, static_cast<std::uint32_t>(k), 1, 1);
        const Plan plan =
            MustPlan(layers, Cluster(workers, 1e9, 1e12), measured, {.policy = Policy::kBytes});
        EXPECT_EQ(plan.layers[0].scheme == Scheme::kFactorBroadcast, k * workers <= c.threshold)
            << c.outputs << " x " << c.inputs << ", K = " << k << ", P = " << workers;
      }
    }
  }
}

TEST(BytesPolicy, CountsTheBusiestOfUnequalWorkersAndServers) {
  // M N / (M + N) = 50 rows each way is what 2 workers move of a 100 x 100 layer.
  const std::vector<LayerSpec> layers = {FullyConnected("fc", 100, 100, 0)};
  auto measured = Measured(layers, 2, 50, 1, 1);
  const auto scheme = [&](const ClusterSpec& cluster) {
    return MustPlan(layers, cluster, measured, {.policy = Policy::kBytes}).layers[0].scheme;
  };
  EXPECT_EQ(scheme(Cluster(2, 1e9, 1e12)), Scheme::kFactorBroadcast);
  measured[0].rows = {51, 50};
  EXPECT_EQ(scheme(Cluster(2, 1e9, 1e12)), Scheme::kKeyValue);
  // One server of its own for two workers moves 4 M N.
  ClusterSpec cluster = Cluster(2, 1e9, 1e12);
  cluster.servers = 1;
  EXPECT_EQ(scheme(cluster), Scheme::kFactorBroadcast);
}

TEST(Strategy, SendsNoFactorsButWhereTheyAreForced) {
  const auto layers = LeNet();
  const auto measured = Measured(layers, 4, 64, 2e-3, 4e-3);
  const ClusterSpec slow = Cluster(4, 20e6, 1e11);
  const Plan dense = MustPlan(layers, slow, measured, {.only_dense = true});
  EXPECT_EQ(dense.layers[2].scheme, Scheme::kKeyValue);
  EXPECT_THAT(dense.layers[2].reason, HasSubstr("the strategy sends no factors"));
  EXPECT_DOUBLE_EQ(dense.step_seconds, dense.dense_step_seconds);
  const Plan forced = MustPlan(layers, slow, measured, {.forced = {{layers[2].name, Scheme::kFactorBroadcast}}, .only_dense = true});
  EXPECT_EQ(forced.layers[2].scheme, Scheme::kFactorBroadcast);
}

TEST(Strategy, PredictsTheStepThatItMakes) {
  const auto layers = LeNet();
  const auto measured = Measured(layers, 4, 64, 2e-3, 4e-3);
  const ClusterSpec slow = Cluster(4, 20e6, 1e11);
  const PlanOptions only_dense{.only_dense = true};
  PlanOptions waits = only_dense;
  waits.waits_for_all = true;
  const Plan plan = MustPlan(layers, slow, measured, waits);
  EXPECT_DOUBLE_EQ(plan.step_seconds, plan.wfbp_seconds);
  EXPECT_GT(plan.step_seconds, 1.01 * MustPlan(layers, slow, measured, only_dense).step_seconds);
  // Whole layers at one owner: its link has to carry all workers' gradients of the largest one.
  PlanOptions whole = only_dense;
  whole.placement = Placement::kWhole;
  EXPECT_GT(MustPlan(layers, slow, measured, whole).step_seconds, 1.5 * MustPlan(layers, slow, measured, only_dense).step_seconds);
}

TEST(TimePolicy, TakesFactorsWhereTheLinkIsSlowAndSlicesWhereItIsFast) {
  const auto layers = LeNet();
  const auto measured = Measured(layers, 4, 64, 2e-3, 4e-3);
  const Plan slow = MustPlan(layers, Cluster(4, 20e6, 1e11), measured);
  EXPECT_EQ(slow.layers[2].scheme, Scheme::kFactorBroadcast);
  EXPECT_THAT(slow.layers[2].reason, HasSubstr("with slices"));
  EXPECT_LT(slow.step_seconds, slow.dense_step_seconds);
  EXPECT_GE(slow.wfbp_seconds, slow.step_seconds);

  const Plan fast = MustPlan(layers, Cluster(4, 5e9, 1e11), measured);
  EXPECT_EQ(fast.layers[2].scheme, Scheme::kKeyValue);
  EXPECT_EQ(fast.layers[0].reason, "its gradient is not a product of factors");
  EXPECT_THAT(fast.layers[2].reason, HasSubstr(", with scattered factors 24.0 ms and no gain: "));
  EXPECT_EQ(fast.step_seconds, fast.dense_step_seconds);
  EXPECT_NEAR(fast.speedup, 4, 0.01);
  EXPECT_DOUBLE_EQ(fast.single_worker_seconds, 24e-3);
}

// Under autocast a layer's gradient comes whole: no rows were seen, and factors of none are not free.
TEST(TimePolicy, NoRowsAtAllAreRowsThatAreNotKnown) {
  const auto layers = LeNet();
  ClusterSpec slow{.workers = 2, .bandwidth = 1e6, .rebuild_flops = 1e12};
  for (const Policy policy : {Policy::kTime, Policy::kBytes}) {
    PlanOptions options;
    options.policy = policy;
    EXPECT_EQ(MustPlan(layers, slow, Measured(layers, 2, 8, 1e-3, 1e-3), options).layers[2].scheme,
              Scheme::kFactorBroadcast);
    const Plan plan = MustPlan(layers, slow, Measured(layers, 2, 0, 1e-3, 1e-3), options);
    EXPECT_EQ(plan.layers[2].scheme, Scheme::kKeyValue);
    EXPECT_EQ(plan.layers[2].reason, "its rows are not known");
  }
}

TEST(TimePolicy, OfEqualPlansTakesSlices) {
  // The few bytes hide entirely and rebuilding is free: nothing is gained, so slices.
  const auto layers = LeNet();
  const Plan plan = MustPlan(layers, Cluster(4, 5e9, 0), Measured(layers, 4, 64, 1, 2));
  for (const LayerPlan& layer : plan.layers) EXPECT_EQ(layer.scheme, Scheme::kKeyValue);
  EXPECT_THAT(plan.layers[2].reason, HasSubstr("would not shorten the step"));
}

// As VGG19-22K on 8 workers at 10 Gbit/s: with slices for the widest layer the bound is one hundredth
// lower, and the link is busy for most of the step. Emulated, that plan took 5 % longer than its bound,
// the one with factors 0.1 %.
TEST(TimePolicy, HiddenBytesAreNotFree) {
  const std::vector<LayerSpec> layers = {Convolution("conv", 20'000, 0),
                                         FullyConnected("fc6", 4096, 25'088, 1),
                                         FullyConnected("fc8", 21'841, 4096, 2)};
  auto measured = Measured(layers, 8, 32, 0.05, 0.1);
  measured[0].backward_seconds = 0.6;
  // The other wide layer has one scheme in all of them.
  const Plan plan = MustPlan(layers, Cluster(8, 1.19e9, 4.4e12), measured,
                             {.forced = {{"fc6", Scheme::kFactorBroadcast}}});
  EXPECT_EQ(plan.layers[2].scheme, Scheme::kFactorBroadcast);
  EXPECT_THAT(plan.layers[2].reason, HasSubstr("but more bytes to hide: slices"));
  const Plan slices = MustPlan(layers, plan.cluster, measured,
                               {.forced = {{"fc6", Scheme::kFactorBroadcast}, {"fc8", Scheme::kKeyValue}}});
  EXPECT_LT(slices.step_seconds, plan.step_seconds);
  EXPECT_LT(plan.step_seconds, 1.02 * slices.step_seconds);
  EXPECT_GT(slices.layers[2].bytes_sent, 20 * plan.layers[2].bytes_sent);
}

// As BERT on 2 workers at twice its ridge: while the embedding's bytes travel the processor idles, and
// products moved from backward into that time would shorten the bound. But their factors land no
// sooner than the embedding, behind which they wait. Simulated, the plan that this bound likes best took
// 351 ms and slices 334 ms.
TEST(TimePolicy, IdleTimeBehindTheFirstLayerIsNoRoomForProducts) {
  std::vector<LayerSpec> layers = {Convolution("embedding", 23'440'896, 0)};
  for (std::uint32_t i = 1; i <= 12; ++i) {
    layers.push_back(FullyConnected("fc" + std::to_string(i), 3072, 768, i));
  }
  const auto measured = Measured(layers, 2, 4096, 7.5e-3, 15e-3);
  const ClusterSpec cluster = Cluster(2, 2.92e9, 7.77e12);
  const Plan plan = MustPlan(layers, cluster, measured);
  for (const LayerPlan& layer : plan.layers) EXPECT_EQ(layer.scheme, Scheme::kKeyValue);

  const auto slices = AssignSlices(layers, 2);
  const StepModel model(layers, slices, cluster, measured);
  std::vector<Scheme> schemes(layers.size(), Scheme::kKeyValue);
  for (const std::size_t i : {5, 8, 11}) schemes[i] = Scheme::kFactorBroadcast;
  EXPECT_LT(JudgedSeconds(model.Bound(schemes)), 0.99 * plan.step_seconds);
  EXPECT_GT(model.Predict(schemes).step, plan.step_seconds);
}

struct RandomJob {
  std::vector<LayerSpec> layers;
  std::vector<LayerMeasurement> measured;
  ClusterSpec cluster;
};

// One draw a statement: which of two arguments draws first is the compiler's choice, and the jobs would be too.
RandomJob MakeRandomJob(Random& random, std::uint32_t most_layers = 9) {
  const auto workers = static_cast<std::uint32_t>(random.Between(2, 16));
  const double bandwidth = std::pow(10, 7 + 3 * random.Unit());
  const double rebuild_flops = std::pow(10, 10 + 4 * random.Unit());
  RandomJob job;
  job.cluster = Cluster(workers, bandwidth, rebuild_flops);
  job.cluster.latency = random.Unit() * 1e-3;
  if (random.Below(3) == 0) job.cluster.cpu_seconds_per_wire_byte = 1e-9 * random.Unit();
  const auto count = static_cast<std::uint32_t>(random.Between(1, most_layers));
  const auto rows = static_cast<std::uint32_t>(random.Between(1, 256));
  std::vector<std::uint32_t> places(count);  // in forward order
  std::iota(places.begin(), places.end(), 0);
  std::shuffle(places.begin(), places.end(), random);
  for (const std::uint32_t place : places) {
    const std::string name = "l" + std::to_string(place);
    if (random.Below(3) == 0) {
      job.layers.push_back(Convolution(name, random.Between(1, 2'000'000), place));
    } else {
      const std::uint64_t outputs = random.Between(1, 4096);
      job.layers.push_back(FullyConnected(name, outputs, random.Between(1, 4096), place));
    }
    LayerMeasurement measured;
    measured.forward_seconds = 0.02 * random.Unit();
    measured.backward_seconds = 0.04 * random.Unit();
    measured.rows.assign(workers, rows);
    if (random.Below(4) == 0) measured.rows[0] = static_cast<std::uint32_t>(random.Below(256));
    job.measured.push_back(measured);
  }
  return job;
}

StepModel ModelOf(const RandomJob& job) {
  return StepModel(job.layers, AssignSlices(job.layers, static_cast<std::uint16_t>(job.cluster.workers)),
                   job.cluster, job.measured);
}

// All choices of the layers from `at` on, the least judged time. A bound is soon said and often enough.
void TryFrom(std::size_t at, const RandomJob& job, const StepModel& model, std::vector<Scheme>& schemes,
             double& best) {
  if (at == job.layers.size()) {
    if (JudgedSeconds(model.Bound(schemes)) < best) best = std::min(best, JudgedSeconds(model.Predict(schemes)));
    return;
  }
  for (const Scheme scheme : SchemesFor(job.layers[at])) {
    schemes[at] = scheme;
    TryFrom(at + 1, job, model, schemes, best);
  }
}
double BruteForce(const RandomJob& job) {
  const StepModel model = ModelOf(job);
  std::vector<Scheme> schemes(job.layers.size());
  double best = 1e300;
  TryFrom(0, job, model, schemes, best);
  return best;
}

double JudgedSecondsOf(const RandomJob& job, const Plan& plan) {
  return JudgedSeconds(ModelOf(job).Predict(SchemesOf(plan)));
}

TEST(TimePolicy, FindsTheBestOfAllChoices) {
  Random random(8);
  int mixed = 0;
  int all_three = 0;
  for (int i = 0; i < 700; ++i) {
    const RandomJob job = MakeRandomJob(random);
    const Plan plan = MustPlan(job.layers, job.cluster, job.measured);
    const double best = BruteForce(job);
    // Step times closer than measurements can show count as equal, and then slices are taken. Of more than 1024
    // combinations the best is not always found.
    const auto open = std::count_if(job.layers.begin(), job.layers.end(),
                                    [](const LayerSpec& l) { return l.factors.has_value(); });
    ASSERT_LE(JudgedSecondsOf(job, plan), best * (open <= 6 ? 1.005 : 1.01)) << "job " << i;
    EXPECT_LE(plan.step_seconds, 1.033 * plan.dense_step_seconds);
    EXPECT_EQ(plan, MustPlan(job.layers, job.cluster, job.measured));
    std::set<Scheme> used;
    for (const LayerPlan& layer : plan.layers) used.insert(layer.scheme);
    mixed += used.size() > 1 ? 1 : 0;
    all_three += used.size() == 3 ? 1 : 0;
  }
  EXPECT_GT(mixed, 100);  // the jobs are not trivial
  EXPECT_GT(all_three, 20);
}

TEST(TimePolicy, ComesCloseToTheBestOfManyLayers) {
  Random random(10);
  double worst = 1;
  for (int searched = 0; searched < 15;) {
    const RandomJob job = MakeRandomJob(random, 15);
    const auto open = std::count_if(job.layers.begin(), job.layers.end(),
                                    [](const LayerSpec& l) { return l.factors.has_value(); });
    if (open <= 6 || open > 8) continue;  // 3^6 combinations are tried by the planner too
    ++searched;
    const Plan plan = MustPlan(job.layers, job.cluster, job.measured);
    const double best = BruteForce(job);
    worst = std::max(worst, JudgedSecondsOf(job, plan) / best);
  }
  EXPECT_LT(worst, 1.01);
  RecordProperty("worst", std::to_string(worst));
}

// As the last layer of VGG19-22K with 512 rows on 16 workers: of scattered factors each worker sends 0.50 GB, of
// factors 0.80 GB and of slices 0.67 GB; and each multiplies for a sixteenth of the outputs.
TEST(TimePolicy, ScattersFactorsOfManyOutputsAndRows) {
  const std::vector<LayerSpec> layers = {Convolution("conv", 20'000, 0),
                                         FullyConnected("fc8", 21'841, 4096, 1)};
  const ClusterSpec cluster = Cluster(16, 1.19e9, 4.4e12);
  const Plan plan = MustPlan(layers, cluster, Measured(layers, 16, 512, 0.05, 0.1));
  EXPECT_EQ(plan.layers[1].scheme, Scheme::kFactorScatter);
  EXPECT_THAT(plan.layers[1].reason, HasSubstr("with slices"));
  EXPECT_THAT(plan.layers[1].reason, HasSubstr(", scattered factors 504 MB, rebuild "));
  EXPECT_LT(plan.step_seconds, plan.dense_step_seconds);
  for (const Scheme other : {Scheme::kKeyValue, Scheme::kFactorBroadcast}) {
    const Plan forced =
        MustPlan(layers, cluster, Measured(layers, 16, 512, 0.05, 0.1), {.forced = {{"fc8", other}}});
    EXPECT_LT(plan.bytes_sent, forced.bytes_sent);
    EXPECT_LT(plan.step_seconds, forced.step_seconds);
  }
  // Few rows, whose broadcast is less than any slice; and so many that slices are less than factors.
  EXPECT_EQ(MustPlan(layers, cluster, Measured(layers, 16, 32, 0.05, 0.1)).layers[1].scheme,
            Scheme::kFactorBroadcast);
  EXPECT_EQ(MustPlan(layers, cluster, Measured(layers, 16, 2048, 0.05, 0.1)).layers[1].scheme,
            Scheme::kKeyValue);
  // The published rule knows the other two alone.
  EXPECT_EQ(MustPlan(layers, cluster, Measured(layers, 16, 512, 0.05, 0.1), {.policy = Policy::kBytes})
                .layers[1]
                .scheme,
            Scheme::kKeyValue);
}

TEST(Plan, PredictsTheExactPayload) {
  Random random(9);
  for (int i = 0; i < 300; ++i) {
    const RandomJob job = MakeRandomJob(random);
    const Plan plan = MustPlan(job.layers, job.cluster, job.measured);
    const auto slices = AssignSlices(job.layers, static_cast<std::uint16_t>(job.cluster.workers));
    for (std::size_t l = 0; l < job.layers.size(); ++l) {
      const NodeBytes busiest =
          BusiestWorker(PayloadOf(job.layers[l], slices[l], plan.layers[l], job.cluster));
      EXPECT_EQ(plan.layers[l].bytes_sent, busiest.sent);
      EXPECT_EQ(plan.layers[l].bytes_received, busiest.received);
    }
  }
}

TEST(Options, ForceALayer) {
  const auto layers = LeNet();
  const auto measured = Measured(layers, 4, 64, 2e-3, 4e-3);
  const PlanOptions options{
      .forced = {{"ip1", Scheme::kKeyValue}, {"ip2", Scheme::kFactorBroadcast}}};
  const Plan plan = MustPlan(layers, Cluster(4, 20e6, 1e11), measured, options);
  EXPECT_EQ(plan.layers[2].scheme, Scheme::kKeyValue);
  EXPECT_EQ(plan.layers[3].scheme, Scheme::kFactorBroadcast);
  EXPECT_TRUE(plan.layers[2].forced);
  EXPECT_FALSE(plan.layers[1].forced);
  EXPECT_THAT(plan.layers[3].reason, HasSubstr("forced by the user"));
}

TEST(Options, MistakesAreNamed) {
  const auto layers = LeNet();
  const auto measured = Measured(layers, 4, 64, 2e-3, 4e-3);
  const ClusterSpec cluster = Cluster(4, 1e9, 1e11);
  const auto message = [&](const PlanOptions& options) {
    const auto plan = MakePlan(layers, cluster, measured, options);
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
    return plan.status().message();
  };
  EXPECT_EQ(message({.forced = {{"ip9", Scheme::kKeyValue}}}),
            "a scheme is given for unknown layer 'ip9'; declared layers: conv1, conv2, ip1, ip2");
  EXPECT_EQ(message({.forced = {{"conv1", Scheme::kFactorBroadcast}}}),
            "scheme sfb is given for layer 'conv1', whose gradient is not a product of factors; "
            "layers with factors: ip1, ip2");
  EXPECT_FALSE(MakePlan(layers, cluster, Measured(layers, 3, 64, 1, 1), {}).ok());
  EXPECT_FALSE(MakePlan(layers, cluster, {}, {}).ok());
  EXPECT_FALSE(MakePlan(layers, cluster, Measured(layers, 4, 64, std::nan(""), 1), {}).ok());
  EXPECT_THAT(MakePlan(layers, Cluster(4, HUGE_VAL, 0), measured, {}).status().message(),
              HasSubstr("the bandwidth of the cluster is inf"));
}

// Its factors go to one member that multiplies, or nowhere.
TEST(Options, ALayerWhoseProductsDifferIsNotMultipliedEverywhere) {
  const auto layers = LeNet();
  const auto measured = Measured(layers, 4, 64, 2e-3, 4e-3);
  PlanOptions options{.products_agree = {true, true, false, true}};
  const auto ip1 = [&] { return MustPlan(layers, Cluster(4, 20e6, 1e11), measured, options).layers[2]; };
  EXPECT_EQ(ip1().scheme, Scheme::kFactorScatter);
  EXPECT_THAT(ip1().reason, AllOf(HasSubstr("with slices"), HasSubstr("; the members' test products differ")));
  options.policy = Policy::kBytes;
  EXPECT_EQ(ip1().scheme, Scheme::kKeyValue);
  EXPECT_EQ(ip1().reason, "the members' test products differ");
  for (const Policy policy : {Policy::kBytes, Policy::kTime}) {
    options.policy = policy;
    options.forced = {{"ip1", Scheme::kFactorBroadcast}};
    EXPECT_EQ(ip1().scheme, Scheme::kKeyValue);
    EXPECT_EQ(ip1().reason, "the members' test products differ, although factors are forced");
    options.forced = {{"ip1", Scheme::kFactorScatter}};
    EXPECT_EQ(ip1().scheme, Scheme::kFactorScatter);
    EXPECT_TRUE(ip1().forced);
  }
}

// Not even where it would be chosen: what is known is the rate of devices, and an owner multiplies on its host.
TEST(Options, AProductOfDevicesIsNotMadeByOwnersUnlessForced) {
  auto layers = LeNet();
  const auto measured = Measured(layers, 4, 64, 2e-3, 4e-3);
  PlanOptions options{.products_agree = {true, true, false, true}};
  const auto ip1 = [&] { return MustPlan(layers, Cluster(4, 20e6, 1e11), measured, options).layers[2].scheme; };
  EXPECT_EQ(ip1(), Scheme::kFactorScatter);
  layers[2].factors->by_device = true;
  EXPECT_EQ(ip1(), Scheme::kKeyValue);
  options.forced = {{"ip1", Scheme::kFactorScatter}};
  EXPECT_EQ(ip1(), Scheme::kFactorScatter);
  options = {};
  EXPECT_EQ(ip1(), Scheme::kFactorBroadcast);
}

LayerSpec Table(std::string name, std::uint64_t entries, std::uint64_t width, std::uint32_t position) {
  return {.name = std::move(name),
          .elements = entries * width,
          .forward_position = position,
          .factors = FactorShape{.outputs = entries, .inputs = width, .table = true}};
}

// Even where whole gradients would be fewer bytes, in the first plan, and alone.
TEST(Tables, AlwaysGoAsRows) {
  const std::vector<LayerSpec> layers = {Table("words", 10, 4, 0), Convolution("conv", 520, 1)};
  for (const std::uint32_t workers : {1u, 4u}) {
    const auto measured = Measured(layers, workers, 1000, 1e-3, 1e-3);
    for (const Policy policy : {Policy::kTime, Policy::kBytes}) {
      const Plan plan = MustPlan(layers, Cluster(workers, 1e9, 1e12), measured,
                                 {.policy = policy, .forced = {{"words", Scheme::kFactorBroadcast}}});
      EXPECT_EQ(plan.layers[0].scheme, Scheme::kFactorBroadcast);
      EXPECT_EQ(plan.layers[0].reason, "the rows of a table go to every worker as they are");
      EXPECT_EQ(plan.layers[0].bytes_sent, (workers - 1) * 1000 * (8 + 4 * 4));
      EXPECT_EQ(plan.layers[0].rebuild_seconds, 0);
      EXPECT_EQ(plan.layers[1].scheme, Scheme::kKeyValue);
    }
    EXPECT_EQ(ProvisionalPlan(layers, Cluster(workers, 1e9, 1e12), {}).value().layers[0].scheme, Scheme::kFactorBroadcast);
  }
  const auto refused = MakePlan(layers, Cluster(2, 1e9, 1e12), Measured(layers, 2, 1, 1, 1),
                                {.forced = {{"words", Scheme::kKeyValue}}});
  EXPECT_EQ(refused.status().message(),
            "scheme kv is given for layer 'words', a table whose rows always go to every worker, expected none or sfb");
}

TEST(ProvisionalPlan, IsKeyValueUnlessForced) {
  const auto layers = LeNet();
  const ClusterSpec cluster = Cluster(4, 1e9, 1e11);
  const Plan plan = ProvisionalPlan(layers, cluster, {}).value();
  ASSERT_EQ(plan.layers.size(), 4u);
  for (const LayerPlan& layer : plan.layers) {
    EXPECT_EQ(layer.scheme, Scheme::kKeyValue);
    EXPECT_EQ(layer.transfer_seconds, 0) << "nothing was measured";
    EXPECT_EQ(layer.rebuild_seconds, 0);
  }
  EXPECT_EQ(plan.layers[2].reason, "until the first steps have been measured");
  // 400,500 elements and twice the largest slice, 6,258 units of 16.
  EXPECT_EQ(plan.layers[2].bytes_sent, (400'500u + 2 * 6'258 * 16) * 4);
  EXPECT_EQ(plan.step_seconds, 0);
  const Plan forced =
      ProvisionalPlan(layers, cluster, {.forced = {{"ip1", Scheme::kFactorBroadcast}}}).value();
  EXPECT_EQ(forced.layers[2].scheme, Scheme::kFactorBroadcast);
  EXPECT_FALSE(
      ProvisionalPlan(layers, cluster, {.forced = {{"ip7", Scheme::kFactorBroadcast}}}).ok());
}

TEST(SingleWorker, HasNothingToBroadcast) {
  const auto layers = LeNet();
  const Plan plan = MustPlan(layers, Cluster(1, 1e9, 1e11), Measured(layers, 1, 64, 1e-3, 2e-3),
                             {.policy = Policy::kBytes});
  EXPECT_EQ(plan.layers[2].scheme, Scheme::kKeyValue);
  EXPECT_EQ(plan.layers[2].bytes_sent, 0u);
  EXPECT_DOUBLE_EQ(plan.speedup, 1);
}

}  // namespace
}  // namespace poseidon::plan
