// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/simulate/scene.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>

namespace poseidon::simulate {
namespace {

using std::chrono::microseconds;

replay::ScaledLayer Layer(std::uint64_t elements, double forward, double backward) {
  replay::ScaledLayer layer;
  layer.spec.elements = elements;
  layer.forward_seconds = forward;
  layer.backward_seconds = backward;
  return layer;
}

replay::ScaledLayer FullyConnected(std::uint64_t outputs, std::uint64_t inputs, std::uint32_t rows,
                                   double seconds) {
  replay::ScaledLayer layer = Layer(outputs * inputs + outputs, seconds, 2 * seconds);
  layer.spec.factors = plan::FactorShape{outputs, inputs, true};
  layer.rows = rows;
  layer.product_seconds = seconds;
  return layer;
}

replay::ScaledModel Model(std::vector<replay::ScaledLayer> layers, double product_flops = 0) {
  for (std::uint32_t i = 0; i < layers.size(); ++i) {
    layers[i].spec.name = "layer" + std::to_string(i);
    layers[i].spec.forward_position = i;
  }
  return {.layers = std::move(layers), .product_flops = product_flops};
}

// Convolutions with much computing and few numbers, then fully connected layers with many.
replay::ScaledModel Convolutional() {
  return Model({Layer(40'000, 0.010, 0.020), Layer(200'000, 0.010, 0.020),
                Layer(800'000, 0.010, 0.020), FullyConnected(1000, 4000, 16, 0.002),
                FullyConnected(1000, 1000, 16, 0.001)});
}

plan::PlanOptions KeyValueOnly(const replay::ScaledModel& model) {
  return replay::PlanningOf({"time", "kv"}, {}, model).value();
}

// Whole gradients alone, from `workers` of them.
Scene KeyValueScene(replay::ScaledModel model, std::uint16_t workers) {
  Scene scene;
  scene.model = std::move(model);
  scene.mode = replay::ModeNamed("poseidon").value();
  scene.planning = KeyValueOnly(scene.model);
  scene.unevenness.workers = workers;
  return scene;
}

// A network as near to a fluid as messages with headers allow.
Scene Fluid(replay::ScaledModel model, std::uint16_t workers, double bytes_per_second) {
  Scene scene;
  scene.model = std::move(model);
  scene.mode = replay::ModeNamed("poseidon").value();
  scene.unevenness.workers = workers;
  scene.bytes_per_second = bytes_per_second;
  scene.flow = messaging::Flow{16 * 1024, 16 * 1024, 16 * 1024};
  scene.segment_bytes = 4 * 1024;
  return scene;
}

Findings Played(const Scene& scene) {
  Result<Findings> found = Play(scene);
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() ? *std::move(found) : Findings{};
}

// Rates around the ridge, where the transfers take as long as the computing.
class FluidLimit : public testing::TestWithParam<std::tuple<int, double>> {};

TEST_P(FluidLimit, StepsReachTheBound) {
  const auto [workers, ridge] = GetParam();
  const replay::ScaledModel model = Convolutional();
  double bytes = 0;
  for (const replay::ScaledLayer& layer : model.layers) {
    bytes += 2.0 * static_cast<double>(layer.spec.bytes()) * (workers - 1) / workers;
  }
  Scene scene =
      Fluid(model, static_cast<std::uint16_t>(workers), ridge * bytes / model.step_seconds());
  scene.planning = KeyValueOnly(model);
  scene.steps = 2;  // all are alike
  const Findings found = Played(scene);
  for (const double seconds : found.step_seconds) {
    EXPECT_GE(seconds, 0.9999 * found.bounds.least);
    EXPECT_LE(seconds, 1.02 * found.bounds.least) << "waited for layer 0 for "
                                                  << found.waited_seconds[0] << " s";
  }
  EXPECT_LE(found.max_to_mean, 1.01);
}

INSTANTIATE_TEST_SUITE_P(Rates, FluidLimit,
                         testing::Combine(testing::Values(2, 3, 4, 8),
                                          testing::Values(0.5, 1.0, 2.0)));

// A link that is never full: how long the I/O thread takes is then the step, unless it is two threads or shares one core.
TEST(Scene, AnIoThreadBoundsTheStep) {
  Scene scene = KeyValueScene(Model(std::vector<replay::ScaledLayer>(20, Layer(1'000'000, 0.001, 0.002))), 3);
  scene.bytes_per_second = 1e11;
  const double bytes = 2.0 * 2 / 3 * 4 * 20e6;  // that a worker sends, and receives
  scene.costs = {.seconds_per_byte_out = 0.12 / bytes, .seconds_per_byte_in = 0.12 / bytes};
  const Findings one = Played(scene);
  EXPECT_NEAR(one.io_seconds, 0.24, 0.001);
  EXPECT_NEAR(one.median_seconds(), 0.24, 0.012);
  EXPECT_NEAR(one.plan.step_seconds, 0.24, 0.001);  // as predicted
  scene.lanes = 2;
  const Findings two = Played(scene);
  EXPECT_NEAR(two.io_seconds, 0.24, 0.001);
  EXPECT_NEAR(two.median_seconds(), 0.12, 0.012);
  EXPECT_NEAR(two.plan.step_seconds, 0.12, 0.001);
  scene.lanes = 1;
  scene.shared_cores = 1;
  EXPECT_NEAR(Played(scene).median_seconds(), 3 * 0.24, 0.036);
  // Two cores compute and serve the network.
  scene.shared_cores = 0;
  scene.computing_cores = 2;
  EXPECT_NEAR(Played(scene).median_seconds(), 0.24, 0.012);
  scene.costs = {.seconds_per_byte_out = 0.01 / bytes, .seconds_per_byte_in = 0.01 / bytes};
  EXPECT_NEAR(Played(scene).median_seconds(), 0.06 + 0.01, 0.002);
}

// Many even layers on a link that is busy all the time: what is committed when the last gradients come
// is in their way twice, and the members commit less by then.
TEST(Scene, LittleIsCommittedWhenBackwardEnds) {
  Scene scene = KeyValueScene(Model(std::vector<replay::ScaledLayer>(50, Layer(75'000, 0.0017, 0.0034))), 4);
  scene.bytes_per_second =
      2 * 0.75 * 4 * 50 * 75'000 / scene.model.step_seconds();
  scene.segment_bytes = 8 * 1024;
  scene.latency = std::chrono::microseconds(40);
  const Findings found = Played(scene);
  EXPECT_LE(found.median_seconds(), 1.02 * found.bounds.least);
  scene.flow = messaging::FlowFor({scene.bytes_per_second, 40e-6}, 3);
  const Findings fixed = Played(scene);
  EXPECT_GT(fixed.waited_seconds[0], 1.5 * found.waited_seconds[0]);
}

// A layer with many bytes that is needed late: its transfer takes the time that there is, and not the whole link at once.
TEST(Scene, TransfersThatHaveTimeAreSpreadOverTheStep) {
  std::vector<replay::ScaledLayer> layers(5, Layer(400, 0.010, 0.020));
  layers.push_back(Layer(2'000'000, 0.010, 0.020));
  Scene scene = KeyValueScene(Model(std::move(layers)), 4);
  scene.bytes_per_second = 400e6;
  scene.segment_bytes = 4 * 1024;
  scene.latency = microseconds(40);
  const auto burst = [&](const Findings& found) {
    return found.peak_to_mean * found.mean_bytes / found.median_seconds() / scene.bytes_per_second;
  };
  const Findings spread = Played(scene);
  EXPECT_LE(spread.median_seconds(), 1.001 * spread.bounds.least);
  EXPECT_LT(burst(spread), 0.5);
  scene.flow = messaging::FlowFor({scene.bytes_per_second, 40e-6}, 3);
  const Findings at_once = Played(scene);
  EXPECT_NEAR(at_once.median_seconds(), spread.median_seconds(), 0.001 * spread.median_seconds());
  EXPECT_GT(burst(at_once), 0.95) << "the whole link";
}

TEST(Scene, WithoutTheNextForwardsHelpStepsTakeWhatTheModelSays) {
  Scene scene = Fluid(Convolutional(), 4, 0);
  scene.planning = KeyValueOnly(scene.model);
  scene.bytes_per_second = 400e6;
  scene.mode = replay::ModeNamed("wfbp").value();
  const Findings found = Played(scene);
  EXPECT_GT(found.bounds.wait_free, 1.1 * found.bounds.least);
  EXPECT_NEAR(found.median_seconds(), found.bounds.wait_free, 0.02 * found.bounds.wait_free);
}

TEST(Scene, FactorsSpareBytesAndAreMultipliedInTime) {
  const replay::ScaledModel model = [] {
    replay::ScaledModel m = Convolutional();
    m.product_flops = 2.0 * 16 * 1000 * 4000 / 0.002;
    return m;
  }();
  Scene scene = Fluid(model, 4, 250e6);
  const Findings planned = Played(scene);
  EXPECT_EQ(planned.plan.layers[3].scheme, plan::Scheme::kFactorScatter);
  scene.planning = KeyValueOnly(model);
  const Findings dense = Played(scene);
  for (const auto& [scheme, share] :
       {std::pair(plan::Scheme::kFactorBroadcast, 0.5), std::pair(plan::Scheme::kFactorScatter, 0.65)}) {
    SCOPED_TRACE(plan::NameOf(scheme));
    scene.planning.forced = {{model.layers[3].spec.name, scheme}};
    const Findings found = Played(scene);
    EXPECT_GE(found.median_seconds(), 0.9999 * found.bounds.least);
    EXPECT_LE(found.median_seconds(), 1.02 * found.bounds.least);
    EXPECT_LT(found.median_seconds(), 0.8 * dense.median_seconds());
    EXPECT_GE(found.median_seconds(), 0.9999 * planned.median_seconds()) << "the plan has found the best";
    EXPECT_GT(found.mean_bytes, 0);
    EXPECT_LT(found.mean_bytes, share * dense.mean_bytes);
  }
}

// Two layers of one worker each way, in steps of some milliseconds: shorter than a sample of the ports.
TEST(Scene, CountsTheBytesOfShortStepsToo) {
  Scene scene = Fluid(Model({Layer(100'000, 0.0005, 0.001), Layer(100'000, 0.0005, 0.001)}), 2, 1e9);
  scene.planning = KeyValueOnly(scene.model);
  scene.steps = 1;
  const Findings found = Played(scene);
  ASSERT_LT(found.median_seconds(), 0.010);
  // Half of each layer is pushed, half of it comes back.
  EXPECT_NEAR(found.mean_bytes, 2 * 4 * 100'000, 0.02 * 2 * 4 * 100'000);
  EXPECT_GE(found.peak_to_mean, 1.0);
}

TEST(Scene, AJobThatFailsInABackwardPassSaysWhy) {
  // Seven frames share the port for 73 seconds, in which no sign of life passes them; the first layer still computes.
  Scene scene = Fluid(Model({Layer(1'000, 1, 600), Layer(2'200'000, 1, 1)}), 8, 1e5);
  scene.planning = KeyValueOnly(scene.model);
  scene.flow = messaging::Flow{1 << 20, 1 << 20, 1 << 20};
  const Status failure = Play(scene).status();
  EXPECT_EQ(failure.code(), StatusCode::kUnavailable) << failure.message();
}

TEST(Scene, UnevenWorkersAreHeldToTheSlowestOnesTimes) {
  Scene scene = Fluid(Convolutional(), 4, 2e9);
  scene.unevenness.straggler = 1.5;
  scene.unevenness.jitter = 0.05;
  const Findings found = Played(scene);
  EXPECT_GT(found.bounds.least, 1.4 * scene.model.step_seconds());
  double sum = 0;
  for (const double seconds : found.step_seconds) sum += seconds;
  const double mean = sum / static_cast<double>(found.step_seconds.size());
  EXPECT_NEAR(mean, found.bounds.least, 0.03 * found.bounds.least);
}

TEST(Scene, RepeatsToTheNanosecond) {
  Scene scene = Fluid(Convolutional(), 3, 300e6);
  scene.latency = microseconds(30);
  scene.flow.reset();
  const Findings once = Played(scene);
  const Findings again = Played(scene);
  EXPECT_EQ(once.step_seconds, again.step_seconds);
  EXPECT_EQ(once.events, again.events);
  EXPECT_NEAR(once.link.latency_seconds, 30e-6, 5e-6);
  EXPECT_NEAR(once.link.bytes_per_second, 300e6, 0.02 * 300e6);
}

TEST(Scene, RefusesAPlanForALayerThatIsNotThere) {
  Scene scene = Fluid(Convolutional(), 2, 1e9);
  scene.planning.forced["conv9"] = plan::Scheme::kKeyValue;
  EXPECT_EQ(Play(scene).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace poseidon::simulate
