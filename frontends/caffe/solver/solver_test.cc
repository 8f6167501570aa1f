// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/solver.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <sys/resource.h>

#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <thread>

#include "frontends/caffe/data/test_database.h"
#include "frontends/caffe/proto/at.h"
#include "frontends/caffe/proto/hdf5_file.h"
#include "frontends/caffe/proto/read.h"
#include "frontends/caffe/solver/nets.h"
#include "frontends/caffe/solver/test_cluster.h"
#include "frontends/caffe/solver/test_run.h"
#include "frontends/caffe/solver/weights_hash.h"
#include "tests/shared/gradient_checker.h"

namespace poseidon::caffe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Everything that draws at random is in it: mirror, crop and Dropout.
std::string NetText(const std::string& database, int batch, const std::string& extra = "") {
  return R"(
    layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
      transform_param { mirror: true crop_size: 5 scale: 0.004 }
      data_param { source: ")" +
         database + R"(" backend: LMDB batch_size: )" + std::to_string(batch) + R"( } }
    layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
      transform_param { crop_size: 5 scale: 0.004 }
      data_param { source: ")" +
         database + R"(" backend: LMDB batch_size: 3 } }
    layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1"
      param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
      inner_product_param { num_output: 7 weight_filler { type: "xavier" } } }
    layer { name: "act" type: "TanH" bottom: "ip1" top: "ip1" }
    )" + extra +
         R"(
    layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
      inner_product_param { num_output: 23 weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
    layer { name: "accuracy" type: "Accuracy" bottom: "ip2" bottom: "label" top: "accuracy"
      include { phase: TEST } })";
}
constexpr char kDropout[] = R"(layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" })";

class Recorder final : public SolverObserver {
 public:
  void OnIteration(const IterationReport& report) override { iterations.push_back(report); }
  void OnTest(const TestReport& report) override { tests.push_back(report); }
  void OnSnapshot(const SnapshotReport& report) override { snapshots.push_back(report); }
  void OnWeights(const WeightsReport& report) override { weights.push_back(report); }
  void OnNote(const std::string& sentence) override { notes.push_back(sentence); }
  void OnDebugLine(const std::string& line) override { debug.push_back(line); }
  std::vector<std::string> notes;
  void OnNotFinite(const std::string& sentence) override { not_finite.push_back(sentence); }
  std::vector<std::string> debug;
  std::vector<std::string> not_finite;
  std::vector<IterationReport> iterations;
  std::vector<TestReport> tests;
  std::vector<SnapshotReport> snapshots;
  std::vector<WeightsReport> weights;
};

class SolverTest : public ::testing::Test {
 protected:
  SolverTest() { WriteTestDatabase(folder_ / "db", 23, 1, 6, 6); }

  SolverParameter Parameters(const std::string& net_text, const std::string& solver_text) {
    SolverParameter parameters;
    EXPECT_TRUE(ParseText(solver_text, "solver", &parameters).ok());
    if (!parameters.has_base_lr()) parameters.set_base_lr(0.1f);
    if (!parameters.has_lr_policy()) parameters.set_lr_policy("fixed");
    if (!parameters.has_snapshot_after_train()) parameters.set_snapshot_after_train(false);
    EXPECT_TRUE(ParseText(net_text, "net", parameters.mutable_net_param()).ok());
    if (!parameters.has_snapshot_prefix()) parameters.set_snapshot_prefix(folder_ / "snap");
    return parameters;
  }
  std::unique_ptr<Solver> Make(const SolverParameter& parameters, SolverOptions options = {}) {
    auto solver = Solver::Create(parameters, std::move(options));
    EXPECT_TRUE(solver.ok()) << solver.status().ToString();
    return solver.ok() ? *std::move(solver) : nullptr;
  }
  std::string Refusal(const std::string& net_text, const std::string& solver_text) {
    return Solver::Create(Parameters(net_text, solver_text), {}).status().message();
  }

  TestFolder folder_;
};

// --- Exactness ---------------------------------------------------------------------------------

TEST_F(SolverTest, ResumesBitForBit) {
  for (const char* kind :
       {"momentum: 0.9 weight_decay: 0.01", "type: 'Nesterov' momentum: 0.9", "type: 'AdaGrad'",
        "type: 'RMSProp' rms_decay: 0.9", "type: 'AdaDelta' momentum: 0.9 delta: 1e-6",
        "type: 'Adam' momentum: 0.9", "momentum: 0.9 iter_size: 3 clip_gradients: 0.5"}) {
    const SolverParameter parameters =
        Parameters(NetText(folder_ / "db", 4, kDropout),
                   std::string(kind) +
                       " lr_policy: 'multistep' gamma: 0.5 stepvalue: 2 stepvalue: 3 stepvalue: 7");
    Recorder straight_log;
    SolverOptions options;
    options.observer = &straight_log;
    auto straight = Make(parameters, options);
    ASSERT_TRUE(straight->Step(10).ok());

    auto first = Make(parameters);
    ASSERT_TRUE(first->Step(5).ok());
    ASSERT_TRUE(first->Snapshot().ok());
    Recorder second_log;
    options.observer = &second_log;
    auto second = Make(parameters, options);
    const Status restored = second->Restore(folder_ / "snap_iter_5.solverstate");
    ASSERT_TRUE(restored.ok()) << restored.ToString();
    EXPECT_EQ(WeightsHash(second->net()), WeightsHash(first->net()));
    ASSERT_TRUE(second->Step(5).ok());

    EXPECT_EQ(second->iteration(), 10u);
    EXPECT_EQ(WeightsHash(second->net()), WeightsHash(straight->net())) << kind;
    for (std::size_t i = 0; i < straight->history().tensors().size(); ++i) {
      EXPECT_TRUE(second->history().tensors()[i].equal(straight->history().tensors()[i]));
    }
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(second_log.iterations[i].loss, straight_log.iterations[i + 5].loss);
      EXPECT_EQ(second_log.iterations[i].rate, straight_log.iterations[i + 5].rate);
      EXPECT_EQ(second_log.iterations[i].iteration, i + 5);
    }
  }
}

