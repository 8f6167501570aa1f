// SPDX-License-Identifier: Apache-2.0
// P workers train as one machine: bit for bit like a one-process reference that computes the P
// batches one after the other and sums in rank order (or multiplies the concatenated factors), and
// within rounding like one worker with a batch P times as large.
#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "frontends/caffe/data/lmdb_writer.h"
#include "frontends/caffe/data/test_database.h"
#include "frontends/caffe/engine/engine.h"
#include "frontends/caffe/solver/solver.h"
#include "frontends/caffe/train/aten_engine.h"
#include "frontends/caffe/train/session_sync.h"
#include "poseidon/factors/rebuild.h"
#include "poseidon/tensor/sum.h"

namespace poseidon::caffe {
namespace {

constexpr int kSteps = 50;
constexpr int kRows = 3;

// A net, and how it is trained.
struct Setting {
  std::string name;
  int workers = 2;
  int servers = 0;
  DType dtype = DType::kF32;
  bool relu = false;  // with ReLU and MAX pooling, which rounding can flip
  bool masked = false;  // the loss ignores a label: workers' means are over numbers of their own
  int iter_size = 1;
  std::map<std::string, plan::Scheme> schemes;
  std::string solver = "type: 'SGD' momentum: 0.9 weight_decay: 0.004";
};

// Odd sizes that divide nothing: 7 maps of 3 x 3 kernels, 13 and 5 outputs.
std::string NetText(const std::string& database, bool relu, bool masked, int batch) {
  const std::string neuron = relu ? "ReLU" : "TanH";
  const std::string pool = relu ? "MAX" : "AVE";
  return "name: 'odd' "
         "layer { name: 'data' type: 'Data' top: 'data' top: 'label' transform_param { scale: 0.01 } "
         "  data_param { source: '" + database + "' batch_size: " + std::to_string(batch) +
         "  backend: LMDB } } "
         "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' "
         "  param { lr_mult: 1 } param { lr_mult: 2 } "
         "  convolution_param { num_output: 7 kernel_size: 3 weight_filler { type: 'xavier' } } } "
         "layer { name: 'act0' type: '" + neuron + "' bottom: 'conv' top: 'conv' } "
         "layer { name: 'pool' type: 'Pooling' bottom: 'conv' top: 'pool' "
         "  pooling_param { pool: " + pool + " kernel_size: 2 stride: 2 } } "
         "layer { name: 'ip1' type: 'InnerProduct' bottom: 'pool' top: 'ip1' "
         "  param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 } "
         "  inner_product_param { num_output: 13 weight_filler { type: 'xavier' } } } "
         "layer { name: 'act1' type: '" + neuron + "' bottom: 'ip1' top: 'ip1' } "
         "layer { name: 'drop' type: 'Dropout' bottom: 'ip1' top: 'ip1' "
         "  dropout_param { dropout_ratio: 0.3 } } "
         "layer { name: 'ip2' type: 'InnerProduct' bottom: 'ip1' top: 'ip2' "
         "  inner_product_param { num_output: 5 weight_filler { type: 'xavier' } } } "
         "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip2' bottom: 'label' top: 'loss' " +
         std::string(masked ? "loss_param { ignore_label: 2 }" : "") + " }";
}

class ExactnessTest : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    database_ = folder_ / "db";
    auto writer = CreateLmdb(database_, 1 << 20);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    std::uint64_t state = 1;
    for (std::uint64_t i = 0; i < 151; ++i) {
      Datum datum;
      datum.set_channels(2);
      datum.set_height(9);
      datum.set_width(7);
      datum.set_label(static_cast<int>(i % 5));
      for (int j = 0; j < 2 * 9 * 7; ++j) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        datum.mutable_data()->push_back(static_cast<char>(state >> 56));
      }
      ASSERT_TRUE((*writer)->Put(TestKey(i), datum.SerializeAsString()).ok());
    }
    ASSERT_TRUE((*writer)->Finish().ok());
  }

  std::unique_ptr<Solver> MakeSolver(int rank, int world, int batch) {
    at::set_num_threads(1);
    SolverParameter parameters;
    const std::string text =
        "base_lr: 0.02 lr_policy: 'inv' gamma: 0.01 power: 0.75 max_iter: 1000 display: 0 "
        "snapshot_after_train: false iter_size: " + std::to_string(GetParam().iter_size) + " " +
        GetParam().solver + " net_param { " + NetText(database_, GetParam().relu, GetParam().masked, batch) + " }";
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &parameters));
    SolverOptions options;
    options.dtype = GetParam().dtype;
    options.seed = 11;
    options.share.rank = rank;
    options.share.world = world;
    options.writes_snapshots = false;
    auto solver = Solver::Create(parameters, std::move(options));
    EXPECT_TRUE(solver.ok()) << solver.status().message();
    return *std::move(solver);
  }

  TestFolder folder_;
  std::string database_;
};

