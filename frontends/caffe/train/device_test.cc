// SPDX-License-Identifier: Apache-2.0
// Training on a device that does its work later than it is asked to (tests/shared/late_device), whose memory holds NaN before and
// after: whoever does not wait for it finds that. With POSEIDON_TEST_DEVICE=cuda, on the GPUs here, of which one serves both workers too.
#include <ATen/Context.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "frontends/caffe/engine/engine.h"
#include "frontends/caffe/net/placement.h"
#include "frontends/caffe/proto/at.h"
#include "frontends/caffe/solver/weights_hash.h"
#include "frontends/caffe/train/determinism.h"
#include "frontends/caffe/train/engine_device.h"
#include "frontends/caffe/train/session_sync.h"
#include "poseidon/base/thread_executor.h"
#include "tests/shared/caffe_workers.h"
#include "tests/shared/gradient_checker.h"

namespace poseidon::caffe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int kWorkers = 2;
constexpr int kSteps = 7;

bool OnGpu() {
  const char* const device = std::getenv("POSEIDON_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "cuda";
}

// A function of the library that makes the device known to the engine.
template <typename Function>
Function OfDevice(const char* name) {
  static void* const library = ::dlopen(POSEIDON_LATE_DEVICE, RTLD_NOW | RTLD_GLOBAL);
  EXPECT_NE(library, nullptr) << ::dlerror();
  return reinterpret_cast<Function>(::dlsym(library, name));
}

// Makes the device known to the engine, with two devices of its kind: microseconds before each computation and each copy.
void LoadDevice(int computations = 100, int copies = 50) {
  if (OnGpu()) return;
  OfDevice<void (*)(int, int)>("late_set_delays")(computations, copies);
}

// How often this thread has waited for the device.
long Waits() { return OnGpu() ? 0 : OfDevice<long (*)()>("late_waits")(); }

Placement Device(int index) {
  const Result<Placement> placement = Placement::OnAccelerator(OnGpu() && Placement::Accelerators() == 1 ? 0 : index);
  EXPECT_TRUE(placement.ok()) << placement.status().message();
  return placement.ok() ? *placement : Placement();
}

std::string NetText() {
  return InputsOf("data 4x3x9x9 label 4") +
         "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' "
         "  convolution_param { num_output: 8 kernel_size: 3 bias_term: false weight_filler { type: 'msra' } } } "
         "layer { name: 'norm' type: 'BatchNorm' bottom: 'conv' top: 'norm' } "
         "layer { name: 'scale' type: 'Scale' bottom: 'norm' top: 'norm' scale_param { bias_term: true } } "
         "layer { name: 'relu' type: 'ReLU' bottom: 'norm' top: 'norm' } "
         "layer { name: 'lrn' type: 'LRN' bottom: 'norm' top: 'lrn' lrn_param { local_size: 3 alpha: 0.1 } } "
         "layer { name: 'pool' type: 'Pooling' bottom: 'lrn' top: 'pool' pooling_param { kernel_size: 3 stride: 2 } } "
         "layer { name: 'scaled' type: 'BatchNorm' bottom: 'pool' top: 'pool' batch_norm_param { scale_bias: true } } "
         "layer { name: 'wide' type: 'InnerProduct' bottom: 'pool' top: 'wide' "
         "  inner_product_param { num_output: 300 weight_filler { type: 'xavier' } } } "
         "layer { name: 'drop' type: 'Dropout' bottom: 'wide' top: 'wide' } "
         "layer { name: 'ip' type: 'InnerProduct' bottom: 'wide' top: 'ip' "
         "  inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } } "
         "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }";
}

struct Setting {
  std::string name;
  std::string solver;
  plan::Scheme wide = plan::Scheme::kKeyValue;
  double most = 2e-5;  // that a weight may differ by
};

struct Trained {
  std::vector<std::string> hashes;  // by rank
  at::Tensor weights;               // of rank 0, on the host
  double loss = 0;
  long waits = 0;  // for the device
  std::vector<plan::LayerSeconds> seconds;
};

class DeviceTest : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override { LoadDevice(); }

  static Result<std::unique_ptr<Solver>> MakeSolver(int rank, const Placement& placement) {
    SolverParameter parameters;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        "base_lr: 0.05 lr_policy: 'fixed' max_iter: 100 weight_decay: 0.001 snapshot_after_train: false " + GetParam().solver +
            " net_param { " + NetText() + " }",
        &parameters));
    SolverOptions options;
    options.seed = 5;
    options.placement = placement;
    options.share.rank = rank;
    options.share.world = kWorkers;
    options.writes_snapshots = false;
    options.feed = [rank](Net& net, const PassContext& pass) {
      const std::uint64_t seed = 2 * pass.batch + static_cast<std::uint64_t>(rank);
      WriteOnHost(net.blob("data")->data, [&](const at::Tensor& host) { FillTestNumbers(host, 1 + seed); });
      WriteOnHost(net.blob("label")->data, [&](const at::Tensor& host) { FillTestNumbers(host, 100 + seed, {0, 7, true}); });
      return OkStatus();
    };
    return Solver::Create(parameters, std::move(options));
  }

  // Two workers, each on a device of its own, or both on the host.
  static Trained Train(bool on_device) {
    Trained trained;
    trained.hashes.resize(kWorkers);
    const auto placed = [&](int rank) { return on_device ? Device(rank) : Placement(); };
    OnWorkers(
        kWorkers,
        [&](int rank, session::Session& session) {
          auto solver = MakeSolver(rank, placed(rank));
          ASSERT_TRUE(solver.ok()) << solver.status().message();
          SessionSync::Options sync_options;
          sync_options.iter_size = (*solver)->parameters().iter_size();
          sync_options.layer_seconds = [&] { return (*solver)->layer_clock().Means(); };
          SessionSync sync(session, (*solver)->net(), (*solver)->SyncedLayers(), std::move(sync_options));
          const Status begun = sync.Begin();
          ASSERT_TRUE(begun.ok()) << begun.message();
          (*solver)->Connect(&sync, &sync);
          const long before = Waits();
          const Status stepped = (*solver)->Step(kSteps);
          if (rank == 0) trained.waits = Waits() - before;
          ASSERT_TRUE(stepped.ok()) << stepped.message();
          At(trained.hashes, rank) = WeightsHash((*solver)->net());
          if (rank == 0) {
            const EngineGuard guard;
            std::vector<at::Tensor> weights;
            for (const LearnableParam& param : (*solver)->net().learnable_params()) weights.push_back(OnHost(param.blob.data).view({-1}));
            trained.weights = at::cat(weights);
            trained.loss = (*solver)->last_loss();
            trained.seconds = (*solver)->layer_clock().Means();
          }
        },
        [&](int rank, session::SessionOptions* options) {
          options->node.planning.forced = {{"wide", GetParam().wide}};
          if (!on_device) return;
          options->device = [placement = placed(rank)](Executor& io) { return std::make_unique<EngineDevice>(io, placement); };
        });
    return trained;
  }
};