TEST_F(SolverTest, StepsMayBeCutAnywhere) {
  const SolverParameter parameters =
      Parameters(NetText(folder_ / "db", 4), "momentum: 0.9 test_iter: 2 test_interval: 3");
  auto whole = Make(parameters);
  auto cut = Make(parameters);
  ASSERT_TRUE(whole->Step(8).ok());
  for (const std::uint64_t n : {1, 3, 0, 4}) ASSERT_TRUE(cut->Step(n).ok());
  EXPECT_EQ(WeightsHash(whole->net()), WeightsHash(cut->net()));
}

// What a set of workers ends with.
struct Ending {
  std::vector<std::string> hashes;
  std::vector<at::Tensor> weights;
  std::vector<TestReport> tests;
  std::vector<std::string> notes;  // of worker 0
};

Ending RunCluster(const SolverParameter& parameters, int world, bool factors, DType dtype,
                  std::uint64_t iterations) {
  TestCluster cluster(world, factors);
  Ending ending;
  ending.hashes.resize(static_cast<std::size_t>(world));
  std::vector<std::unique_ptr<Solver>> solvers;
  std::vector<std::unique_ptr<TestCluster::Worker>> workers;
  std::vector<Recorder> logs(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    SolverOptions options;
    options.dtype = dtype;
    options.share.rank = rank;
    options.share.world = world;
    options.writes_snapshots = rank == 0;
    options.observer = &At(logs, rank);
    auto solver = Solver::Create(parameters, options);
    EXPECT_TRUE(solver.ok()) << solver.status().ToString();
    solvers.push_back(*std::move(solver));
    workers.push_back(
        std::make_unique<TestCluster::Worker>(&cluster, rank, &solvers.back()->net()));
    solvers.back()->Connect(workers.back().get(), workers.back().get());
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      Solver& solver = *At(solvers, rank);
      const Status status = solver.Step(iterations);
      EXPECT_TRUE(status.ok()) << status.ToString();
      EXPECT_TRUE(solver.TestAll().ok());
      At(ending.hashes, rank) = WeightsHash(solver.net());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const LearnableParam& param : solvers[0]->net().learnable_params()) {
    ending.weights.push_back(param.blob.data.clone());
  }
  ending.tests = logs[0].tests;
  ending.notes = logs[0].notes;
  for (const Recorder& log : logs) {
    EXPECT_EQ(log.tests.size(), ending.tests.size());
    for (std::size_t i = 0; i < ending.tests.size(); ++i) {
      EXPECT_EQ(log.tests[i].outputs[0].value, ending.tests[i].outputs[0].value);
    }
  }
  return ending;
}

// P workers with batch b against one with batch P * b, everything random included.
TEST_F(SolverTest, WorkersEqualOneWithALargerBatch) {
  const std::string solver = "momentum: 0.9 weight_decay: 0.01 test_iter: 5 test_interval: 4 ";
  for (const char* extra : {"", "iter_size: 2", "clip_gradients: 0.3", "type: 'Adam'"}) {
    const Ending one = RunCluster(Parameters(NetText(folder_ / "db", 12, kDropout), solver + extra),
                                  1, false, DType::kF64, 10);
    for (const int world : {2, 3, 4}) {
      for (const bool factors : {false, true}) {
        const Ending many =
            RunCluster(Parameters(NetText(folder_ / "db", 12 / world, kDropout), solver + extra),
                       world, factors, DType::kF64, 10);
        for (const std::string& hash : many.hashes) EXPECT_EQ(hash, many.hashes[0]);
        for (std::size_t i = 0; i < one.weights.size(); ++i) {
          const at::Tensor difference = many.weights[i].sub(one.weights[i]);
          EXPECT_LE(at::linalg_vector_norm(difference).item<double>(),
                    1e-10 * at::linalg_vector_norm(one.weights[i]).item<double>())
              << extra << " world " << world << " factors " << factors;
        }
        ASSERT_EQ(many.tests.size(), one.tests.size());
        for (std::size_t i = 0; i < one.tests.size(); ++i) {
          EXPECT_NEAR(many.tests[i].outputs[1].value, one.tests[i].outputs[1].value, 1e-9);
        }
      }
    }
  }
}

// Losses over the labels that are not ignored: of two workers one may have none of them.
TEST_F(SolverTest, WorkersEqualOneWithALargerBatchWhereLabelsAreIgnored) {
  const std::string sigmoid = R"(
    layer { name: "wide" type: "Reshape" bottom: "label" top: "wide" reshape_param { shape { dim: 0 dim: 1 } } }
    layer { name: "one" type: "InnerProduct" bottom: "ip1" top: "one" inner_product_param { num_output: 1 } }
    layer { name: "binary" type: "SigmoidCrossEntropyLoss" bottom: "one" bottom: "wide"
            loss_param { normalization: VALID ignore_label: 7 } })";
  const auto masked = [&](int batch, const std::string& extra = "") {
    std::string text = NetText(folder_ / "db", batch, kDropout + extra);
    const std::string loss = R"(bottom: "label" top: "loss")";
    return text.replace(text.find(loss), loss.size(), loss + " loss_param { ignore_label: 7 }");
  };
  const auto distance = [](const Ending& one, const Ending& many) {
    double most = 0;
    for (std::size_t i = 0; i < one.weights.size(); ++i) {
      most = std::max(most, at::linalg_vector_norm(many.weights[i].sub(one.weights[i])).item<double>() /
                                at::linalg_vector_norm(one.weights[i]).item<double>());
    }
    return most;
  };
  const std::string solver = "momentum: 0.9 weight_decay: 0.01 test_iter: 1 test_interval: 100 ";
  const Ending one = RunCluster(Parameters(masked(4), solver), 1, false, DType::kF64, 23);
  for (const bool factors : {false, true}) {
    for (const int world : {2, 4}) {
      const Ending many = RunCluster(Parameters(masked(4 / world), solver), world, factors, DType::kF64, 23);
      EXPECT_LE(distance(one, many), 1e-10) << "world " << world << " factors " << factors;
      EXPECT_THAT(many.notes, IsEmpty());
    }
  }
  // With a loss beside it over labels of its own, or several passes an iteration, one number is no weight for all; it is said.
  for (const std::string& extra : {sigmoid, std::string()}) {
    const std::string passes = solver + (extra.empty() ? "iter_size: 2" : "");
    const Ending many = RunCluster(Parameters(masked(2, extra), passes), 2, false, DType::kF64, 23);
    EXPECT_THAT(many.notes, ElementsAre(HasSubstr("workers count alike"))) << extra;
  }
}

