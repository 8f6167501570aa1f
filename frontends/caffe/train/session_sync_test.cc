// SPDX-License-Identifier: Apache-2.0
// Small layers of a net share one message: what the session then moves, when, and that training is the same.
#include "frontends/caffe/train/session_sync.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "frontends/caffe/proto/at.h"
#include "frontends/caffe/solver/weights_hash.h"
#include "tests/shared/caffe_workers.h"
#include "tests/shared/gradient_checker.h"

namespace poseidon::caffe {
namespace {

using ::testing::ElementsAre;

std::string Conv(const std::string& name, const std::string& bottom, int maps) {
  return "layer { name: '" + name + "' type: 'Convolution' bottom: '" + bottom + "' top: '" + name +
         "' convolution_param { num_output: " + std::to_string(maps) +
         " kernel_size: 3 bias_term: false weight_filler { type: 'msra' } } } "
         "layer { name: '" + name + "_bn' type: 'BatchNorm' bottom: '" + name + "' top: '" + name + "' } "
         "layer { name: '" + name + "_scale' type: 'Scale' bottom: '" + name + "' top: '" + name +
         "' scale_param { bias_term: true } } "
         "layer { name: '" + name + "_relu' type: 'ReLU' bottom: '" + name + "' top: '" + name + "' } ";
}

// Layers by index: 0 in, 1 to 4 a with a_bn, a_scale, a_relu, 5 to 8 b, which is large, 9 to 12 c, 13 ip, whose product is too
// large to join, 14 loss.
std::string NetText() {
  return "name: 'small' layer { name: 'in' type: 'Input' top: 'data' top: 'label' "
         "  input_param { shape { dim: 4 dim: 3 dim: 9 dim: 9 } shape { dim: 4 } } } " +
         Conv("a", "data", 61) + Conv("b", "a", 64) + Conv("c", "b", 5) +
         "layer { name: 'ip' type: 'InnerProduct' bottom: 'c' top: 'ip' "
         "  inner_product_param { num_output: 97 weight_filler { type: 'xavier' } } } "
         "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }";
}
constexpr int kA = 1, kAScale = 3, kB = 5, kBScale = 7, kC = 9, kCScale = 11, kIp = 13;
const std::vector<int> kSynced = {kA, kAScale, kB, kBScale, kC, kCScale, kIp};

class SessionSyncTest : public testing::Test {
 protected:
  template <typename Work>
  void OnWorkers(int workers, const Work& work, const std::map<std::string, plan::Scheme>& schemes = {}) {
    caffe::OnWorkers(workers, work, [&](int, session::SessionOptions* options) { options->node.planning.forced = schemes; });
  }