TEST_P(DeviceTest, TrainsAsOnTheHost) {
  const Trained here = Train(false);
  const Trained there = Train(true);
  EXPECT_EQ(there.hashes[0], there.hashes[1]) << "replicas have the same bits";
  ASSERT_EQ(there.weights.numel(), here.weights.numel());
  EXPECT_LT(there.weights.sub(here.weights).abs().max().item<double>(), GetParam().most);
  EXPECT_NEAR(there.loss, here.loss, 1e-4);
  // Each of the layer's operators takes a tenth of a millisecond and more, on the device of the tests; launching them takes less.
  EXPECT_GT(there.seconds[1].forward, OnGpu() ? 0 : 1e-4);
  EXPECT_GT(there.seconds[1].backward, OnGpu() ? 0 : 1e-4);
  // For labels, the loss and its gradient, the norm of all gradients, and the clock of the forward pass.
  EXPECT_LE(there.waits, 6 * kSteps * (GetParam().solver.find("iter_size: 2") == std::string::npos ? 1 : 2)) << "not for each parameter";
}

INSTANTIATE_TEST_SUITE_P(Settings, DeviceTest,
                         testing::Values(Setting{"Dense", "momentum: 0.9"},
                                         Setting{"Factors", "momentum: 0.9", plan::Scheme::kFactorBroadcast},
                                         Setting{"FactorsOfTwoPasses", "momentum: 0.9 iter_size: 2", plan::Scheme::kFactorBroadcast},
                                         // The sign of a weight near zero is that of rounding.
                                         Setting{"Nesterov", "type: 'Nesterov' momentum: 0.9 regularization_type: 'L1'", plan::Scheme::kKeyValue, 1e-3},
                                         // They divide gradients by their size, so that of a small one the rounding counts.
                                         Setting{"AdaGrad", "type: 'AdaGrad' delta: 0.01"}, Setting{"AdaDelta", "type: 'AdaDelta' momentum: 0.9 delta: 1e-4"},
                                         Setting{"RmsProp", "type: 'RMSProp' rms_decay: 0.9 delta: 0.01"},
                                         Setting{"Adam", "type: 'Adam' momentum: 0.9 momentum2: 0.99 delta: 0.01 clip_gradients: 0.5"}),
                         [](const auto& setting) { return setting.param.name; });