// The same weights give the same means, bit for bit, whoever computes which batch.
TEST_F(SolverTest, TestMeansDoNotDependOnTheNumberOfWorkers) {
  const SolverParameter parameters =
      Parameters(NetText(folder_ / "db", 4), "test_iter: 7 test_interval: 1");
  const Ending one = RunCluster(parameters, 1, false, DType::kF32, 0);
  ASSERT_EQ(one.tests.size(), 1u);
  ASSERT_EQ(one.tests[0].outputs.size(), 2u);
  EXPECT_EQ(one.tests[0].outputs[0].name, "accuracy");
  for (const int world : {2, 3, 9}) {
    const Ending many = RunCluster(parameters, world, false, DType::kF32, 0);
    EXPECT_EQ(many.tests[0].outputs[0].value, one.tests[0].outputs[0].value);
    EXPECT_EQ(many.tests[0].outputs[1].value, one.tests[0].outputs[1].value);
  }
}

// Objects of twelve images are found where they are, and again in the next image of the batch, which is wrong but by chance; how sure that is
// depends on the object's width.
TEST_F(SolverTest, AveragePrecisionDoesNotDependOnTheNumberOfWorkers) {
  WriteObjectsDatabase(
      folder_ / "boxes", 12, [](std::uint64_t i) { return TestDatum(i, 1, 6, 6); },
      [](std::uint64_t i, std::uint64_t k) {
        return TestBox(0.3F * static_cast<float>(k), 0.1F, 0.95F - 0.05F * static_cast<float>(i * 5 % 12), 0.6F);
      });
  const auto layer = [](const std::string& type, const std::string& bottoms, const std::string& tops, const std::string& options) {
    std::string text = "layer { name: '" + tops + "' type: '" + type + "' ";
    for (std::size_t at = 0; at < bottoms.size(); at += 2) text += "bottom: '" + bottoms.substr(at, 1) + "' ";
    for (std::size_t at = 0; at < tops.size(); at += 2) text += "top: '" + tops.substr(at, 1) + "' ";
    return text + options + " }\n";
  };
  const std::string test_net =
      layer("AnnotatedData", "", "p l", "data_param { source: '" + folder_ / "boxes" + "' backend: LMDB batch_size: 2 }") +
      layer("Silence", "p", "", "") +
      layer("Slice", "l", "m c s a w y d", "slice_param { axis: 3 slice_point: 1 slice_point: 2 slice_point: 3 slice_point: 5 slice_point: 6 "
                                           "slice_point: 7 }") +
      layer("Silence", "s d", "", "") + layer("Power", "m", "n", "power_param { shift: 1 }") +
      layer("Power", "w", "v", "power_param { scale: 0.6 }") + layer("Concat", "m c v a w y", "g", "concat_param { axis: 3 }") +
      layer("Concat", "n c w a w y", "h", "concat_param { axis: 3 }") + layer("Concat", "g h", "f", "concat_param { axis: 2 }") +
      layer("DetectionEvaluate", "f l", "e", "detection_evaluate_param { num_classes: 3 }");
  SolverParameter parameters = Parameters(NetText(folder_ / "db", 4), "test_iter: 6 test_interval: 1 eval_type: 'detection' show_per_class_result: true");
  parameters.mutable_train_net_param()->Swap(parameters.mutable_net_param());
  parameters.clear_net_param();
  ASSERT_TRUE(ParseText(test_net, "test net", parameters.add_test_net_param()).ok());
  const Ending one = RunCluster(parameters, 1, false, DType::kF32, 0);
  ASSERT_EQ(one.tests.size(), 1u);
  ASSERT_EQ(one.tests[0].outputs.size(), 1u);
  EXPECT_EQ(one.tests[0].outputs[0].name, "e");
  EXPECT_GT(one.tests[0].outputs[0].value, 0.3);
  EXPECT_LT(one.tests[0].outputs[0].value, 0.8);
  EXPECT_THAT(one.notes, ElementsAre(HasSubstr("average precision by class: 1: 0.")));
  for (const int world : {2, 3, 9}) {
    EXPECT_EQ(RunCluster(parameters, world, false, DType::kF32, 0).tests[0].outputs[0].value, one.tests[0].outputs[0].value) << world;
  }
  parameters.set_ap_version("VOC");
  EXPECT_THAT(Solver::Create(parameters, {}).status().message(), HasSubstr("expected Integral, MaxIntegral or 11point"));
}

TEST_F(SolverTest, AnotherNumberOfWorkersGoesOnFromASnapshot) {
  const std::string text = "momentum: 0.9 ";
  Recorder log;
  SolverOptions options;
  options.dtype = DType::kF64;
  options.observer = &log;
  auto one = Make(Parameters(NetText(folder_ / "db", 6), text), options);
  ASSERT_TRUE(one->Step(4).ok());
  ASSERT_TRUE(one->Snapshot().ok());
  ASSERT_TRUE(one->Step(3).ok());
  // Two halves of each batch of the run above, as workers that see one half each.
  DataShare share;
  share.world = 2;
  share.since = 4;
  share.taken = 8;  // of batches of 3 rows
  double halves = 0;
  for (share.rank = 0; share.rank < 2; ++share.rank) {
    Recorder half_log;
    SolverOptions half = options;
    half.observer = &half_log;
    half.share = share;
    auto worker = Make(Parameters(NetText(folder_ / "db", 3), text), half);
    ASSERT_TRUE(worker->Restore(folder_ / "snap_iter_4.solverstate").ok());
    ASSERT_TRUE(worker->Step(1).ok());
    halves += half_log.iterations[0].loss / 2;
  }
  EXPECT_NEAR(halves, log.iterations[4].loss, 1e-6);
}

TEST_F(SolverTest, HashesWeightsAsFloatsInOrder) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    SolverOptions options;
    options.dtype = dtype;
    auto solver = Make(Parameters(NetText(folder_ / "db", 4), ""), options);
    std::string bytes;
    for (const LearnableParam& param : solver->net().learnable_params()) {
      const at::Tensor floats = param.blob.data.to(at::kFloat).contiguous();
      bytes.append(reinterpret_cast<const char*>(floats.const_data_ptr<float>()),
                   static_cast<std::size_t>(floats.numel()) * 4);
    }
    unsigned char digest[32];
    EVP_Digest(bytes.data(), bytes.size(), digest, nullptr, EVP_sha256(), nullptr);
    std::string want;
    for (const unsigned char byte : digest) {
      char text[3];
      std::snprintf(text, sizeof text, "%02x", byte);
      want += text;
    }
    EXPECT_EQ(WeightsHash(solver->net()), want);
  }
}