std::string WeightBytes(Net& net) {
  std::string bytes;
  for (int i = 0; i < net.layer_count(); ++i) {
    const at::Tensor data = net.layer_params(i).data;
    if (data.defined()) bytes.append(static_cast<const char*>(data.data_ptr()), data.nbytes());
  }
  return bytes;
}

// One process plays all workers: its nets share the weights of rank 0's solver and run one after
// the other. What must come out is computed here on whole layers, without slices, frames or threads.
class ReferenceSync final : public GradientSync {
 public:
  ReferenceSync(Solver& solver, std::vector<std::unique_ptr<Solver>> others, const Setting& setting)
      : solver_(solver), others_(std::move(others)), setting_(setting), engine_(MakeAtenEngine(1)) {
    for (const auto& other : others_) {
      EXPECT_TRUE(other->net().ShareParametersWith(solver.net()).ok());
    }
  }

  Status BeginStep(std::uint64_t step) override {
    step_ = step;
    combined_ = false;
    for (const auto& other : others_) {
      for (int layer : solver_.SyncedLayers()) {
        FactorSource* const factors = other->net().layer(layer).factors();
        if (factors != nullptr) factors->CaptureFactors(WantsFactors(layer));
      }
    }
    return OkStatus();
  }
  bool WantsFactors(int layer) const override {
    const auto found = setting_.schemes.find(solver_.net().layer(layer).name());
    return found != setting_.schemes.end() && found->second == plan::Scheme::kFactorBroadcast;
  }
  Status GradientReady(int layer, std::uint32_t weight) override {
    own_[layer] = Take(solver_.net(), layer);
    own_[layer].weight = weight;
    return OkStatus();
  }
  Status Await(int) override { return std::exchange(combined_, true) ? OkStatus() : Combine(); }
  int AwaitAny(std::span<const int> layers) override { return layers.front(); }

 private:
  struct Gradient {
    std::vector<std::byte> dense;
    std::vector<FactorPair> factors;
    std::uint32_t weight = 0;
  };
  Gradient Take(Net& net, int layer) const {
    Gradient gradient;
    if (WantsFactors(layer)) {
      gradient.factors = net.layer(layer).factors()->TakeFactors();
    } else {
      const at::Tensor diff = net.layer_params(layer).diff;
      const auto* const begin = static_cast<const std::byte*>(diff.data_ptr());
      gradient.dense.assign(begin, begin + diff.nbytes());
    }
    return gradient;
  }