// ---- the core's copies

class CopyTest : public testing::Test {
 protected:
  void SetUp() override {
    LoadDevice(20'000, 5'000);
    device_ = std::make_unique<EngineDevice>(executor_, placement_);
  }
  void TearDown() override {
    device_.reset();
    LoadDevice();
  }

  device::DeviceSpan SpanOf(const at::Tensor& tensor) {
    return {static_cast<std::byte*>(tensor.mutable_data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
  }
  // How a copy has ended.
  template <typename Copy>
  Result<device::CopyTimes> Wait(const Copy& copy) {
    std::promise<Result<device::CopyTimes>> ended;
    copy([&ended](const Result<device::CopyTimes>& copied) { ended.set_value(copied); });
    return ended.get_future().get();
  }

  ThreadExecutor executor_{"copies"};
  const Placement placement_ = [] { LoadDevice(); return Device(1); }();
  std::unique_ptr<EngineDevice> device_;
};

TEST_F(CopyTest, WaitForTheirEventAndKeepTheirOrder) {
  const EngineGuard guard;
  const at::Tensor numbers = at::full({1000}, 3.0, at::TensorOptions().device(placement_.device()));
  numbers.add_(4);  // later than the call returns
  const auto ready = std::make_shared<EngineEvent>(placement_);
  Result<device::HostBuffer> memory = device_->AllocateHost(4000);
  ASSERT_TRUE(memory.ok());
  EXPECT_TRUE(Wait([&](device::Copied done) { device_->CopyToHost(SpanOf(numbers), memory->bytes(), ready, std::move(done)); }).ok());
  auto* const host = reinterpret_cast<float*>(memory->bytes().data());
  EXPECT_EQ(host[0], 7);
  EXPECT_EQ(host[999], 7);
  host[0] = 9;
  EXPECT_TRUE(Wait([&](device::Copied done) { device_->CopyFromHost(memory->bytes(), SpanOf(numbers), std::move(done)); }).ok());
  EXPECT_EQ(OnHost(numbers)[0].item<float>(), 9);
  EXPECT_EQ(OnHost(numbers)[1].item<float>(), 7);
}

TEST_F(CopyTest, UnderWayAreWaitedForWhenTheDeviceGoes) {
  const EngineGuard guard;
  const at::Tensor numbers = at::full({1000}, 3.0, at::TensorOptions().device(placement_.device()));
  std::vector<std::byte> memory(4000);
  std::promise<Status> ended;
  device_->CopyToHost(SpanOf(numbers), memory, std::make_shared<EngineEvent>(placement_),
                      [&ended](const Result<device::CopyTimes>& copied) { ended.set_value(copied.status()); });
  device_.reset();
  float first = 0;
  std::memcpy(&first, memory.data(), sizeof first);
  EXPECT_EQ(first, 3) << "nothing is written into lent memory any more";
  EXPECT_TRUE(ended.get_future().get().ok());
}

// As the memory that a host's workers share: nobody waits for copies to and from what is registered.
TEST_F(CopyTest, ReachMemoryOfOthersThatIsRegistered) {
  const EngineGuard guard;
  const std::size_t page = 4096;
  std::unique_ptr<std::byte, void (*)(void*)> pages(static_cast<std::byte*>(std::aligned_alloc(page, 2 * page)), &std::free);
  const MutableBytes memory(pages.get(), 2 * page);
  {
    Result<device::HostBuffer> registered = device_->RegisterHost(memory.first(4000));
    ASSERT_TRUE(registered.ok()) << registered.status().message();
    EXPECT_EQ(registered->bytes().data(), memory.data());
    EXPECT_EQ(device_->RegisterHost(memory.first(4000)).status().code(), StatusCode::kResourceExhausted) << "twice";
    const at::Tensor numbers = at::full({1000}, 3.0, at::TensorOptions().device(placement_.device()));
    const auto copy = [&](device::Copied done) {
      device_->CopyToHost(SpanOf(numbers), registered->bytes(), std::make_shared<EngineEvent>(placement_), std::move(done));
    };
    EXPECT_TRUE(Wait(copy).ok());
    EXPECT_EQ(*reinterpret_cast<float*>(memory.data()), 3);
  }
  EXPECT_TRUE(device_->RegisterHost(memory).ok()) << "given up, it is free";
}

TEST_F(CopyTest, OfADeviceThatIsLostFail) {
  if (OnGpu()) GTEST_SKIP() << "loses the device";
  const EngineGuard guard;
  const at::Tensor numbers = at::full({1000}, 3.0, at::TensorOptions().device(placement_.device()));
  std::vector<std::byte> memory(4000);
  const auto lose_after = OfDevice<void (*)(long)>("late_lose_after");
  lose_after(0);
  const Status status = Wait([&](device::Copied done) {
    device_->CopyToHost(SpanOf(numbers), memory, std::make_shared<EngineEvent>(placement_), std::move(done));
  }).status();
  lose_after(-1);
  EXPECT_EQ(status.ToString(), "UNAVAILABLE: the device fails: late error: unspecified launch failure");
}

TEST(EngineFailureTest, MemoryThatTheDriverLacksIsNoDeviceThatFails) {
  const c10::SourceLocation here{__func__, __FILE__, __LINE__};
  EXPECT_EQ(EngineFailure(c10::AcceleratorError(here, 2, "CUDA error: out of memory\nCompile with advice.")).ToString(),
            "RESOURCE_EXHAUSTED: out of memory of the device, or of the host that copies reach: CUDA error: out of memory; expected fewer "
            "workers that share it");
  EXPECT_EQ(EngineFailure(c10::AcceleratorError(here, 719, "CUDA error: lost\nCompile with advice.")).ToString(),
            "UNAVAILABLE: the device fails: CUDA error: lost");
}

// ---- placement

TEST(PlacementTest, MemoryThatADeviceLacksIsSaid) {
  LoadDevice();
  const Placement placement = Device(0);
  const Status status = RunOnEngine([&] {
    static_cast<void>(at::empty({1 << 20, 1 << 20}, at::TensorOptions().device(placement.device())));
    return OkStatus();
  });
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), testing::MatchesRegex("out of memory of the device: cannot allocate [0-9.]+ .iB; GPU 0 has a total "
                                                      "capacity of .* is free; expected a smaller batch_size, or fewer workers that share it"));
}