  static SessionSync::Options Options(JoiningRule joining = {}) {
    SessionSync::Options options;
    options.layer_seconds = [] { return std::vector<plan::LayerSeconds>(15); };
    options.joining = std::move(joining);
    return options;
  }
};

TEST_F(SessionSyncTest, SmallLayersAreOneLayerOfTheModel) {
  OnWorkers(1, [](int, session::Session& session) {
    const auto net = MakeNet(NetText());
    SessionSync sync(session, *net, kSynced, Options());
    ASSERT_TRUE(sync.Begin().ok());
    ASSERT_EQ(sync.specs().size(), 3U);
    const plan::LayerSpec& joined = sync.specs()[0];
    EXPECT_EQ(joined.name, "a");
    EXPECT_EQ(joined.forward_position, 1U);
    EXPECT_EQ(joined.shape, "61x3x3x3+61+61+64+64+5x64x3x3+5+5");
    // Each of them begins at 64 bytes.
    EXPECT_EQ(joined.elements, 1648U + 128 + 128 + 2880 + 10);
    EXPECT_FALSE(joined.factors);
    EXPECT_THAT(sync.members(), ElementsAre(ElementsAre("a", "a_scale", "b_scale", "c", "c_scale"), ElementsAre("b"),
                                            ElementsAre("ip")));
    EXPECT_TRUE(sync.specs()[2].factors);
    const at::Tensor first = net->layer_params(kA).diff;
    EXPECT_EQ(net->layer_params(kC).diff.data_ptr(), first.data_ptr<float>() + 1648 + 128 + 128);
    EXPECT_EQ(sync.model().layers(), sync.specs());
  });
}

TEST_F(SessionSyncTest, WhatIsNamedStaysAlone) {
  OnWorkers(1, [](int, session::Session& session) {
    const auto net = MakeNet(NetText());
    SessionSync sync(session, *net, kSynced, Options({.apart = {"b_scale", "a"}}));
    ASSERT_TRUE(sync.Begin().ok());
    EXPECT_THAT(sync.members(),
                ElementsAre(ElementsAre("a"), ElementsAre("a_scale", "c", "c_scale"), ElementsAre("b"),
                            ElementsAre("b_scale"), ElementsAre("ip")));
  });
}

TEST_F(SessionSyncTest, AJoinedLayerHasNoFactors) {
  OnWorkers(1, [](int, session::Session& session) {
    const auto net = MakeNet("layer { name: 'in' type: 'Input' top: 'data' top: 'label' "
                             "  input_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } } "
                             "layer { name: 'p' type: 'InnerProduct' bottom: 'data' top: 'p' "
                             "  inner_product_param { num_output: 5 } } "
                             "layer { name: 'q' type: 'InnerProduct' bottom: 'p' top: 'q' "
                             "  inner_product_param { num_output: 2 } } "
                             "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'q' bottom: 'label' }");
    SessionSync sync(session, *net, {1, 2}, Options({.together = {{"p", "q"}}}));
    const Status begun = sync.Begin();
    ASSERT_TRUE(begun.ok()) << begun.message();
    ASSERT_EQ(sync.specs().size(), 1U);
    EXPECT_EQ(sync.specs()[0].shape, "5x3+5+2x5+2");
    EXPECT_FALSE(sync.specs()[0].factors);
    EXPECT_FALSE(sync.WantsFactors(1));
  });
}

// No gradient leaves before the last of its message: what the first ones are before does not count.
TEST_F(SessionSyncTest, AMessageLeavesWithItsLastGradientAndLandsForAll) {
  OnWorkers(2, [](int rank, session::Session& session) {
    const auto net = MakeNet(NetText());
    SessionSync sync(session, *net, kSynced, Options());
    ASSERT_TRUE(sync.Begin().ok());
    for (std::uint64_t step = 0; step < 3; ++step) {
      ASSERT_TRUE(sync.BeginStep(step).ok());
      ASSERT_TRUE(sync.GradientReady(kIp, 0).ok());
      for (const int layer : {kCScale, kC, kBScale, kAScale}) {
        net->layer_params(layer).diff.fill_(-1);
        ASSERT_TRUE(sync.GradientReady(layer, 0).ok());
      }
      ASSERT_TRUE(session.Barrier().ok());
      ASSERT_TRUE(session.Barrier().ok());
      for (const int layer : {kCScale, kC, kBScale, kAScale, kA, kB}) {
        net->layer_params(layer).diff.fill_(layer * (rank + 1) + static_cast<double>(step));
      }
      ASSERT_TRUE(sync.GradientReady(kB, 0).ok());
      // Of those that are asked for, in the order given, the first that has landed.
      ASSERT_TRUE(sync.Await(kIp).ok());
      EXPECT_EQ(sync.AwaitAny(std::vector{kIp, kB}), kIp);
      ASSERT_TRUE(sync.GradientReady(kA, 0).ok());
      ASSERT_TRUE(sync.Await(kC).ok());
      EXPECT_EQ(sync.AwaitAny(std::vector{kCScale, kA, kAScale}), kCScale);
      EXPECT_EQ(sync.AwaitAny(std::vector{kA, kCScale, kIp}), kA);
      const int any = sync.AwaitAny(std::vector{kB, kBScale});
      EXPECT_TRUE(any == kB || any == kBScale);
      for (const int layer : kSynced) {
        ASSERT_TRUE(sync.Await(layer).ok());
        if (layer == kIp) continue;
        const at::Tensor diff = net->layer_params(layer).diff;
        EXPECT_TRUE(at::equal(diff, at::full(diff.sizes(), 1.5 * layer + static_cast<double>(step)))) << layer;
      }
    }
  });
}

// The planner counts a pass of a net layer with the declared layer before it: what b_scale does backward is done
// before b's gradient leaves, whichever message its own gradient goes with.
TEST_F(SessionSyncTest, TimesOfJoinedLayersCountWhereTheyRun) {
  OnWorkers(1, [](int, session::Session& session) {
    const auto net = MakeNet(NetText());
    SessionSync::Options options = Options();
    options.layer_seconds = [] {
      std::vector<plan::LayerSeconds> seconds;
      for (int i = 0; i < 15; ++i) seconds.push_back({.forward = 1.0 * (1 << i), .backward = 2.0 * (1 << i)});
      return seconds;
    };
    SessionSync sync(session, *net, kSynced, std::move(options));
    ASSERT_TRUE(sync.Begin().ok());
    for (std::uint64_t step = 0; step <= kFinalPlanStep; ++step) ASSERT_TRUE(sync.BeginStep(step).ok());
    const plan::Plan& plan = sync.model().plan();
    ASSERT_EQ(plan.layers.size(), 3U);
    EXPECT_EQ(plan.layers[0].measured.forward_seconds, (1 << kB) - 1);
    EXPECT_EQ(plan.layers[1].measured.forward_seconds, (1 << kIp) - (1 << kB));
    EXPECT_EQ(plan.layers[1].measured.backward_seconds, 2.0 * ((1 << kIp) - (1 << kB)));
    EXPECT_EQ(plan.layers[2].measured.forward_seconds, (1 << 15) - (1 << kIp));
  });
}

struct Setting {
  std::string name;
  DType dtype = DType::kF32;
  plan::Scheme ip = plan::Scheme::kKeyValue;
  std::string solver;
};

class JoiningTest : public SessionSyncTest, public testing::WithParamInterface<Setting> {
 protected:
  struct Trained {
    std::vector<std::string> hashes;  // by rank
    std::size_t layers = 0;           // of the model
    std::uint64_t frames = 0;         // that rank 0 sent for them
  };