  Status Combine() {
    std::vector<std::map<int, Gradient>> by_rank = {std::move(own_)};
    for (const auto& other : others_) {
      Net& net = other->net();
      net.ClearParamDiffs();
      for (int pass = 0; pass < setting_.iter_size; ++pass) {
        net.BeginPass({.step = step_,
                       .pass = static_cast<std::uint32_t>(pass),
                       .batch = step_ * static_cast<std::uint64_t>(setting_.iter_size) +
                                static_cast<std::uint64_t>(pass)});
        if (const auto loss = net.Forward(); !loss.ok()) return loss.status();
        POSEIDON_RETURN_IF_ERROR(net.Backward());
      }
      by_rank.emplace_back();
      for (int layer : solver_.SyncedLayers()) {
        Gradient& gradient = by_rank.back()[layer] = Take(net, layer);
        if (setting_.masked) gradient.weight = static_cast<std::uint32_t>(net.layers().back()->counted());
      }
    }
    for (int layer : solver_.SyncedLayers()) POSEIDON_RETURN_IF_ERROR(CombineLayer(layer, by_rank));
    return OkStatus();
  }

  Status CombineLayer(int layer, const std::vector<std::map<int, Gradient>>& by_rank) {
    const at::Tensor diff = solver_.net().layer_params(layer).diff;
    auto* const out = static_cast<std::byte*>(diff.data_ptr());
    if (!WantsFactors(layer)) {
      std::vector<Summand> summands;
      for (const auto& rank : by_rank) summands.push_back({rank.at(layer).dense.data(), rank.at(layer).weight});
      SumInRankOrder(summands, by_rank.size(), static_cast<std::uint64_t>(diff.numel()),
                     setting_.dtype, Scaling::kMean, out);
      return OkStatus();
    }
    std::vector<at::Tensor> u, v;
    std::vector<factors::WeightedRows> ranks;
    std::uint64_t all_weight = 0;
    for (const auto& rank : by_rank) {
      const Gradient& gradient = rank.at(layer);
      for (const FactorPair& pair : gradient.factors) {
        u.push_back(pair.u);
        v.push_back(pair.v);
        if (setting_.masked) ranks.push_back({static_cast<std::uint32_t>(pair.u.size(0)), gradient.weight});
      }
      all_weight += gradient.weight;
    }
    EngineGuard guard;
    const at::Tensor all_u = at::cat(u, 0), all_v = at::cat(v, 0);
    const FactorSource* const source = solver_.net().layer(layer).factors();
    return factors::RebuildGradient({.outputs = static_cast<std::uint64_t>(source->M()),
                                 .inputs = static_cast<std::uint64_t>(source->N()),
                                 .bias = source->has_bias()},
                                setting_.dtype,
                                {static_cast<std::byte*>(all_u.data_ptr()),
                                 static_cast<const std::byte*>(all_v.data_ptr()),
                                 static_cast<std::uint64_t>(all_u.size(0)), ranks, all_weight},
                                1.0 / static_cast<double>(setting_.masked ? all_weight : by_rank.size()), *engine_, out);
  }

  Solver& solver_;
  const std::vector<std::unique_ptr<Solver>> others_;
  const Setting& setting_;
  const std::unique_ptr<factors::ProductEngine> engine_;
  std::map<int, Gradient> own_;
  std::uint64_t step_ = 0;
  bool combined_ = false;
};

// The weights of every worker after every step of `chunk` iterations, by [step][rank].
using History2d = std::vector<std::vector<std::string>>;

// A real job: a thread per worker and server, over memory.
class Job {
 public:
  Job(const Setting& setting, std::vector<std::unique_ptr<Solver>> solvers)
      : setting_(setting), solvers_(std::move(solvers)) {}

  History2d Run(int steps, int chunk) {
    History2d history(static_cast<std::size_t>(steps / chunk),
                      std::vector<std::string>(solvers_.size()));
    std::vector<std::thread> threads;
    for (int s = 0; s < setting_.servers; ++s) {
      threads.emplace_back([this] {
        auto session = Open(true, -1);
        ASSERT_TRUE(session.ok()) << session.status().message();
        EXPECT_TRUE((*session)->AwaitEnd().ok());
      });
    }
    for (std::size_t r = 0; r < solvers_.size(); ++r) {
      threads.emplace_back([this, r, steps, chunk, &history] { RunWorker(r, steps, chunk, history); });
    }
    for (std::thread& thread : threads) thread.join();
    return history;
  }