TEST(PlacementTest, OfADeviceThatIsNotThereIsRefused) {
  if (OnGpu()) GTEST_SKIP() << "counts the devices of the tests";
  LoadDevice();
  EXPECT_EQ(Placement::Accelerators(), 2);
  EXPECT_THAT(Placement::OnAccelerator(2).status().message(), HasSubstr("GPU 2 is not here, expected one of the 2 that the engine finds"));
  EXPECT_EQ(Placement::OnAccelerator(-1).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Device(1).name(), "late:1");
}

TEST(PlacementTest, LayersThatReadMemoryComputeOnTheHostAndAreCounted) {
  LoadDevice();
  NetOptions options;
  options.placement = Device(0);
  const std::string text = InputsOf("data 2x4x6x6 rois 3x5") +
                           "layer { name: 'a' type: 'ROIPooling' bottom: 'data' bottom: 'rois' top: 'a' "
                           "  roi_pooling_param { pooled_h: 2 pooled_w: 2 spatial_scale: 1 } } "
                           "layer { name: 'b' type: 'ReLU' bottom: 'a' top: 'a' }";
  const auto net = MakeNet(text, TRAIN, options);
  EXPECT_THAT(net->on_host(), ElementsAre(testing::Pair("ROIPooling", 1)));
  EXPECT_THAT(MakeNet(text)->on_host(), SizeIs(0));
}