  Trained Train(const JoiningRule& rule) {
    constexpr int kWorkers = 2;
    Trained trained;
    trained.hashes.resize(kWorkers);
    OnWorkers(
        kWorkers,
        [&](int rank, session::Session& session) {
          SolverParameter parameters;
          ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
              "base_lr: 0.05 lr_policy: 'fixed' max_iter: 100 snapshot_after_train: false " + GetParam().solver +
                  " net_param { " + NetText() + " }",
              &parameters));
          SolverOptions options;
          options.dtype = GetParam().dtype;
          options.seed = 5;
          options.share.rank = rank;
          options.share.world = kWorkers;
          options.writes_snapshots = false;
          options.feed = [rank](Net& net, const PassContext& pass) {
            FillTestNumbers(net.blob("data")->data, 1 + 2 * pass.batch + static_cast<std::uint64_t>(rank));
            FillTestNumbers(net.blob("label")->data, 100 + 2 * pass.batch + static_cast<std::uint64_t>(rank),
                            {0, 7, true});
            return OkStatus();
          };
          auto solver = Solver::Create(parameters, std::move(options));
          ASSERT_TRUE(solver.ok()) << solver.status().message();
          SessionSync::Options sync_options = Options(rule);
          sync_options.iter_size = parameters.iter_size();
          sync_options.layer_seconds = [&] { return (*solver)->layer_clock().Means(); };
          SessionSync sync(session, (*solver)->net(), (*solver)->SyncedLayers(), std::move(sync_options));
          ASSERT_TRUE(sync.Begin().ok());
          (*solver)->Connect(&sync, &sync);
          const Status stepped = (*solver)->Step(12);
          ASSERT_TRUE(stepped.ok()) << stepped.message();
          ASSERT_TRUE(session.Barrier().ok());
          At(trained.hashes, rank) = WeightsHash((*solver)->net());
          if (rank != 0) return;
          trained.layers = sync.specs().size();
          for (const session::LayerStatistics& layer : sync.model().Collect().layers) {
            trained.frames += layer.gradients.sent.frames + layer.factors.sent.frames;
          }
        },
        {{"ip", GetParam().ip}});
    return trained;
  }
};

TEST_P(JoiningTest, TrainsToTheSameBitsWithFewerFrames) {
  const Trained joined = Train({});
  const Trained alone = Train({.apart = {"a", "a_scale", "b", "b_scale", "c", "c_scale", "ip"}});
  EXPECT_EQ(joined.hashes[0], joined.hashes[1]);
  EXPECT_EQ(joined.hashes, alone.hashes);
  EXPECT_EQ(alone.layers, 7U);
  EXPECT_EQ(joined.layers, 3U);
  // A layer is a contribution and a result at least, in every step.
  EXPECT_LE(joined.frames + 12 * 4, alone.frames);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, JoiningTest,
    testing::Values(Setting{.name = "Dense", .solver = "momentum: 0.9"},
                    Setting{.name = "Factors",
                            .ip = plan::Scheme::kFactorBroadcast,
                            .solver = "momentum: 0.9 iter_size: 2"},
                    Setting{.name = "F64", .dtype = DType::kF64, .solver = "type: 'Adam' momentum2: 0.99"},
                    Setting{.name = "Clipped", .solver = "momentum: 0.9 clip_gradients: 0.1"},
                    Setting{.name = "WithDebugLines", .solver = "display: 3 debug_info: true"}),
    [](const auto& setting) { return setting.param.name; });

}  // namespace
}  // namespace poseidon::caffe