// --- What happens when ---------------------------------------------------------------------------

std::vector<std::uint64_t> TestIterations(const Recorder& log) {
  std::vector<std::uint64_t> iterations;
  for (const TestReport& test : log.tests) iterations.push_back(test.iteration);
  return iterations;
}

TEST_F(SolverTest, TestsDisplaysAndSnapshotsWhenCaffeDoes) {
  Recorder log;
  SolverOptions options;
  options.observer = &log;
  const std::string text =
      "max_iter: 6 display: 2 average_loss: 3 snapshot: 4 test_iter: 2 test_interval: 3 ";
  auto solver =
      Make(Parameters(NetText(folder_ / "db", 4), text + "snapshot_after_train: true"), options);
  ASSERT_TRUE(solver->Solve().ok());
  EXPECT_THAT(TestIterations(log), ElementsAre(0, 3, 6));
  ASSERT_EQ(log.iterations.size(), 7u);
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(log.iterations[i].iteration, i);
    EXPECT_EQ(log.iterations[i].display, i % 2 == 0);
    EXPECT_EQ(log.iterations[i].closing, i == 6);
    EXPECT_EQ(log.iterations[i].outputs.empty(), i % 2 == 1);
    double sum = 0;
    for (std::size_t k = i < 3 ? 0 : i - 2; k <= i; ++k) sum += log.iterations[k].loss;
    EXPECT_NEAR(log.iterations[i].smoothed_loss,
                sum / static_cast<double>(std::min<std::size_t>(i + 1, 3)), 1e-6);
  }
  ASSERT_EQ(log.snapshots.size(), 2u);
  EXPECT_EQ(log.snapshots[0].iteration, 4u);
  EXPECT_EQ(log.snapshots[1].iteration, 6u);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "snap_iter_6.solverstate"));

  log = {};
  auto quiet =
      Make(Parameters(NetText(folder_ / "db", 4), text + "test_initialization: false"), options);
  ASSERT_TRUE(quiet->Solve().ok());
  EXPECT_THAT(TestIterations(log), ElementsAre(3, 6));
  EXPECT_EQ(log.snapshots.size(), 1u);
}

TEST_F(SolverTest, StopsWhenAsked) {
  const auto run = [&](SolverAction action, bool after_train) {
    Recorder log;
    SolverOptions options;
    options.observer = &log;
    options.poll = [&](std::uint64_t done) { return done == 3 ? action : SolverAction::kNone; };
    const std::string text = after_train ? "snapshot_after_train: true" : "";
    auto solver = Make(Parameters(NetText(folder_ / "db", 4), "max_iter: 5 " + text), options);
    EXPECT_TRUE(solver->Solve().ok());
    std::vector<std::uint64_t> snapshots;
    for (const SnapshotReport& report : log.snapshots) snapshots.push_back(report.iteration);
    return std::make_pair(solver->iteration(), snapshots);
  };
  using Iterations = std::vector<std::uint64_t>;
  EXPECT_EQ(run(SolverAction::kStop, true), std::make_pair(std::uint64_t{3}, Iterations{3}));
  EXPECT_EQ(run(SolverAction::kStop, false), std::make_pair(std::uint64_t{3}, Iterations{}));
  EXPECT_EQ(run(SolverAction::kSnapshotAndStop, true),
            std::make_pair(std::uint64_t{3}, Iterations{3}));
  EXPECT_EQ(run(SolverAction::kSnapshotAndStop, false),
            std::make_pair(std::uint64_t{3}, Iterations{3}));
  EXPECT_EQ(run(SolverAction::kSnapshot, false), std::make_pair(std::uint64_t{5}, Iterations{3}));
}

TEST_F(SolverTest, TracesAndTimesLayers) {
  std::vector<TraceSpan> spans;
  SolverOptions options;
  options.trace = [&spans](const TraceSpan& span) { spans.push_back(span); };
  auto solver = Make(Parameters(NetText(folder_ / "db", 4), ""), options);
  ASSERT_TRUE(solver->Step(3).ok());
  int updates = 0;
  for (const TraceSpan& span : spans) {
    EXPECT_LE(span.begin, span.end);
    if (std::strcmp(span.label, "update") == 0) ++updates;
  }
  EXPECT_EQ(updates, 6);
  EXPECT_EQ(solver->layer_clock().iterations(), 2);
  const auto means = solver->layer_clock().Means();
  const auto ip1 = static_cast<std::size_t>(solver->net().LayerIndex("ip1"));
  EXPECT_GT(means[ip1].forward, 0);
  EXPECT_GT(means[ip1].backward, 0);
}

TEST_F(SolverTest, UpdatesWhatHasArrivedWhileAnotherLayerIsWaitedFor) {
  std::vector<TraceSpan> spans;
  SolverOptions options;
  options.trace = [&spans](const TraceSpan& span) { spans.push_back(span); };
  auto solver = Make(Parameters(NetText(folder_ / "db", 4), ""), options);
  TestCluster cluster(1, false);
  TestCluster::Worker worker(&cluster, 0, &solver->net());  // says that ip2 arrived before ip1
  solver->Connect(&worker, &worker);
  ASSERT_TRUE(solver->Step(2).ok());
  std::vector<std::int32_t> updated;
  for (const TraceSpan& span : spans) {
    if (std::strcmp(span.label, "update") == 0) updated.push_back(span.layer);
  }
  const int ip1 = solver->net().LayerIndex("ip1");
  const int ip2 = solver->net().LayerIndex("ip2");
  EXPECT_EQ(updated, (std::vector<std::int32_t>{ip2, ip1, ip2, ip1}));
}

// --- Numbers that are not finite -----------------------------------------------------------------

// Overflows at once.
constexpr char kExplodes[] = R"(
    layer { name: "huge" type: "Power" bottom: "ip1" top: "ip1" power_param { scale: 3e38 shift: 3e38 } })";