 private:
  Result<std::unique_ptr<session::Session>> Open(bool server, int rank) {
    session::SessionOptions options;
    options.node.role = server ? wire::Role::kServer : wire::Role::kWorker;
    options.node.workers = static_cast<std::uint16_t>(solvers_.size());
    options.node.servers = static_cast<std::uint16_t>(setting_.servers);
    options.node.requested_rank = rank;
    options.node.hosts_coordinator = rank == 0;
    options.node.listen = {"job", rank == 0 ? std::uint16_t{1} : std::uint16_t{0}};
    options.node.coordinator = {"job", 1};
    options.node.probe_bytes = 0;
    options.node.join_timeout = std::chrono::seconds(20);
    options.node.final_plan_step = 5;
    options.node.strategy.flow.chunk_bytes = 100;  // many frames per slice
    options.node.strategy.flow_is_fixed = true;
    options.node.planning.forced = setting_.schemes;
    options.engine = server ? nullptr : engines_[static_cast<std::size_t>(rank)].get();
    return session::Session::Open(session::MakeInprocRuntime(network_, "member"), options);
  }

  void RunWorker(std::size_t r, int steps, int chunk, History2d& history) {
    at::set_num_threads(1);
    auto session = Open(false, static_cast<int>(r));
    ASSERT_TRUE(session.ok()) << session.status().message();
    Solver& solver = *solvers_[r];
    SessionSync::Options options;
    options.iter_size = setting_.iter_size;
    for (const auto& [layer, scheme] : setting_.schemes) options.joining.apart.insert(layer);
    options.layer_seconds = [&] { return solver.layer_clock().Means(); };
    SessionSync sync(**session, solver.net(), solver.SyncedLayers(), std::move(options));
    const Status begun = sync.Begin();
    ASSERT_TRUE(begun.ok()) << begun.message();
    solver.Connect(&sync, &sync);
    for (int done = 0; done < steps; done += chunk) {
      const Status status = solver.Step(static_cast<std::uint64_t>(chunk));
      ASSERT_TRUE(status.ok()) << "worker " << r << ": " << status.message();
      history[static_cast<std::size_t>(done / chunk)][r] = WeightBytes(solver.net());
    }
    EXPECT_TRUE((*session)->Leave().ok());
  }

  const Setting& setting_;
  const std::vector<std::unique_ptr<Solver>> solvers_;
  transport::InprocNetwork network_;
  const std::vector<std::unique_ptr<factors::ProductEngine>> engines_ = [this] {
    std::vector<std::unique_ptr<factors::ProductEngine>> engines;
    for (std::size_t i = 0; i < solvers_.size(); ++i) engines.push_back(MakeAtenEngine(1));
    return engines;
  }();
};