// On a device it is made otherwise.
TEST(LayersTest, InterpsGradientIsThatOfTheHost) {
  LoadDevice();
  const std::string text = InputsOf("data 2x3x7x6 label 2x2x10x7") +
                           "layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' "
                           "  convolution_param { num_output: 2 kernel_size: 1 bias_term: false weight_filler { type: 'msra' } } } "
                           "layer { name: 'out' type: 'Interp' bottom: 'conv' top: 'out' interp_param { zoom_factor: 3 pad_beg: -1 pad_end: -2 } }"
                           "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'out' bottom: 'label' top: 'loss' }";
  std::vector<at::Tensor> gradients;
  for (const Placement& placement : {Placement(), Device(0)}) {
    const EngineGuard guard;
    NetOptions options;
    options.placement = placement;
    const auto net = MakeNet(text, TRAIN, options);
    WriteOnHost(net->blob("data")->data, [](const at::Tensor& host) { FillTestNumbers(host, 1); });
    WriteOnHost(net->blob("label")->data, [](const at::Tensor& host) { FillTestNumbers(host, 2); });
    ASSERT_TRUE(net->Forward().ok());
    ASSERT_TRUE(net->Backward().ok());
    gradients.push_back(OnHost(net->learnable_params()[0].blob.diff));
  }
  EXPECT_GT(gradients[0].abs().max().item<double>(), 0.1);
  EXPECT_LT(gradients[0].sub(gradients[1]).abs().max().item<double>(), 1e-5);
}

// ---- determinism

TEST(DeterminismTest, OperatorsWithoutItAreNamedOnce) {
  LoadDevice();
  static_cast<void>(Device(0));
  std::vector<std::string> lines;
  {
    const Determinism determinism([&](const std::string& line) { lines.push_back(line); });
    for (int i = 0; i < 2; ++i) at::globalContext().alertNotDeterministic("some_backward_cuda");
  }
  EXPECT_THAT(lines, ElementsAre(HasSubstr("some_backward_cuda gives no two times the same bits")));
}

TEST(PlacementTest, ADeviceRoundsNoInputsUntilItMay) {
  LoadDevice();
  at::Context& engine = at::globalContext();
  static_cast<void>(Device(0));
  EXPECT_FALSE(engine.allowTF32CuDNN(at::Float32Op::CONV));
  EXPECT_FALSE(engine.allowTF32CuBLAS());
  EXPECT_TRUE(engine.deterministicAlgorithms());
  AllowTf32();
  EXPECT_TRUE(engine.allowTF32CuDNN(at::Float32Op::CONV));
  EXPECT_TRUE(engine.allowTF32CuBLAS());
  engine.setAllowTF32CuDNN(false);
  engine.setFloat32MatmulPrecision("highest");
}

}  // namespace
}  // namespace poseidon::caffe