TEST_F(SolverTest, ALossThatIsNotFiniteStopsTrainingAndIsLocated) {
  Recorder log;
  SolverOptions options;
  options.observer = &log;
  options.stops_when_not_finite = true;
  auto solver = Make(Parameters(NetText(folder_ / "db", 4, kExplodes), "max_iter: 9 snapshot: 1"), options);
  ASSERT_TRUE(solver->Solve().ok());
  ASSERT_TRUE(solver->not_finite().has_value());
  EXPECT_EQ(solver->iteration(), 1u);
  EXPECT_TRUE(solver->stopped());
  EXPECT_TRUE(log.snapshots.empty());
  EXPECT_EQ(InWords(*solver->not_finite(), solver->net(), 1),
            "the loss is nan at iteration 0 in layer 'loss' (SoftmaxWithLoss); the first numbers that are not finite "
            "are in the output of layer 'ip1' (InnerProduct) or of a layer that works on it in place");
  EXPECT_TRUE(log.not_finite.empty()) << "the one who stops it says so";
}

TEST_F(SolverTest, ALossThatIsNotFiniteIsSaidOnceWhereTrainingGoesOn) {
  Recorder log;
  SolverOptions options;
  options.observer = &log;
  auto solver = Make(Parameters(NetText(folder_ / "db", 4, kExplodes), "max_iter: 4 snapshot: 2"), options);
  ASSERT_TRUE(solver->Solve().ok());
  EXPECT_EQ(solver->iteration(), 4u);
  EXPECT_EQ(log.snapshots.size(), 2u);
  ASSERT_EQ(log.not_finite.size(), 1u);
  EXPECT_THAT(log.not_finite[0], HasSubstr("at iteration 0"));
}

TEST_F(SolverTest, BrokenWeightsBehindAFiniteLossAreNotWritten) {
  Recorder log;
  SolverOptions options;
  options.observer = &log;
  options.stops_when_not_finite = true;
  auto solver = Make(Parameters(NetText(folder_ / "db", 4), "momentum: 0.9 max_iter: 9 snapshot: 2"), options);
  ASSERT_TRUE(solver->Step(1).ok());
  // The update between this iteration, whose loss is fine, and its snapshot breaks them.
  solver->history().at(0, 0).fill_(std::numeric_limits<float>::quiet_NaN());
  ASSERT_TRUE(solver->Step(8).ok());
  EXPECT_EQ(solver->iteration(), 2u);
  EXPECT_TRUE(log.snapshots.empty());
  ASSERT_TRUE(solver->not_finite().has_value());
  EXPECT_EQ(InWords(*solver->not_finite(), solver->net(), 1),
            "weights are not finite at iteration 1: the first are those of layer 'ip1' (InnerProduct)");
}