TEST_P(ExactnessTest, WorkersTrainAsOneMachine) {
  const Setting& setting = GetParam();
  const auto solvers = [&] {
    std::vector<std::unique_ptr<Solver>> list;
    for (int r = 0; r < setting.workers; ++r) list.push_back(MakeSolver(r, setting.workers, kRows));
    return list;
  };

  // The reference, step by step.
  auto reference = MakeSolver(0, setting.workers, kRows);
  std::vector<std::unique_ptr<Solver>> others;
  for (int r = 1; r < setting.workers; ++r) others.push_back(MakeSolver(r, setting.workers, kRows));
  ReferenceSync sync(*reference, std::move(others), setting);
  reference->Connect(&sync, nullptr);
  std::vector<std::string> want;
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_TRUE(reference->Step(1).ok());
    want.push_back(WeightBytes(reference->net()));
  }
  ASSERT_NE(want.front(), want.back()) << "nothing was learned";

  // Every worker equals it after every step.
  const History2d stepwise = Job(setting, solvers()).Run(kSteps, 1);
  for (int i = 0; i < kSteps; ++i) {
    for (int r = 0; r < setting.workers; ++r) {
      ASSERT_EQ(stepwise[static_cast<std::size_t>(i)][static_cast<std::size_t>(r)] ==
                    want[static_cast<std::size_t>(i)],
                true)
          << "worker " << r << " differs from the reference after step " << i;
    }
  }
  // The same when communication overlaps the next forward pass, twice.
  for (int repeat = 0; repeat < 2; ++repeat) {
    const History2d overlapped = Job(setting, solvers()).Run(kSteps, kSteps);
    for (int r = 0; r < setting.workers; ++r) {
      ASSERT_TRUE(overlapped[0][static_cast<std::size_t>(r)] == want.back()) << "worker " << r;
    }
  }

  // One worker that has all rows in one batch differs by rounding alone.
  if (setting.relu) return;
  auto single = MakeSolver(0, 1, kRows * setting.workers);
  ASSERT_TRUE(single->Step(kSteps).ok());
  const double limit = setting.dtype == DType::kF64 ? 1e-10 : 1e-5;
  for (std::size_t p = 0; p < single->net().learnable_params().size(); ++p) {
    const at::Tensor one = single->net().learnable_params()[p].blob.data.to(at::kDouble);
    const at::Tensor many = reference->net().learnable_params()[p].blob.data.to(at::kDouble);
    double difference = 0, norm = 0;
    for (std::int64_t i = 0; i < one.numel(); ++i) {
      const double a = one.data_ptr<double>()[i], b = many.data_ptr<double>()[i];
      difference += (a - b) * (a - b);
      norm += a * a;
    }
    EXPECT_LE(std::sqrt(difference), limit * std::sqrt(norm)) << "blob " << p;
  }
}

std::vector<Setting> Settings() {
  using plan::Scheme;
  const std::map<std::string, Scheme> dense = {{"ip1", Scheme::kKeyValue}, {"ip2", Scheme::kKeyValue}};
  const std::map<std::string, Scheme> factors = {{"ip1", Scheme::kFactorBroadcast},
                                                 {"ip2", Scheme::kFactorBroadcast}};
  const std::map<std::string, Scheme> mixed = {{"ip1", Scheme::kFactorBroadcast},
                                               {"ip2", Scheme::kKeyValue}};
  std::vector<Setting> settings;
  for (const int workers : {2, 3, 4}) {
    const std::string p = "P" + std::to_string(workers);
    settings.push_back({.name = p + "Dense", .workers = workers, .schemes = dense});
    settings.push_back({.name = p + "Factors", .workers = workers, .schemes = factors});
    settings.push_back({.name = p + "Mixed", .workers = workers, .schemes = mixed});
    settings.push_back({.name = p + "MixedF64", .workers = workers, .dtype = DType::kF64, .schemes = mixed});
    settings.push_back({.name = p + "MixedRelu", .workers = workers, .relu = true, .schemes = mixed});
  }
  for (const int servers : {1, 2, 3}) {
    settings.push_back({.name = "P3Servers" + std::to_string(servers), .workers = 3,
                        .servers = servers, .schemes = mixed});
  }
  settings.push_back({.name = "P3IterSize", .workers = 3, .iter_size = 2, .schemes = mixed});
  settings.push_back({.name = "P3Masked", .workers = 3, .masked = true, .schemes = mixed});
  settings.push_back({.name = "P2MaskedF64", .workers = 2, .dtype = DType::kF64, .masked = true, .schemes = mixed});
  settings.push_back({.name = "P2Clip", .workers = 2, .schemes = mixed,
                      .solver = "type: 'SGD' momentum: 0.9 clip_gradients: 0.5"});
  settings.push_back({.name = "P2Adam", .workers = 2, .dtype = DType::kF64, .schemes = mixed,
                      .solver = "type: 'Adam' momentum: 0.9 momentum2: 0.999"});
  return settings;
}

INSTANTIATE_TEST_SUITE_P(All, ExactnessTest, testing::ValuesIn(Settings()),
                         [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace poseidon::caffe