TEST_F(SolverTest, AllWorkersStopAtTheSameIterationWithTheSameSentence) {
  TestCluster cluster(2, false);
  std::array<std::string, 2> sentences;
  std::array<std::uint64_t, 2> iterations{};
  std::array<std::size_t, 2> snapshots{};
  const SolverParameter parameters = Parameters(NetText(folder_ / "db", 4), "max_iter: 8 snapshot: 3");
  std::vector<std::thread> workers;
  for (int rank = 0; rank < 2; ++rank) {
    workers.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      Recorder log;
      SolverOptions options;
      options.share = {.rank = rank, .world = 2};
      options.observer = &log;
      options.stops_when_not_finite = true;
      options.feed = [&](Net& net, const PassContext& pass) {
        // The second worker alone sees the loss break.
        if (rank == 1 && pass.step == 2) net.layer(net.LayerIndex("ip2")).blobs()[1].data.fill_(3e38F).mul_(10);
        return OkStatus();
      };
      auto solver = Make(parameters, options);
      TestCluster::Worker worker(&cluster, rank, &solver->net());
      solver->Connect(&worker, &worker);
      EXPECT_TRUE(solver->Solve().ok());
      iterations[index] = solver->iteration();
      snapshots[index] = log.snapshots.size();
      if (solver->not_finite()) sentences[index] = InWords(*solver->not_finite(), solver->net(), 2);
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_THAT(sentences[0], HasSubstr("at iteration 2 on worker 1 in layer 'loss'"));
  EXPECT_EQ(sentences[1], sentences[0]);
  EXPECT_EQ(iterations[0], 3u) << "the snapshot that is due is where they agree";
  EXPECT_EQ(iterations[1], 3u);
  EXPECT_EQ(snapshots[0], 0u);
}

TEST_F(SolverTest, TheNextTestGoesOnWithTheWorkerThatIsNext) {
  TestCluster cluster(2, false);
  std::array<std::vector<int>, 2> computed;  // by worker: numbers within the second test of five batches
  std::vector<std::thread> workers;
  for (int rank = 0; rank < 2; ++rank) {
    workers.emplace_back([&, rank] {
      auto solver = Make(Parameters(NetText(folder_ / "db", 4), ""));
      TestCluster::Worker worker(&cluster, rank, &solver->net());
      TestRun run{.first_batch = 5, .batches = 5, .share = {.rank = rank, .world = 2}, .collectives = &worker};
      run.on_batch = [&](int batch, const std::vector<OutputValue>&) { At(computed, rank).push_back(batch); };
      EXPECT_TRUE(RunTest(&solver->net(), run).ok());
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_THAT(computed[0], ElementsAre(1, 3));  // 0, 2 and 4 of the first test, so 6 and 8 of all
  EXPECT_THAT(computed[1], ElementsAre(0, 2, 4));
}

// The gradients of the iteration before it are on their way, or those of its own.
TEST_F(SolverTest, AnIterationThatFailsUpdatesNoLayerOnSeveralWorkers) {
  const SolverParameter parameters = Parameters(NetText(folder_ / "db", 4), "momentum: 0.9");
  const auto hashes_after = [&](const std::string& failing, std::uint64_t iterations) {
    TestCluster cluster(2, false);
    std::vector<std::string> hashes(2);
    std::vector<std::thread> workers;
    for (int rank = 0; rank < 2; ++rank) {
      workers.emplace_back([&, rank] {
        std::unique_ptr<Solver> solver;
        const auto call = [&](const std::string& where) {
          return where == failing && solver->iteration() == 2 ? Internal("mine") : OkStatus();
        };
        SolverOptions options;
        options.share = {.rank = rank, .world = 2};
        options.feed = [&](Net&, const PassContext&) { return call("feed"); };
        solver = Make(parameters, options);
        if (failing == "begins") solver->CallInIterations({.begins = [&] { return call("begins"); }, .gradients_ready = {}});
        if (failing == "ready") solver->CallInIterations({.begins = {}, .gradients_ready = [&] { return call("ready"); }});
        TestCluster::Worker worker(&cluster, rank, &solver->net());
        solver->Connect(&worker, &worker);
        EXPECT_EQ(solver->Step(iterations).ok(), failing.empty());
        EXPECT_EQ(solver->iteration(), 2u);
        EXPECT_TRUE(solver->TestAll().ok());  // which needs all updates
        hashes[static_cast<std::size_t>(rank)] = WeightsHash(solver->net());
      });
    }
    for (std::thread& worker : workers) worker.join();
    return hashes;
  };
  const std::vector<std::string> expected = hashes_after("", 2);
  for (const char* const failing : {"begins", "feed", "ready"}) EXPECT_EQ(hashes_after(failing, 5), expected) << failing;
}

// --- What a solver file asks for -----------------------------------------------------------------

TEST_F(SolverTest, DebugInfoIsShownWhereAnIterationIs) {
  Recorder log;
  SolverOptions options;
  options.observer = &log;
  const std::string text = "momentum: 0.9 weight_decay: 0.01 display: 2 ";
  auto shown = Make(Parameters(NetText(folder_ / "db", 4), text + "debug_info: true"), options);
  ASSERT_TRUE(shown->Step(2).ok());
  auto quiet = Make(Parameters(NetText(folder_ / "db", 4), text));
  ASSERT_TRUE(quiet->Step(2).ok());
  EXPECT_EQ(WeightsHash(shown->net()), WeightsHash(quiet->net()));
  const auto count = [&](const std::string& what) {
    return std::count_if(log.debug.begin(), log.debug.end(),
                         [&](const std::string& line) { return line.find(what) != std::string::npos; });
  };
  EXPECT_EQ(count("[Forward] Layer ip1, top blob ip1 data: "), 1);
  EXPECT_EQ(count("[Backward] Layer ip2, bottom blob ip1 diff: "), 1);
  EXPECT_EQ(count("[Backward] All net params"), 1);
  EXPECT_EQ(count("[Update] Layer ip2, param 1 data: "), 1);
  EXPECT_EQ(count("[Update]"), 4);
}

TEST_F(SolverTest, SnapshotDiffKeepsWhatTheLastUpdateTookOff) {
  auto solver = Make(Parameters(NetText(folder_ / "db", 4), "momentum: 0.9 snapshot_diff: true"));
  ASSERT_TRUE(solver->Step(2).ok());
  ASSERT_TRUE(solver->Snapshot().ok());
  NetParameter model;
  ASSERT_TRUE(ReadBinaryFile(folder_ / "snap_iter_2.caffemodel", &model).ok());
  const at::Tensor& update = solver->history().tensors()[0];  // of SGD the update is its memory
  const int ip1 = solver->net().LayerIndex("ip1");
  const BlobProto& blob = model.layer(ip1).blobs(0);
  ASSERT_EQ(blob.diff_size(), update.numel());
  for (int i = 0; i < blob.diff_size(); ++i) {
    EXPECT_NEAR(blob.diff(i), update.const_data_ptr<float>()[i], 1e-6F);
  }
}

TEST_F(SolverTest, RandSkipBeginsFurtherDown) {
  const auto first_label = [&](const std::string& skip, std::uint64_t seed) {
    std::string text = NetText(folder_ / "db", 4);
    text.insert(text.find("batch_size"), skip);
    SolverOptions options;
    options.seed = seed;
    auto solver = Make(Parameters(text, ""), options);
    EXPECT_TRUE(solver->Step(1).ok());
    return solver->net().blob("label")->data[0].item<float>();
  };
  EXPECT_EQ(first_label("", 1), 0);
  EXPECT_EQ(first_label("rand_skip: 1 ", 1), 0);
  std::set<float> labels;
  for (std::uint64_t seed = 1; seed < 20; ++seed) labels.insert(first_label("rand_skip: 5 ", seed));
  EXPECT_GT(labels.size(), 2u);
  EXPECT_LT(*labels.rbegin(), 5);
  EXPECT_EQ(first_label("rand_skip: 5 ", 7), first_label("rand_skip: 5 ", 7));
}

TEST_F(SolverTest, ATestOfManyBatchesTakesNoMemoryAndEndsWhenAsked) {
  Recorder log;
  SolverOptions options;
  options.observer = &log;
  int asked = 0;
  options.stop_wanted = [&] { return ++asked == 20; };
  auto solver = Make(Parameters(NetText(folder_ / "db", 4), "test_iter: 2147483647 test_interval: 5"), options);
  ASSERT_TRUE(solver->TestAll().ok());
  EXPECT_EQ(asked, 20);
  EXPECT_TRUE(log.tests.empty());
}

// --- Snapshots -----------------------------------------------------------------------------------

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A full disk: the file may not grow beyond a size. The old snapshot stays as it was.
TEST_F(SolverTest, TrainingSurvivesAFullDisk) {
  Recorder log;
  SolverOptions options;
  options.observer = &log;
  auto solver = Make(Parameters(NetText(folder_ / "db", 4), "momentum: 0.9"), options);
  ASSERT_TRUE(solver->Step(2).ok());
  ASSERT_TRUE(solver->Snapshot().ok());
  ASSERT_TRUE(log.snapshots[0].status.ok()) << log.snapshots[0].status.ToString();
  const std::string model = ReadAll(log.snapshots[0].model);
  const std::string state = ReadAll(log.snapshots[0].state);
  EXPECT_GT(model.size(), 1000u);

  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit full { .rlim_cur = 500, .rlim_max = before.rlim_max };
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  const Status same_place = solver->Snapshot();
  const Status further = solver->Step(2);
  const Status other_place = solver->Snapshot();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);

  EXPECT_TRUE(same_place.ok() && further.ok() && other_place.ok());
  ASSERT_EQ(log.snapshots.size(), 3u);
  for (const std::size_t i : {1, 2}) {
    EXPECT_FALSE(log.snapshots[i].status.ok());
    EXPECT_THAT(log.snapshots[i].status.message(), HasSubstr("snap_iter_"));
  }
  EXPECT_EQ(ReadAll(log.snapshots[0].model), model);
  EXPECT_EQ(ReadAll(log.snapshots[0].state), state);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("snap_iter_4", 0) == 0 || name.find("tmp") != std::string::npos)
      names.push_back(name);
  }
  EXPECT_THAT(names, IsEmpty());
  ASSERT_TRUE(solver->Snapshot().ok());
  EXPECT_TRUE(log.snapshots[3].status.ok());
}

TEST_F(SolverTest, TrainingSurvivesALostFolder) {
  std::filesystem::create_directory(folder_ / "out");
  Recorder log;
  SolverOptions options;
  options.observer = &log;
  auto solver = Make(Parameters(NetText(folder_ / "db", 4),
                                "snapshot: 1 snapshot_prefix: '" + (folder_ / "out/snap") + "'"),
                     options);
  std::filesystem::remove_all(folder_ / "out");
  ASSERT_TRUE(solver->Step(2).ok());
  ASSERT_EQ(log.snapshots.size(), 2u);
  EXPECT_FALSE(log.snapshots[1].status.ok());
}

TEST_F(SolverTest, FineTunesByLayerName) {
  auto source = Make(Parameters(NetText(folder_ / "db", 4), ""));
  ASSERT_TRUE(source->Step(3).ok());
  ASSERT_TRUE(source->Snapshot().ok());
  Recorder log;
  SolverOptions options;
  options.seed = 99;
  options.folder = folder_.path();
  options.observer = &log;
  auto target =
      Make(Parameters(NetText(folder_ / "db", 4), "weights: 'snap_iter_3.caffemodel'"), options);
  EXPECT_EQ(WeightsHash(target->net()), WeightsHash(source->net()));
  EXPECT_EQ(target->iteration(), 0u);
  ASSERT_EQ(log.weights.size(), 1u);
  EXPECT_EQ(InWords(log.weights[0]), "");
}

TEST_F(SolverTest, SaysWhichLayersTookNoWeights) {
  auto source = Make(Parameters(NetText(folder_ / "db", 4), ""));
  ASSERT_TRUE(source->Snapshot().ok());
  std::string text = NetText(folder_ / "db", 4);
  for (std::size_t at = 0; (at = text.find("\"ip2", at)) != std::string::npos; ++at) text.replace(at, 4, "\"top");
  Recorder log;
  SolverOptions options;
  options.observer = &log;
  const std::string model = folder_ / "snap_iter_0.caffemodel";
  auto target = Make(Parameters(text, "weights: '" + model + "'"), options);
  ASSERT_EQ(log.weights.size(), 1u);
  EXPECT_EQ(InWords(log.weights[0]),
            "weights of " + model + "; not in the net: ip2; not in the file, left as they were: top");
}

TEST_F(SolverTest, RefusesWeightsOfOtherLayersOnly) {
  auto source = Make(Parameters(NetText(folder_ / "db", 4), ""));
  ASSERT_TRUE(source->Snapshot().ok());
  std::string text = NetText(folder_ / "db", 4);
  for (std::size_t at = 0; (at = text.find("\"ip", at)) != std::string::npos; at += 3) text.replace(at, 3, "\"fc");
  auto target = Make(Parameters(text, ""));
  EXPECT_THAT(target->LoadWeightFiles(folder_ / "snap_iter_0.caffemodel").message(),
              HasSubstr("snap_iter_0.caffemodel has weights for 2 layers and none of them is in the net"));
}

TEST_F(SolverTest, RefusesSnapshotsThatDoNotFit) {
  auto sgd = Make(Parameters(NetText(folder_ / "db", 4), ""));
  ASSERT_TRUE(sgd->Snapshot().ok());
  auto adam = Make(Parameters(NetText(folder_ / "db", 4), "type: 'Adam'"));
  const std::string state = folder_ / "snap_iter_0.solverstate";
  EXPECT_THAT(adam->Restore(state).message(), HasSubstr("holds the history of solver type SGD, expected Adam's"));
  Recorder log;
  SolverOptions options;
  options.observer = &log;
  EXPECT_TRUE(Make(Parameters(NetText(folder_ / "db", 4), "type: 'Nesterov'"), options)->Restore(state).ok());
  EXPECT_THAT(log.notes, ElementsAre(state + " was written by solver type SGD; Nesterov goes on with its momentum"));
  EXPECT_THAT(Make(Parameters(NetText(folder_ / "db", 4), "type: 'AdaGrad'"))->Restore(state).message(),
              HasSubstr("expected AdaGrad's"));
  // Caffe does not say whose history it is.
  SolverState unnamed;
  ASSERT_TRUE(ReadBinaryFile(state, &unnamed).ok());
  unnamed.clear_solver_type();
  ASSERT_TRUE(WriteBinaryFile(unnamed, state).ok());
  EXPECT_THAT(adam->Restore(state).message(), HasSubstr("holds 4 history blobs, expected 8"));
  EXPECT_TRUE(Make(Parameters(NetText(folder_ / "db", 4), "type: 'AdaGrad'"))->Restore(state).ok());
  auto other = Make(Parameters(NetText(folder_ / "db", 4, R"(
    layer { name: "mid" type: "InnerProduct" bottom: "ip1" top: "ip1b"
            inner_product_param { num_output: 2 } })"),
                               ""));
  EXPECT_THAT(other->Restore(state).message(), HasSubstr("expected 6"));
  std::string bytes = ReadAll(state);
  std::ofstream(state, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  EXPECT_THAT(sgd->Restore(state).message(), HasSubstr("snap_iter_0.solverstate"));
  std::ofstream(state, std::ios::binary) << "\x89HDF\r\n\x1a\n and so on";
  EXPECT_THAT(sgd->Restore(state).message(), HasSubstr("HDF5"));
  EXPECT_THAT(sgd->Restore(folder_ / "none").message(), HasSubstr("none"));
}

TEST_F(SolverTest, ResumesFromHdf5BitForBit) {
  const std::string text = "momentum: 0.9 type: 'Adam' snapshot_format: HDF5";
  auto whole = Make(Parameters(NetText(folder_ / "db", 4), text));
  ASSERT_TRUE(whole->Step(5).ok());
  ASSERT_TRUE(whole->Snapshot().ok());
  const std::string half = WeightsHash(whole->net());
  ASSERT_TRUE(whole->Step(5).ok());
  auto resumed = Make(Parameters(NetText(folder_ / "db", 4), text));
  const Status restored = resumed->Restore(folder_ / "snap_iter_5.solverstate.h5");
  ASSERT_TRUE(restored.ok()) << restored.ToString();
  ASSERT_TRUE(resumed->Step(5).ok());
  EXPECT_EQ(WeightsHash(resumed->net()), WeightsHash(whole->net()));
  SolverOptions options;
  options.seed = 7;
  const std::string model = folder_ / "snap_iter_5.caffemodel.h5";
  auto tuned = Make(Parameters(NetText(folder_ / "db", 4), "weights: '" + model + "'"), options);
  EXPECT_EQ(WeightsHash(tuned->net()), half);
  std::ofstream(folder_ / "text.caffemodel.h5") << "no such thing";
  EXPECT_THAT(tuned->LoadWeightFiles(folder_ / "text.caffemodel.h5").message(), HasSubstr("is not an HDF5 file"));
  std::ofstream(folder_ / "cut.caffemodel.h5", std::ios::binary) << ReadAll(model).substr(0, 900);
  EXPECT_THAT(tuned->LoadWeightFiles(folder_ / "cut.caffemodel.h5").message(), HasSubstr("cut.caffemodel.h5"));
}

// Caffe's HDF5 files hold a shared blob once, in the layer that owns it.
TEST_F(SolverTest, AnHdf5ModelMayLeaveSharedBlobsOut) {
  std::string text = NetText(folder_ / "db", 4, R"(
    layer { name: "twice" type: "Scale" bottom: "data" top: "a" param { name: "s" } }
    layer { name: "again" type: "Scale" bottom: "a" top: "b" param { name: "s" } }
    layer { name: "quiet" type: "Silence" bottom: "b" })");
  auto source = Make(Parameters(text, ""));
  source->net().layer(source->net().LayerIndex("twice")).blobs()[0].data.fill_(3);
  NetParameter model = source->net().ToProto();
  for (LayerParameter& layer : *model.mutable_layer()) {
    if (layer.name() == "again") layer.clear_blobs();
  }
  const auto bytes = ToHdf5(model);
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  ASSERT_TRUE(WriteFileAtomically(*bytes, folder_ / "owners.caffemodel.h5").ok());
  SolverOptions options;
  options.seed = 8;
  auto target = Make(Parameters(text, "weights: '" + (folder_ / "owners.caffemodel.h5") + "'"), options);
  ASSERT_NE(target, nullptr);
  EXPECT_EQ(WeightsHash(target->net()), WeightsHash(source->net()));
}

// --- A solver file's mistakes --------------------------------------------------------------------

TEST_F(SolverTest, RefusesWithASentence) {
  const std::string net = NetText(folder_ / "db", 4);
  EXPECT_THAT(Refusal(net, "type: 'Lion'"), HasSubstr("expected one of SGD"));
  EXPECT_THAT(Refusal(net, "lr_policy: 'cosine'"), HasSubstr("unknown lr_policy 'cosine'"));
  EXPECT_THAT(Refusal(net, "iter_size: 0"), HasSubstr("iter_size is 0"));
  EXPECT_THAT(Refusal(net, "average_loss: 0"), HasSubstr("average_loss is 0"));
  EXPECT_THAT(Refusal(net, "snapshot_format: HDF5 snapshot_diff: true"), HasSubstr("snapshot_diff"));
  EXPECT_THAT(Refusal(net, "snapshot: 1 snapshot_prefix: '/dev/null/x/y'"), HasSubstr("/dev/null/x/y"));
  EXPECT_THAT(Refusal(net, "test_iter: 2"), HasSubstr("test_interval is 0"));
  EXPECT_THAT(Refusal(net, "test_iter: 0 test_interval: 1"), HasSubstr("test_iter is 0"));
  EXPECT_THAT(Refusal(net, "train_net: 'x'"), HasSubstr("names 2 training nets"));
  EXPECT_THAT(Refusal(NetText(folder_ / "gone", 4), ""), HasSubstr("gone does not exist"));
}

TEST(SolverNets, AreReadByCaffesRules) {
  TestFolder folder;
  std::ofstream(folder / "net.prototxt") << R"(
    name: "both" state { stage: "own" } layer { name: "x" type: "Input" top: "x"
    input_param { shape { dim: 1 } } })";
  SolverParameter solver;
  ASSERT_TRUE(ParseText(R"(net: "net.prototxt" train_state { stage: "t" level: 2 }
      test_net_param { name: "inline" } test_iter: 1 test_iter: 2 test_interval: 1
      test_state { stage: "a" } test_state { stage: "b" })",
                        "s", &solver)
                  .ok());
  auto nets = ReadSolverNets(solver, folder.path());
  ASSERT_TRUE(nets.ok()) << nets.status().ToString();
  EXPECT_EQ(nets->train.state.phase(), TRAIN);
  EXPECT_EQ(nets->train.state.level(), 2);
  EXPECT_THAT(nets->train.state.stage(), ElementsAre("own", "t"));
  ASSERT_EQ(nets->tests.size(), 2u);
  EXPECT_EQ(nets->tests[0].net.name(), "inline");
  EXPECT_THAT(nets->tests[0].state.stage(), ElementsAre("a"));
  EXPECT_EQ(nets->tests[1].net.name(), "both");
  EXPECT_EQ(nets->tests[1].state.phase(), TEST);
  EXPECT_THAT(nets->tests[1].state.stage(), ElementsAre("own", "b"));
}

TEST(RunTest, RefusesOutputsOfAnotherShape) {
  const auto net = MakeNet(
      "layer { name: 'in' type: 'Input' top: 'x' top: 'keep' input_param { shape { dim: 4 } shape { dim: 4 } } }"
      "layer { name: 'f' type: 'Filter' bottom: 'x' bottom: 'keep' top: 'fx' }",
      TEST);
  net->blob("keep")->data.zero_();
  EXPECT_EQ(RunTest(net.get(), {.batches = 1}).status().message(),
            "the test net's outputs hold 0 numbers after batch 0, expected 4 in every batch: their mean has no "
            "meaning else");
}

TEST(SnapshotPrefix, IsCompletedAsCaffeDoes) {
  TestFolder folder;
  EXPECT_EQ(CompleteSnapshotPrefix("", "a/lenet_solver.prototxt"), "a/lenet_solver");
  EXPECT_EQ(CompleteSnapshotPrefix("snap/x", "a/s.prototxt"), "snap/x");
  EXPECT_EQ(CompleteSnapshotPrefix(folder.path(), "a/s.prototxt"), folder / "s");
}

}  // namespace
}  // namespace poseidon::caffe
