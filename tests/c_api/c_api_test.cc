// SPDX-License-Identifier: Apache-2.0
// poseidon.h from the outside: this program links libposeidon.so and nothing else of ours. Ranks
// are threads with a session each, over TCP on loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "poseidon/c/poseidon.hpp"
#include "tests/c_api/fake_accelerator.h"

namespace {

using poseidon_cpp::Error;
using poseidon_cpp::Model;
using poseidon_cpp::Session;
using poseidon_cpp::View;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::array<std::uint8_t, 32> kToken = {1, 2, 3, 4, 5, 6, 7, 8};

// The failure of a call, with its code, or POSEIDON_OK.
struct Failure {
  poseidon_code code = POSEIDON_OK;
  std::int32_t scope = 0;
  std::int32_t culprit = POSEIDON_NO_CULPRIT;
  std::string message;
};

template <typename F>
Failure FailureOf(F f) {
  try {
    f();
  } catch (const Error& error) {
    return {error.code(), error.scope(), error.culprit(), error.what()};
  }
  return {};
}

// Starts members of one job in threads; rank 0 hands the others its address.
class Job {
 public:
  explicit Job(std::uint32_t workers, std::uint32_t servers = 0)
      : workers_(workers), servers_(servers), port_(port_known_.get_future().share()) {}

  poseidon_options Options(std::uint32_t rank) {
    poseidon_options options = POSEIDON_NEW(poseidon_options);
    options.workers = workers_;
    options.servers = servers_;
    options.token_bytes = kToken.data();
    options.final_plan_step = POSEIDON_NEVER;
    options.join_timeout_seconds = 60;
    if (rank == 0) {
      options.hosts_coordinator = 1;
      options.listening = [](void* job, const char*, std::uint32_t port) {
        static_cast<Job*>(job)->port_known_.set_value(port);
      };
      options.listening_user = this;
    } else {
      options.requested_rank = static_cast<std::int32_t>(rank);
      options.coordinator_port = port_.get();
    }
    return options;
  }

  // Runs `member(rank, options)` for every rank; returns what each failed with.
  std::vector<Failure> Run(
      const std::function<void(std::uint32_t, const poseidon_options&)>& member) {
    std::vector<std::future<Failure>> ranks;
    for (std::uint32_t rank = 0; rank < workers_; ++rank) {
      ranks.push_back(std::async(std::launch::async, [&, rank] {
        return FailureOf([&] { member(rank, Options(rank)); });
      }));
    }
    std::vector<Failure> failures;
    failures.reserve(ranks.size());
    for (auto& rank : ranks) failures.push_back(rank.get());
    return failures;
  }

 private:
  const std::uint32_t workers_;
  const std::uint32_t servers_;
  std::promise<std::uint32_t> port_known_;
  std::shared_future<std::uint32_t> port_;
};

void ExpectAllOk(const std::vector<Failure>& failures) {
  for (const Failure& failure : failures) EXPECT_EQ(failure.code, POSEIDON_OK) << failure.message;
}

poseidon_options Alone() {
  poseidon_options options = POSEIDON_NEW(poseidon_options);
  options.workers = 1;
  options.hosts_coordinator = 1;
  options.final_plan_step = POSEIDON_NEVER;
  return options;
}

poseidon_layer Dense(const char* name, std::uint64_t elements) {
  poseidon_layer layer = POSEIDON_NEW(poseidon_layer);
  layer.name = name;
  layer.elements = elements;
  layer.dtype = POSEIDON_F32;
  return layer;
}

poseidon_layer WithFactors(const char* name, std::uint64_t outputs, std::uint64_t inputs) {
  poseidon_layer layer = Dense(name, outputs * (inputs + 1));
  layer.outputs = outputs;
  layer.inputs = inputs;
  layer.bias = 1;
  return layer;
}

poseidon_layer Table(const char* name, std::uint64_t entries, std::uint64_t width, std::int32_t dtype = POSEIDON_F32) {
  poseidon_layer layer = Dense(name, entries * width);
  layer.dtype = dtype;
  layer.outputs = entries;
  layer.inputs = width;
  layer.table = 1;
  return layer;
}

poseidon_view OnDevice(FakeAccelerator& device, std::size_t offset, std::uint64_t elements,
                       FakeAccelerator::Event* ready = nullptr) {
  poseidon_view view = POSEIDON_NEW(poseidon_view);
  view.memory = device.At(offset);
  view.elements = elements;
  view.dtype = POSEIDON_F32;
  view.device_type = FakeAccelerator::kType;
  view.ready = ready;
  return view;
}

// ---- versions

TEST(Version, IsThatOfTheHeader) {
  EXPECT_EQ(poseidon_version(), POSEIDON_VERSION_MAJOR << 16 | POSEIDON_VERSION_MINOR);
  EXPECT_THAT(poseidon_version_text(),
              StartsWith(std::to_string(POSEIDON_VERSION_MAJOR) + "." + std::to_string(POSEIDON_VERSION_MINOR) + "."));
}

// ---- structs of other versions

TEST(StructSize, AnOlderOptionsStructIsTakenAndNothingBehindItIsRead) {
  poseidon_options options = Alone();
  options.struct_size = offsetof(poseidon_options, requested_rank);
  auto* const bytes = reinterpret_cast<unsigned char*>(&options);
  std::memset(bytes + options.struct_size, 0xff, sizeof options - options.struct_size);
  Session session(options);
  EXPECT_EQ(session.workers(), 1u);
  session.Leave();
}

TEST(StructSize, ANewerStructIsTakenWhereItsUnknownFieldsAreZero) {
  struct Newer {
    poseidon_layer layer;
    std::uint64_t unknown;
  };
  Session session(Alone());
  Model model = session.NewModel();
  Newer newer{Dense("a", 4), 0};
  newer.layer.struct_size = sizeof newer;
  EXPECT_EQ(FailureOf([&] { model.Declare(newer.layer); }).code, POSEIDON_OK);
  newer.layer.name = "b";
  newer.unknown = 1;
  const Failure failure = FailureOf([&] { model.Declare(newer.layer); });
  EXPECT_EQ(failure.code, POSEIDON_UNIMPLEMENTED);
  EXPECT_THAT(failure.message, HasSubstr("poseidon_layer"));
  session.Leave();
}

TEST(StructSize, AnUnsetSizeIsRefused) {
  poseidon_options options = Alone();
  for (const std::size_t size : {std::size_t{0}, sizeof(std::size_t)}) {
    options.struct_size = size;
    const Failure failure = FailureOf([&] { Session session(options); });
    EXPECT_EQ(failure.code, POSEIDON_INVALID_ARGUMENT);
    EXPECT_THAT(failure.message, HasSubstr("struct_size of a poseidon_options is"));
  }
  options.struct_size = ~std::size_t{0};
  EXPECT_EQ(FailureOf([&] { Session session(options); }).code, POSEIDON_UNIMPLEMENTED);
}

TEST(StructSize, AnsweringStructsAreFilledAsFarAsTheyGo) {
  Session session(Alone());
  Model model = session.NewModel();
  model.Declare(Dense("a", 4));
  model.Commit();
  poseidon_layer_plan plan = POSEIDON_NEW(poseidon_layer_plan);
  plan.struct_size = offsetof(poseidon_layer_plan, bytes_sent);
  plan.bytes_sent = 77;
  EXPECT_EQ(poseidon_get_layer_plan(model.get(), 0, &plan, nullptr), POSEIDON_OK);
  EXPECT_EQ(plan.scheme, 1);
  EXPECT_EQ(plan.bytes_sent, 77u);
  EXPECT_EQ(plan.struct_size, offsetof(poseidon_layer_plan, bytes_sent));
  plan = model.LayerPlan(0);
  EXPECT_STREQ(plan.scheme_name, "kv");
  EXPECT_EQ(plan.takes, POSEIDON_GRADIENT);

  poseidon_status status = POSEIDON_NEW(poseidon_status);
  status.struct_size = offsetof(poseidon_status, message) + 10;
  std::memset(status.message, 'x', sizeof status.message);
  EXPECT_EQ(poseidon_wait(model.get(), 5, &status), POSEIDON_INVALID_ARGUMENT);
  EXPECT_EQ(status.code, POSEIDON_INVALID_ARGUMENT);
  EXPECT_EQ(std::strlen(status.message), 9u);
  EXPECT_THAT(status.message, testing::StartsWith("layer "));
  EXPECT_THAT(status.message, testing::EndsWith("..."));
  EXPECT_EQ(status.message[10], 'x');
  session.Leave();
}

// ---- mistakes

TEST(Mistakes, OptionsAreRefusedWithASentence) {
  const auto refusal = [](const std::function<void(poseidon_options&)>& change) {
    poseidon_options options = Alone();
    change(options);
    return FailureOf([&] { Session session(options); });
  };
  EXPECT_THAT(refusal([](auto& o) { o.schemes = "fc1=fast"; }).message,
              HasSubstr("schemes gives layer 'fc1' the scheme 'fast', expected kv"));
  EXPECT_THAT(refusal([](auto& o) { o.plan_pin = "fc1"; }).message,
              HasSubstr("plan_pin has 'fc1'"));
  EXPECT_THAT(refusal([](auto& o) { o.workers = 0; }).message, HasSubstr("at least one worker"));
  EXPECT_EQ(refusal([](auto& o) { o.workers = 4097; }).message,
            "workers is 4097 and servers 0, expected at least one worker and at most 4096 of both");
  EXPECT_EQ(refusal([](auto& o) {
              o.workers = 4000;
              o.servers = 97;
            }).message,
            "workers is 4000 and servers 97, expected at least one worker and at most 4096 of both");
  EXPECT_THAT(refusal([](auto& o) { o.workers = 4096; }).message, HasSubstr("token came in 0 ways"));
  EXPECT_THAT(refusal([](auto& o) { o.workers = 2; }).message, HasSubstr("token came in 0 ways"));
  EXPECT_THAT(refusal([](auto& o) {
                o.token_bytes = kToken.data();
                o.token_file = "job.token";
              }).message,
              HasSubstr("token came in 2 ways"));
  EXPECT_EQ(refusal([](auto& o) { o.token_file = "/nonexistent/job.token"; }).code,
            POSEIDON_NOT_FOUND);
  EXPECT_THAT(refusal([](auto& o) { o.wire = 9; }).message, HasSubstr("wire is 9"));
  EXPECT_THAT(refusal([](auto& o) { o.policy = 9; }).message, HasSubstr("policy is 9"));
  EXPECT_THAT(refusal([](auto& o) { o.probe_bytes = 1ull << 50; }).message,
              HasSubstr("probe_bytes is 1125899906842624, expected 1048576 to 1073741824"));
  EXPECT_THAT(refusal([](auto& o) { o.probe_bytes = 256 << 10; }).message,
              HasSubstr("probe_bytes is 262144, expected 1048576 to"));
  EXPECT_THAT(refusal([](auto& o) { o.levels = 3; }).message, HasSubstr("levels is 3"));
  EXPECT_THAT(refusal([](auto& o) { o.requested_rank = 1; }).message, HasSubstr("requested_rank"));
  EXPECT_THAT(refusal([](auto& o) { o.listen_port = 70000; }).message, HasSubstr("listen_port"));
  EXPECT_THAT(refusal([](auto& o) { o.listen_host = "0.0.0.0"; }).message,
              HasSubstr("advertise_host"));
  EXPECT_THAT(refusal([](auto& o) { o.hosts_coordinator = 0; }).message,
              HasSubstr("coordinator_port"));
  EXPECT_THAT(refusal([](auto& o) { o.dead_after_seconds = -1; }).message,
              HasSubstr("dead_after_seconds"));
  EXPECT_THAT(refusal([](auto& o) { o.role = POSEIDON_SERVER; }).message,
              HasSubstr("poseidon_serve"));
  EXPECT_EQ(poseidon_open(nullptr, nullptr, nullptr), POSEIDON_INVALID_ARGUMENT);
}

TEST(Mistakes, CallsOutOfTurnAreRefusedAndChangeNothing) {
  Session session(Alone());
  Model model = session.NewModel();
  std::vector<float> numbers(4, 2.0f);
  const poseidon_view view = View(numbers);
  EXPECT_EQ(FailureOf([&] { model.Commit(); }).code, POSEIDON_FAILED_PRECONDITION);
  const std::uint32_t a = model.Declare(Dense("a", 4));
  EXPECT_EQ(FailureOf([&] { model.Push(a, 0, view); }).code, POSEIDON_FAILED_PRECONDITION);
  EXPECT_EQ(FailureOf([&] { model.BeginStep(0); }).code, POSEIDON_FAILED_PRECONDITION);
  EXPECT_EQ(FailureOf([&] { model.Plan(); }).code, POSEIDON_FAILED_PRECONDITION);
  EXPECT_EQ(model.PlanText(), "");
  EXPECT_THAT(FailureOf([&] { model.Declare(Dense("a", 5)); }).message, HasSubstr("'a'"));
  EXPECT_THAT(FailureOf([&] { model.Declare(WithFactors("b", 0, 3)); }).message, HasSubstr("'b'"));
  poseidon_layer half = Dense("half", 4);
  half.dtype = POSEIDON_F16;
  EXPECT_THAT(FailureOf([&] { model.Declare(half); }).message, HasSubstr("'half' has dtype 3"));
  poseidon_layer counts = WithFactors("counts", 2, 3);
  counts.dtype = POSEIDON_I64;
  EXPECT_THAT(FailureOf([&] { model.Declare(counts); }).message,
              HasSubstr("'counts' has factors of i64, expected f32 or f64"));
  const std::uint32_t f = model.Declare(WithFactors("f", 2, 3));
  model.Commit();
  EXPECT_EQ(FailureOf([&] { model.Commit(); }).code, POSEIDON_FAILED_PRECONDITION);
  EXPECT_THAT(FailureOf([&] { model.Declare(Dense("late", 4)); }).message, HasSubstr("'late'"));

  model.BeginStep(0);
  EXPECT_EQ(FailureOf([&] { model.Push(9, 0, view); }).code, POSEIDON_INVALID_ARGUMENT);
  EXPECT_EQ(FailureOf([&] { model.Wait(9); }).code, POSEIDON_INVALID_ARGUMENT);
  EXPECT_THAT(FailureOf([&] { model.Push(f, 0, view); }).message,
              HasSubstr("has 4 elements of f32, expected 8 of f32"));
  std::vector<float> gradient(8);
  EXPECT_THAT(FailureOf([&] {
                model.PushFactors(f, 0, View(gradient.data(), 2), View(gradient.data(), 3), 1,
                                  View(gradient));
              }).message,
              HasSubstr("'f' was pushed as factors, but the plan's scheme for step 0 is kv"));
  poseidon_view other = view;
  other.device_type = POSEIDON_CUDA;
  EXPECT_EQ(FailureOf([&] { model.Push(a, 0, other); }).code, POSEIDON_UNIMPLEMENTED);
  other = view;
  other.ready = &other;
  EXPECT_EQ(FailureOf([&] { model.Push(a, 0, other); }).code, POSEIDON_UNIMPLEMENTED);
  other = view;
  other.memory = nullptr;
  EXPECT_EQ(FailureOf([&] { model.Push(a, 0, other); }).code, POSEIDON_INVALID_ARGUMENT);
  other = view;
  other.memory = reinterpret_cast<char*>(numbers.data()) + 1;
  EXPECT_THAT(FailureOf([&] { model.Push(a, 0, other); }).message, HasSubstr("not aligned"));

  model.Push(a, 0, view);
  model.Wait(a);
  EXPECT_THAT(FailureOf([&] { model.Push(a, 0, view); }).message,
              HasSubstr("'a' was pushed for step 0 after step 0"));
  EXPECT_TRUE(model.Landed(a));
  EXPECT_EQ(numbers, std::vector<float>(4, 2.0f));
  EXPECT_EQ(FailureOf([&] { session.Broadcast(view, 1); }).code, POSEIDON_INVALID_ARGUMENT);
  EXPECT_EQ(poseidon_failure(session.get(), nullptr), POSEIDON_OK);
  model.Push(a, 1, view);
  model.Wait(a);
  session.Leave();
}

TEST(Mistakes, NullHandlesAreRefused) {
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  EXPECT_EQ(poseidon_wait(nullptr, 0, &status), POSEIDON_INVALID_ARGUMENT);
  EXPECT_STREQ(status.message, "the model is NULL");
  EXPECT_EQ(poseidon_leave(nullptr, &status), POSEIDON_INVALID_ARGUMENT);
  EXPECT_STREQ(status.message, "the session is NULL");
  poseidon_abort(nullptr, "nothing");
  poseidon_close(nullptr);
  EXPECT_STREQ(poseidon_code_name(POSEIDON_UNAVAILABLE), "UNAVAILABLE");
  EXPECT_STREQ(poseidon_code_name(99), "UNKNOWN");
}

TEST(Mistakes, AnotherTokenDoesNotJoin) {
  Job job(2);
  const std::vector<Failure> failures = job.Run([](std::uint32_t rank, poseidon_options options) {
    std::array<std::uint8_t, 32> wrong = kToken;
    wrong[31] ^= 1;
    if (rank == 1) options.token_bytes = wrong.data();
    if (rank == 0) options.join_timeout_seconds = 2;
    Session session(options);
  });
  EXPECT_EQ(failures[1].code, POSEIDON_PERMISSION_DENIED) << failures[1].message;
  EXPECT_NE(failures[0].code, POSEIDON_OK);
}

TEST(Mistakes, ModelsThatDifferEndTheJobForAll) {
  Job job(2);
  const std::vector<Failure> failures =
      job.Run([](std::uint32_t rank, const poseidon_options& options) {
        Session session(options);
        Model model = session.NewModel();
        model.Declare(Dense("first", 8));
        model.Declare(Dense("second", 8 + rank));
        model.Commit();
      });
  for (const Failure& failure : failures) {
    EXPECT_EQ(failure.code, POSEIDON_INVALID_ARGUMENT);
    EXPECT_EQ(failure.scope, POSEIDON_SCOPE_JOB);
    EXPECT_THAT(failure.message, HasSubstr("second"));
  }
}

// Nobody knows which of two programs counts wrongly: both are named, and nobody is to blame, whoever comes first.
TEST(Mistakes, WorkersThatPushALayerForDifferentStepsEndTheJobForAll) {
  for (const std::uint32_t later : {0u, 1u}) {
    Job job(2);
    for (const Failure& failure : job.Run([&](std::uint32_t rank, const poseidon_options& options) {
           Session session(options);
           Model model = session.NewModel();
           const std::uint32_t a = model.Declare(Dense("a", 4));
           const std::uint32_t b = model.Declare(Dense("b", 4));
           model.Commit();
           std::vector<float> first(4), second(4);
           // In opposite orders, so that each worker comes first for one of the layers.
           const std::uint64_t step = rank == later ? 7 : 6;
           model.Push(rank == 0 ? a : b, step, View(first));
           model.Push(rank == 0 ? b : a, step, View(second));
           model.Wait(a);
           model.Wait(b);
         })) {
      EXPECT_EQ(failure.code, POSEIDON_INVALID_ARGUMENT);
      EXPECT_EQ(failure.scope, POSEIDON_SCOPE_JOB);
      EXPECT_EQ(failure.culprit, POSEIDON_NO_CULPRIT);
      const std::string steps = later == 0 ? "for step 7 by worker 0 and for step 6 by worker 1"
                                           : "for step 6 by worker 0 and for step 7 by worker 1";
      EXPECT_THAT(failure.message, testing::ContainsRegex("layer '[ab]' is pushed " + steps));
    }
  }
}

TEST(Mistakes, TheFinalPlanIsNotWaitedForByWhoHasNotReported) {
  Job job(2);
  ExpectAllOk(job.Run([](std::uint32_t, poseidon_options options) {
    options.final_plan_step = 1;
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 4));
    model.Commit();
    model.BeginStep(0);
    const Failure early = FailureOf([&] { model.BeginStep(1); });
    EXPECT_EQ(early.code, POSEIDON_FAILED_PRECONDITION);
    EXPECT_THAT(early.message, HasSubstr("waits for this worker's report"));
    model.Measured(a, POSEIDON_NEW(poseidon_measurement));
    model.Report();
    model.BeginStep(1);
    session.Leave();
  }));
}

TEST(Mistakes, WorkersThatWaitForTheFinalPlanAtDifferentStepsEndTheJobForAll) {
  Job job(2);
  for (const Failure& failure : job.Run([](std::uint32_t rank, poseidon_options options) {
         options.final_plan_step = 5 + rank;
         Session session(options);
         Model model = session.NewModel();
         model.Declare(Dense("a", 4));
         model.Commit();
         model.BeginStep(0);
         session.Barrier();
       })) {
    EXPECT_EQ(failure.code, POSEIDON_INVALID_ARGUMENT);
    EXPECT_EQ(failure.scope, POSEIDON_SCOPE_JOB);
    EXPECT_THAT(failure.message, HasSubstr("from step 6 on and worker 0 from step 5"));
  }
}

TEST(Mistakes, AnEngineThatFailsEndsTheJobForAll) {
  poseidon_engine engine = POSEIDON_NEW(poseidon_engine);
  engine.multiply = [](void*, const poseidon_product*) -> poseidon_code {
    return POSEIDON_RESOURCE_EXHAUSTED;
  };
  Job job(2);
  const std::vector<Failure> failures = job.Run([&](std::uint32_t rank, poseidon_options options) {
    if (rank == 1) options.engine = &engine;
    Session session(options);
    Model model = session.NewModel();
    model.Declare(WithFactors("fc", 5, 7));
    model.Commit();
  });
  for (const Failure& failure : failures) {
    EXPECT_EQ(failure.code, POSEIDON_RESOURCE_EXHAUSTED) << failure.message;
    EXPECT_THAT(failure.message, HasSubstr("'fc'"));
  }
}

// ---- a step

// Every rank pushes small whole numbers, whose sums are exact in whichever scheme.
TEST(Steps, DenseAndFactorLayersLandTheMean) {
  constexpr std::uint32_t kRanks = 3;
  constexpr std::uint32_t kOutputs = 3;
  constexpr std::uint32_t kInputs = 5;
  Job job(kRanks);
  ExpectAllOk(job.Run([](std::uint32_t rank, poseidon_options options) {
    options.schemes = "fc=sfb";
    Session session(options);
    EXPECT_EQ(session.rank(), rank);
    EXPECT_EQ(session.MemberName(static_cast<std::int32_t>(rank)),
              "worker " + std::to_string(rank) + " on host localhost");
    Model model = session.NewModel();
    const std::uint32_t fc = model.Declare(WithFactors("fc", kOutputs, kInputs));
    const std::uint32_t dense = model.Declare(Dense("dense", 1001));
    model.Commit();
    EXPECT_EQ(model.PlanText(), "fc=sfb\ndense=kv\n");
    EXPECT_EQ(model.LayerPlan(fc).forced, 1);
    EXPECT_STREQ(model.LayerPlan(fc).scheme_name, "sfb");
    EXPECT_EQ(model.LayerPlan(fc).takes, POSEIDON_FACTORS);
    EXPECT_EQ(model.Plan().layers, 2u);

    std::vector<float> gradient(1001);
    std::vector<float> product(kOutputs * (kInputs + 1));
    for (std::uint64_t step = 0; step < 5; ++step) {
      model.BeginStep(step);
      EXPECT_TRUE(model.TakesFactors(fc, step));
      // Rank r brings r rows, all ones; so every entry of the sum is the number of rows, 3.
      std::vector<float> u(rank * kOutputs, 1.0f);
      std::vector<float> v(rank * kInputs, 1.0f);
      model.PushFactors(fc, step, View(u), View(v), rank, View(product));
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = static_cast<float>(i * rank + step);
      }
      model.Push(dense, step, View(gradient));
      model.Wait(dense);
      model.Wait(fc);
      EXPECT_THAT(product, testing::Each(1.0f));
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        ASSERT_FLOAT_EQ(gradient[i], static_cast<float>(i + step));
      }
    }
    EXPECT_EQ(model.Statistics(fc).steps, 5u);
    EXPECT_EQ(model.Statistics(fc).factors.payload_bytes_sent,
              5u * rank * (kRanks - 1) * (kOutputs + kInputs) * sizeof(float));
    EXPECT_EQ(model.Statistics(fc).key_value.payload_bytes_sent, 0u);
    EXPECT_GT(session.Statistics().wire_bytes_sent, 0u);
    session.Leave();
  }));
}

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

poseidon_layer MultipliedByDevice(const char* name, std::uint64_t outputs, std::uint64_t inputs, std::uint64_t hash) {
  poseidon_layer layer = WithFactors(name, outputs, inputs);
  layer.product_rows = 64;
  layer.product_hash = hash;
  layer.product_seconds = 1e-6;
  return layer;
}

// Rank r brings r rows. In step 3 only rank 1 has any, and step 4 is weighted.
TEST(Steps, FactorsThatTheProgramMultipliesComeBackFromAllRanks) {
  for (const std::string hosts : {"abc", "aab"}) {
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
      const bool gathers = hosts == "abc";  // where workers combine on their hosts, a leader multiplies
      EXPECT_EQ(model.PlanText(), "fc=sfb\nscattered=fsc\n");
      EXPECT_EQ(model.LayerPlan(fc).takes, gathers ? POSEIDON_GATHERED : POSEIDON_FACTORS);
      EXPECT_EQ(model.LayerPlan(scattered).takes, POSEIDON_FACTORS);
      for (std::uint64_t step = 0; step < 6; ++step) {
        model.BeginStep(step);
        EXPECT_EQ(model.TakesGathered(fc, step), gathers);
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
        const poseidon_view where = View(gradient);
        poseidon_status status = POSEIDON_NEW(poseidon_status);
        ASSERT_EQ(poseidon_push_factors(model.get(), fc, step, &factors, gathers ? nullptr : &where, &more, &status), POSEIDON_OK)
            << status.message;
        model.PushFactors(scattered, step, u_view, v_view, rows, View(other), &more);
        model.Wait(fc);
        model.Wait(scattered);
        EXPECT_THAT(FailureOf([&] { model.Gathered(scattered); }).message,
                    HasSubstr("the last push of layer 'scattered' was not gathered"));
        if (gathers) {
          const poseidon_gathered all = model.Gathered(fc);
          ASSERT_EQ(all.count, step == 3 ? 1u : 3u);
          const auto* const us = static_cast<const float*>(all.u);
          const auto* const vs = static_cast<const float*>(all.values);
          EXPECT_EQ(std::vector<float>(vs, vs + 3 * all.count),
                    step == 3 ? std::vector<float>(3, 1.0f) : (std::vector<float>{1, 1, 1, 2, 2, 2, 2, 2, 2}));
          for (std::size_t m = 0; m < 2; ++m) {
            gradient[6 + m] = 0;
            for (std::size_t n = 0; n < 3; ++n) gradient[m * 3 + n] = 0;
            for (std::size_t k = 0; k < all.count; ++k) {
              gradient[6 + m] += us[k * 2 + m];
              for (std::size_t n = 0; n < 3; ++n) gradient[m * 3 + n] += us[k * 2 + m] * vs[k * 3 + n];
            }
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

TEST(Mistakes, TestProductsAreRefusedWithASentence) {
  Session session(Alone());
  Model model = session.NewModel();
  const auto refusal = [&](const poseidon_layer& layer) {
    poseidon_status status = POSEIDON_NEW(poseidon_status);
    EXPECT_EQ(poseidon_declare(model.get(), &layer, nullptr, &status), POSEIDON_INVALID_ARGUMENT);
    return std::string(status.message);
  };
  poseidon_layer layer = MultipliedByDevice("fc", 2, 3, 17);
  layer.product_seconds = 0;
  EXPECT_EQ(refusal(layer), "the test product of layer 'fc' took 0.000000 s, expected a finite time above 0");
  layer = Dense("dense", 8);
  layer.product_rows = 64;
  layer.product_seconds = 1;
  EXPECT_EQ(refusal(layer), "layer 'dense' has a test product without outputs and inputs, expected its widths");
  layer = Table("words", 10, 2);
  layer.product_rows = 64;
  layer.product_seconds = 1;
  EXPECT_EQ(refusal(layer), "layer 'words' is a table whose product a device makes, expected one without");
  const std::uint32_t fc = model.Declare(MultipliedByDevice("fc", 2, 3, 17));
  model.Commit();
  model.BeginStep(0);
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  EXPECT_EQ(poseidon_push_dense(model.get(), fc, 0, nullptr, nullptr, &status), POSEIDON_INVALID_ARGUMENT);
  EXPECT_STREQ(status.message, "the gradient of layer 'fc' has 0 elements of f32, expected 8 of f32");
}

TEST(Mistakes, RowsAreRefusedWithASentence) {
  Session session(Alone());
  Model model = session.NewModel();
  poseidon_layer biased = Table("biased", 4, 2);
  biased.elements += 4;
  biased.bias = 1;
  EXPECT_THAT(FailureOf([&] { model.Declare(biased); }).message, HasSubstr("a table with a bias"));
  poseidon_layer shapeless = Dense("shapeless", 8);
  shapeless.table = 1;
  EXPECT_THAT(FailureOf([&] { model.Declare(shapeless); }).message, HasSubstr("a table without outputs and inputs"));
  const std::uint32_t words = model.Declare(Table("words", 4, 2));
  const std::uint32_t dense = model.Declare(Dense("dense", 8));
  model.Commit();
  model.BeginStep(0);
  std::vector<float> numbers(8, 1.0f);
  EXPECT_THAT(FailureOf([&] { model.Push(words, 0, View(numbers)); }).message,
              HasSubstr("'words' was declared as a table, expected poseidon_push_rows"));
  std::vector<std::int64_t> indices = {0};
  EXPECT_THAT(FailureOf([&] { model.PushRows(dense, 0, indices, View(numbers.data(), 2)); }).message,
              HasSubstr("'dense' was not declared as a table, expected its gradient or factors"));
  EXPECT_THAT(FailureOf([&] { model.PushRows(words, 0, indices, View(numbers)); }).message,
              HasSubstr("the values of layer 'words' have 8 elements of f32, expected 1x2 of f32"));
  for (const std::int64_t index : {-1, 4}) {
    indices = {0, index};
    EXPECT_THAT(FailureOf([&] { model.PushRows(words, 0, indices, View(numbers.data(), 4)); }).message,
                HasSubstr("row 1 of layer 'words' is of entry " + std::to_string(index) + ", expected 0 to 3"));
  }
  poseidon_rows rows = POSEIDON_NEW(poseidon_rows);
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  rows.count = 1;
  const poseidon_view values = View(numbers.data(), 2);
  rows.values = &values;
  EXPECT_EQ(poseidon_push_rows(model.get(), words, 0, &rows, nullptr, &status), POSEIDON_INVALID_ARGUMENT);
  EXPECT_THAT(status.message, HasSubstr("the indices of layer 'words' are NULL"));
  EXPECT_EQ(poseidon_push_rows(model.get(), words, 0, nullptr, nullptr, nullptr), POSEIDON_INVALID_ARGUMENT);
  EXPECT_THAT(FailureOf([&] { model.Gathered(dense); }).message,
              HasSubstr("'dense' is no table, and no device makes its product"));
  EXPECT_EQ(model.Gathered(words).count, 0u);
  rows.count = 0;
  rows.values = nullptr;
  EXPECT_EQ(poseidon_push_rows(model.get(), words, 0, &rows, nullptr, nullptr), POSEIDON_OK);
  model.Wait(words);
  EXPECT_EQ(model.Gathered(words).count, 0u);
  indices = {3, 3};
  model.PushRows(words, 1, indices, View(numbers.data(), 4));
  model.Wait(words);
  EXPECT_EQ(model.Gathered(words).count, 2u);
  session.Leave();

  Job job(2);
  for (const Failure& failure : job.Run([](std::uint32_t, poseidon_options options) {
         options.schemes = "words=kv";
         Session forced(options);
         Model refused = forced.NewModel();
         refused.Declare(Table("words", 4, 2));
         refused.Commit();
       })) {
    EXPECT_THAT(failure.message, HasSubstr("scheme kv is given for layer 'words', a table"));
  }
}

// Two models of one session train in turns: the same layer names and numbers, other sizes, steps of their own, and
// a final plan of their own.
// 2^31 rows of 2^33 numbers are 2^64, which 64 bits hold as 0.
TEST(Mistakes, SizesWhoseProductWrapsAreRefused) {
  constexpr std::uint64_t kWidth = std::uint64_t{1} << 33;
  constexpr std::uint32_t kRows = std::uint32_t{1} << 31;
  poseidon_options options = Alone();
  options.schemes = "f=sfb";
  Session session(options);
  Model model = session.NewModel();
  const std::uint32_t words = model.Declare(Table("words", 1, kWidth));
  const std::uint32_t f = model.Declare(WithFactors("f", kWidth, 1));
  model.Commit();
  model.BeginStep(0);
  const std::int64_t no_entry = -1;  // refused too where it is looked at
  const poseidon_view nothing = View(static_cast<float*>(nullptr), 0);
  poseidon_rows rows = POSEIDON_NEW(poseidon_rows);
  rows.indices = &no_entry;
  rows.values = &nothing;
  rows.count = kRows;
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  EXPECT_EQ(poseidon_push_rows(model.get(), words, 0, &rows, nullptr, &status), POSEIDON_INVALID_ARGUMENT);
  EXPECT_STREQ(status.message,
               "the values of layer 'words' have 0 elements of f32, expected 2147483648x8589934592 of f32");
  float number = 0;
  EXPECT_EQ(FailureOf([&] { model.PushFactors(f, 0, nothing, View(&number, kRows), kRows, View(&number, 2 * kWidth)); })
                .message,
            "the factor u of layer 'f' has 0 elements of f32, expected 2147483648x8589934592 of f32");
  session.Leave();
}

TEST(Steps, ASessionHoldsSeveralModels) {
  constexpr std::uint32_t kRanks = 3;
  constexpr std::uint64_t kSteps = 6;
  Job job(kRanks);
  ExpectAllOk(job.Run([kSteps](std::uint32_t rank, poseidon_options options) {
    options.final_plan_step = 4;
    Session session(options);
    Model generator = session.NewModel();
    Model critic = session.NewModel();
    const std::uint32_t a = generator.Declare(Dense("a", 6000));
    const std::uint32_t b = critic.Declare(Dense("a", 50));
    const std::uint32_t c = critic.Declare(WithFactors("c", 3, 4));
    critic.Commit();  // in another order than they were made
    generator.Commit();
    std::vector<float> of_a(6000), of_b(50), of_c(15);
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      critic.BeginStep(step);
      of_b.assign(50, static_cast<float>(rank + step));
      of_c.assign(15, 3.0f);
      critic.Push(b, step, View(of_b));
      // The other model's step begins while this one's layer is under way.
      if (step % 2 == 0) {
        generator.BeginStep(step / 2);
        of_a.assign(6000, static_cast<float>(10 * rank));
        generator.Push(a, step / 2, View(of_a));
      }
      if (!critic.TakesFactors(c, step)) {
        critic.Push(c, step, View(of_c));
      } else {
        std::vector<float> u(3, 1.0f), v(4, 3.0f);
        critic.PushFactors(c, step, View(u), View(v), 1, View(of_c));
        critic.Wait(c);
      }
      critic.Wait(b);
      critic.Wait(c);
      EXPECT_THAT(of_b, testing::Each(static_cast<float>(1 + step)));
      if (step % 2 == 0) {
        generator.Wait(a);
        EXPECT_THAT(of_a, testing::Each(10.0f));
      }
      if (step == 1) {
        poseidon_measurement measured = POSEIDON_NEW(poseidon_measurement);
        measured.forward_seconds = measured.backward_seconds = 1e-3;
        measured.rows = 1;
        critic.Measured(c, measured);
        critic.Report();
      }
    }
    EXPECT_TRUE(critic.Plan().final_plan);
    EXPECT_FALSE(generator.Plan().final_plan);
    EXPECT_EQ(generator.Statistics(a).steps, kSteps / 2);
    EXPECT_EQ(critic.Statistics(b).steps, kSteps);
    // Each slice goes out once and comes back once, whichever other model there is.
    EXPECT_EQ(generator.Statistics(a).key_value.payload_bytes_sent,
              generator.Statistics(a).key_value.payload_bytes_received);
    session.Leave();
  }));
}

TEST(Steps, AbsentAndWeightedContributions) {
  Job job(2);
  ExpectAllOk(job.Run([](std::uint32_t rank, const poseidon_options& options) {
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 3));
    model.Commit();
    std::vector<float> gradient(3, rank == 0 ? 8.0f : 16.0f);
    poseidon_push more = POSEIDON_NEW(poseidon_push);
    more.weight = rank == 0 ? 3 : 1;
    model.BeginStep(0);
    model.Push(a, 0, View(gradient), &more);
    model.Wait(a);
    EXPECT_THAT(gradient, testing::Each(10.0f));  // (3 * 8 + 16) / 4
    more.weight = 2;
    more.absent = rank == 0;
    gradient.assign(3, 6.0f);
    model.BeginStep(1);
    model.Push(a, 1, View(gradient), &more);
    model.Wait(a);
    EXPECT_THAT(gradient, testing::Each(6.0f));  // rank 1's alone
    session.Leave();
  }));
}

// Each rank brings its gradient in steps of its own, the last of which is not the program's main thread's: a copier's.
TEST(Steps, AGradientMayComeInParts) {
  constexpr std::uint64_t kElements = 10'001;
  constexpr std::uint32_t kRanks = 3;
  for (const bool weighted : {false, true}) {
    Job job(kRanks);
    ExpectAllOk(job.Run([&](std::uint32_t rank, const poseidon_options& options) {
      Session session(options);
      Model model = session.NewModel();
      const std::uint32_t a = model.Declare(Dense("a", kElements));
      model.Commit();
      const auto value = [](std::uint64_t step, std::uint32_t of, std::uint64_t i) {
        return static_cast<float>((step + 1) * (of + 1) * (i % 1000));
      };
      for (std::uint64_t step = 0; step < 5; ++step) {
        model.BeginStep(step);
        std::vector<float> gradient(kElements, 1e30f);
        poseidon_push more = POSEIDON_NEW(poseidon_push);
        more.weight = weighted ? 2 * rank + 2 : 0;
        more.in_parts = rank == step % 4 ? 0 : 1;
        const auto make = [&](std::uint64_t begin, std::uint64_t end) {
          for (std::uint64_t i = begin; i < end; ++i) gradient[i] = value(step, rank, i);
        };
        if (more.in_parts == 0) make(0, kElements);
        model.Push(a, step, View(gradient), &more);
        if (more.in_parts != 0) {
          EXPECT_FALSE(model.Landed(a));
          std::thread([&] {
            for (std::uint64_t arrived = 0; arrived < kElements;) {
              const std::uint64_t next = std::min(kElements, arrived + 1 + 997 * (rank + 1));
              make(arrived, next);
              model.Arrived(a, next);
              arrived = next;
            }
          }).join();
        }
        model.Wait(a);
        for (std::uint64_t i = 0; i < kElements; ++i) {
          // Whole numbers that floats hold, so that the order of the sum does not count.
          float sum = 0;
          for (std::uint32_t of = 0; of < kRanks; ++of) {
            sum += (weighted ? 2.0f * static_cast<float>(of + 1) : 1.0f) * value(step, of, i);
          }
          ASSERT_FLOAT_EQ(gradient[i], sum / (weighted ? 12.0f : 3.0f)) << "number " << i << " of step " << step;
        }
      }
      session.Leave();
    }));
  }
}

// A job of one worker with a device, and a model with a layer of each kind that it has not committed.
struct AloneWithDevice : testing::Test {
  FakeAccelerator accelerator{1 << 16};
  poseidon_device device = accelerator.Device();
  Session session{[this] {
    poseidon_options options = Alone();
    options.device = &device;
    options.schemes = "f=sfb";
    return options;
  }()};
  Model model = session.NewModel();
  std::uint32_t a = model.Declare(Dense("a", 4));
  std::uint32_t f = model.Declare(WithFactors("f", 2, 3));
};

TEST_F(AloneWithDevice, PartsOutOfTurnAreRefusedAndChangeNothing) {
  const std::uint32_t words = model.Declare(Table("words", 5, 3));
  EXPECT_EQ(FailureOf([&] { model.Arrived(a, 1); }).code, POSEIDON_FAILED_PRECONDITION) << "not committed";
  model.Commit();
  model.BeginStep(0);
  const auto expect_none = [&] {
    const Failure none = FailureOf([&] { model.Arrived(a, 1); });
    EXPECT_EQ(none.code, POSEIDON_FAILED_PRECONDITION);
    EXPECT_EQ(none.message, "a part of layer 'a' arrived, which has no push in parts under way");
  };
  expect_none();
  EXPECT_EQ(FailureOf([&] { model.Arrived(9, 1); }).code, POSEIDON_INVALID_ARGUMENT);
  EXPECT_EQ(poseidon_arrived(nullptr, 0, 1, nullptr), POSEIDON_INVALID_ARGUMENT);

  poseidon_push more = POSEIDON_NEW(poseidon_push);
  more.in_parts = 1;
  std::vector<float> numbers(8, 2.0f);
  const auto refused = [](const Failure& failure, const char* how) {
    EXPECT_EQ(failure.code, POSEIDON_INVALID_ARGUMENT);
    EXPECT_THAT(failure.message, HasSubstr(std::string("was pushed in parts ") + how +
                                           ", expected a whole gradient in host memory"));
  };
  refused(FailureOf([&] { model.Push(a, 0, OnDevice(accelerator, 0, 4), &more); }), "on a device");
  refused(FailureOf([&] {
            model.PushFactors(f, 0, View(numbers.data(), 2), View(numbers.data(), 3), 1, View(numbers), &more);
          }),
          "as factors");
  std::vector<std::int64_t> indices = {1};
  refused(FailureOf([&] { model.PushRows(words, 0, indices, View(numbers.data(), 3), &more); }), "as rows");
  EXPECT_EQ(FailureOf([&] { model.Push(f, 0, View(numbers), &more); }).code, POSEIDON_FAILED_PRECONDITION);
  more.absent = 1;
  refused(FailureOf([&] { model.Push(a, 0, View(numbers.data(), 4), &more); }), "as absent");
  more.absent = 0;
  expect_none();

  numbers.assign(8, 1e30f);
  model.Push(a, 0, View(numbers.data(), 4), &more);
  EXPECT_FALSE(model.Landed(a));
  std::fill_n(numbers.begin(), 3, 2.0f);
  model.Arrived(a, 3);
  for (const std::uint64_t wrong : {std::uint64_t{2}, std::uint64_t{5}, ~std::uint64_t{0}}) {
    const Failure failure = FailureOf([&] { model.Arrived(a, wrong); });
    EXPECT_EQ(failure.code, POSEIDON_INVALID_ARGUMENT);
    EXPECT_EQ(failure.message, std::to_string(wrong) + " numbers of layer 'a' have arrived, expected 3 to 4");
  }
  model.Arrived(a, 3);
  EXPECT_THAT(FailureOf([&] { model.Push(a, 1, View(numbers.data(), 4)); }).message,
              HasSubstr("before its step 0 had landed"));
  EXPECT_FALSE(model.Landed(a));
  numbers[3] = 2.0f;
  model.Arrived(a, 4);
  expect_none();
  model.Wait(a);
  EXPECT_EQ(std::vector<float>(numbers.begin(), numbers.begin() + 4), std::vector<float>(4, 2.0f));
  model.Push(a, 1, View(numbers.data(), 4));
  expect_none();
  model.Wait(a);
  // A program from before parts: nothing behind its struct is read.
  more.struct_size = offsetof(poseidon_push, in_parts);
  model.Push(a, 2, View(numbers.data(), 4), &more);
  model.Wait(a);
  session.Leave();
}

TEST(Steps, LandedIsCalledOncePerPush) {
  Job job(2);
  ExpectAllOk(job.Run([](std::uint32_t, const poseidon_options& options) {
    struct Counter {
      std::atomic<int> calls{0};
      std::promise<void> all;
    } counter;
    constexpr int kLayers = 6;
    Session session(options);
    Model model = session.NewModel();
    std::vector<std::vector<double>> gradients(kLayers, std::vector<double>(100, 1.0));
    for (int l = 0; l < kLayers; ++l) {
      poseidon_layer layer = Dense("", 100);
      const std::string name = "layer" + std::to_string(l);
      layer.name = name.c_str();
      layer.dtype = POSEIDON_F64;
      model.Declare(layer);
    }
    model.Commit();
    poseidon_push more = POSEIDON_NEW(poseidon_push);
    more.landed_user = &counter;
    more.landed = [](void* user, const poseidon_status* status) {
      auto* const counted = static_cast<Counter*>(user);
      EXPECT_EQ(status->code, POSEIDON_OK);
      if (++counted->calls == kLayers) counted->all.set_value();
    };
    model.BeginStep(0);
    for (std::uint32_t l = 0; l < kLayers; ++l) model.Push(l, 0, View(gradients[l]), &more);
    counter.all.get_future().wait();
    for (std::uint32_t l = 0; l < kLayers; ++l) EXPECT_TRUE(model.Landed(l));
    session.Leave();
    EXPECT_EQ(counter.calls, kLayers);
  }));
}

TEST(Steps, OfSeveralLayersTheFirstThatHasLandedIsNamed) {
  Job job(2);
  std::promise<void> b_landed;
  std::shared_future<void> after = b_landed.get_future().share();
  ExpectAllOk(job.Run([&](std::uint32_t rank, const poseidon_options& options) {
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 4));
    const std::uint32_t b = model.Declare(Dense("b", 4));
    model.Commit();
    std::vector<float> of_a(4, 1.0f);
    std::vector<float> of_b(4, static_cast<float>(rank));
    model.BeginStep(0);
    model.Push(b, 0, View(of_b));
    if (rank == 1) after.wait();  // so rank 0's mean of a cannot have landed
    model.Push(a, 0, View(of_a));
    if (rank == 0) {
      EXPECT_EQ(model.WaitAny({a, b}), b);
      EXPECT_EQ(of_b, std::vector<float>(4, 0.5f));
      EXPECT_FALSE(model.Landed(a));
      b_landed.set_value();
      EXPECT_EQ(model.WaitAny({a}), a);
    }
    model.Wait(a);
    EXPECT_EQ(model.WaitAny({b, a}), b);
    EXPECT_THAT(FailureOf([&] { model.WaitAny({}); }).message, HasSubstr("no layer"));
    EXPECT_THAT(FailureOf([&] { model.WaitAny({a, 2}); }).message,
                HasSubstr("layer 2 does not exist"));
    session.Leave();
  }));
}

// Both workers hand on what has landed and never block: what they say that they waited is all that counts.
TEST(Steps, AnEngineThatNeverBlocksSaysHowLongItStoodStill) {
  constexpr std::int64_t kWaited = 40'000'000;  // ns, a step
  constexpr std::uint64_t kSteps = 4;
  Job job(2);
  ExpectAllOk(job.Run([&](std::uint32_t, const poseidon_options& options) {
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 4));
    model.Commit();
    std::vector<float> gradient(4, 1.0f);
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      model.BeginStep(step);
      model.Push(a, step, View(gradient));
      std::this_thread::sleep_for(std::chrono::nanoseconds(kWaited));
      EXPECT_TRUE(model.Landed(a));
      auto status = POSEIDON_NEW(poseidon_status);
      EXPECT_EQ(poseidon_waited(model.get(), kWaited, &status), POSEIDON_OK);
      EXPECT_NE(poseidon_waited(model.get(), -1, &status), POSEIDON_OK);
      EXPECT_THAT(status.message, HasSubstr("waited -1 ns, expected 0 or more"));
    }
    auto known = POSEIDON_NEW(poseidon_statistics);
    ASSERT_EQ(poseidon_get_statistics(session.get(), &known, nullptr), POSEIDON_OK);
    EXPECT_NEAR(known.waited_seconds, 1e-9 * kWaited * kSteps, 1e-9);
    session.Leave();
  }));
}

TEST(Steps, ALayerIsPushedAgainOnlyAfterItLanded) {
  Job job(2);
  std::promise<void> refused;
  std::shared_future<void> after = refused.get_future().share();
  ExpectAllOk(job.Run([&](std::uint32_t rank, const poseidon_options& options) {
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 4));
    model.Commit();
    std::vector<float> gradient(4, 1.0f);
    model.BeginStep(0);
    if (rank == 1) after.wait();  // so rank 0's push cannot have landed
    model.Push(a, 0, View(gradient));
    if (rank == 0) {
      EXPECT_FALSE(model.Landed(a));
      EXPECT_THAT(FailureOf([&] { model.Push(a, 1, View(gradient)); }).message,
                  HasSubstr("'a' was pushed for step 1 before its step 0 had landed"));
      refused.set_value();
    }
    model.Wait(a);
    session.Leave();
  }));
}

TEST(Steps, TheFinalPlanComesAtItsStep) {
  Job job(2);
  ExpectAllOk(job.Run([](std::uint32_t, poseidon_options options) {
    options.final_plan_step = 2;
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 4));
    model.Commit();
    std::vector<float> gradient(4, 1.0f);
    for (std::uint64_t step = 0; step < 4; ++step) {
      if (step == 2) {
        EXPECT_EQ(FailureOf([&] { model.TakesFactors(a, 2); }).code, POSEIDON_FAILED_PRECONDITION);
      }
      model.BeginStep(step);
      EXPECT_EQ(model.Plan().final_plan, step < 2 ? 0 : 1);
      EXPECT_FALSE(model.TakesFactors(a, step));
      model.Push(a, step, View(gradient));
      model.Wait(a);
      if (step == 0) {
        poseidon_measurement measured = POSEIDON_NEW(poseidon_measurement);
        measured.forward_seconds = 0.001;
        measured.backward_seconds = 0.002;
        model.Measured(a, measured);
        model.Report();
      }
    }
    EXPECT_EQ(model.Plan().switch_step, 2u);
    EXPECT_GT(model.Plan().step_seconds, 0.002);
    session.Leave();
  }));
}

// It pays for memory, and on a GPU for what is loaded when it is first used.
TEST(Steps, TheFirstStepCountsInNoPlan) {
  Job job(2);
  ExpectAllOk(job.Run([](std::uint32_t, poseidon_options options) {
    options.final_plan_step = 5;
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 4));
    model.Commit();
    std::vector<float> gradient(4, 1.0f);
    for (std::uint64_t step = 0; step < 6; ++step) {
      model.BeginStep(step);
      model.Push(a, step, View(gradient));
      model.Wait(a);
      const std::int64_t took = step == 0 ? 1'000'000'000 : 2'000'000;
      EXPECT_EQ(poseidon_timed(model.get(), a, step, POSEIDON_BACKWARD, 0, took, nullptr), POSEIDON_OK);
    }
    EXPECT_EQ(model.Plan().final_plan, 1);
    EXPECT_DOUBLE_EQ(model.Plan().single_worker_seconds, 0.002);
    session.Leave();
  }));
}

TEST(Steps, APinnedPlanHoldsAndTheUserWins) {
  Job job(2);
  ExpectAllOk(job.Run([](std::uint32_t, poseidon_options options) {
    options.plan_pin = "one=sfb\ntwo=sfb\n";
    options.schemes = "two=kv";
    Session session(options);
    Model model = session.NewModel();
    model.Declare(WithFactors("one", 4, 4));
    model.Declare(WithFactors("two", 4, 4));
    model.Commit();
    EXPECT_EQ(model.PlanText(), "one=sfb\ntwo=kv\n");
    session.Leave();
  }));
}

TEST(Steps, SmallLayersAreToBeDeclaredAsOne) {
  poseidon_options options = Alone();
  options.schemes = "named=kv";
  const Session session(options);
  poseidon_layer wide = Dense("f64", 10);
  wide.dtype = POSEIDON_F64;
  EXPECT_THAT(session.JoinSmall({Dense("a", 10), Dense("large", 40000), WithFactors("factors", 65, 64), Dense("b", 10),
                                 Dense("named", 10), wide, Dense("c", 10)}),
              ::testing::ElementsAre(0, 1, 2, 0, 4, 5, 0));
  poseidon_layer on_device = Dense("b", 10);
  on_device.on_device = 1;
  EXPECT_THAT(session.JoinSmall({Dense("a", 100000), on_device, Dense("c", 100000)}), ::testing::ElementsAre(0, 0, 2));
  EXPECT_EQ(FailureOf([&] { session.JoinSmall({Dense("a", 10), Dense("a", 10)}); }).code, POSEIDON_INVALID_ARGUMENT);
  EXPECT_EQ(FailureOf([&] { session.JoinSmall({Dense(nullptr, 10)}); }).message, "a layer's name is NULL");
  EXPECT_TRUE(session.JoinSmall({}).empty());
}

TEST(Steps, APlansTextPinsLayersOfAnyName) {
  const std::vector<std::string> names = {"a;b", " edges ", "back\\slash", "two\nlines", "x=kv"};
  const auto text_of_plan = [&](const char* pin) {
    Job job(2);
    std::string text;
    ExpectAllOk(job.Run([&](std::uint32_t rank, poseidon_options options) {
      options.plan_pin = pin;
      Session session(options);
      Model model = session.NewModel();
      for (const std::string& name : names) model.Declare(WithFactors(name.c_str(), 4, 4));
      model.Commit();
      if (rank == 0) text = model.PlanText();
      session.Leave();
    }));
    return text;
  };
  std::string other;
  for (const char c : text_of_plan(nullptr)) {  // each layer by the scheme that it was not sent by
    other += c;
    for (const auto& [now, then] : {std::pair("=kv\n", "=sfb\n"), std::pair("=sfb\n", "=kv\n")}) {
      if (!other.ends_with(now)) continue;
      other.replace(other.size() - std::strlen(now), std::string::npos, then);
      break;
    }
  }
  EXPECT_EQ(text_of_plan(other.c_str()), other);
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

// ---- weights, whichever the scheme

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

// ---- the end

TEST(Ends, AnAbortNamesItsAuthor) {
  Job job(3);
  const std::vector<Failure> failures =
      job.Run([](std::uint32_t rank, const poseidon_options& options) {
        Session session(options);
        if (rank == 1) {
          session.Abort("the disk is full");
          return;
        }
        session.Barrier();
      });
  EXPECT_EQ(failures[1].code, POSEIDON_OK);
  for (const std::size_t rank : {0u, 2u}) {
    EXPECT_EQ(failures[rank].code, POSEIDON_ABORTED);
    EXPECT_EQ(failures[rank].scope, POSEIDON_SCOPE_JOB);
    EXPECT_EQ(failures[rank].culprit, 1);
    EXPECT_THAT(failures[rank].message, HasSubstr("worker 1 on host localhost: the disk is full"));
  }
}

// A session that is closed while a push is under way informs the others, and calls its own callback,
// before it returns.
TEST(Ends, ClosingWithoutLeavingEndsTheJobAndCompletesEveryPush) {
  Job job(2);
  std::promise<void> pushed;
  std::shared_future<void> closing = pushed.get_future().share();
  const std::vector<Failure> failures =
      job.Run([&](std::uint32_t rank, const poseidon_options& options) {
        std::vector<float> gradient(4, 1.0f);
        std::atomic<poseidon_code> told{-1};
        {
          Session session(options);
          Model model = session.NewModel();
          const std::uint32_t a = model.Declare(Dense("a", 4));
          model.Commit();
          model.BeginStep(0);
          if (rank == 0) {
            closing.wait();
            session.Barrier();
            return;
          }
          poseidon_push more = POSEIDON_NEW(poseidon_push);
          more.landed_user = &told;
          more.landed = [](void* user, const poseidon_status* status) {
            static_cast<std::atomic<poseidon_code>*>(user)->store(status->code);
          };
          model.Push(a, 0, View(gradient), &more);
          pushed.set_value();
        }
        EXPECT_EQ(told, POSEIDON_ABORTED);
      });
  EXPECT_EQ(failures[1].code, POSEIDON_OK);
  EXPECT_EQ(failures[0].code, POSEIDON_ABORTED);
  EXPECT_EQ(failures[0].culprit, 1);
  EXPECT_THAT(failures[0].message, HasSubstr("worker 1 on host localhost: closed its session"));
}

// Half of a gradient is under way when the job ends: the push fails once, and parts that follow get the job's failure.
TEST(Ends, AnAbortBetweenTwoPartsFailsThePush) {
  Job job(2);
  std::promise<void> half;
  std::shared_future<void> brought = half.get_future().share();
  const std::vector<Failure> failures = job.Run([&](std::uint32_t rank, const poseidon_options& options) {
    std::vector<float> gradient(100'000, 1.0f);
    std::atomic<int> told = 0;
    {
      Session session(options);
      Model model = session.NewModel();
      const std::uint32_t a = model.Declare(Dense("a", gradient.size()));
      model.Commit();
      model.BeginStep(0);
      if (rank == 1) {
        model.Push(a, 0, View(gradient));
        brought.wait();
        session.Abort("the disk is full");
        return;
      }
      poseidon_push more = POSEIDON_NEW(poseidon_push);
      more.in_parts = 1;
      more.landed_user = &told;
      more.landed = [](void* user, const poseidon_status* status) {
        EXPECT_EQ(status->code, POSEIDON_ABORTED);
        ++*static_cast<std::atomic<int>*>(user);
      };
      model.Push(a, 0, View(gradient), &more);
      model.Arrived(a, gradient.size() / 2);
      half.set_value();
      EXPECT_EQ(FailureOf([&] { model.Wait(a); }).code, POSEIDON_ABORTED);
      const Failure late = FailureOf([&] { model.Arrived(a, gradient.size()); });
      EXPECT_EQ(late.code, POSEIDON_ABORTED);
      EXPECT_THAT(late.message, HasSubstr("the disk is full"));
    }
    EXPECT_EQ(told, 1);
  });
  ExpectAllOk(failures);
}

TEST(Ends, ADedicatedServerReturnsWhenTheWorkersHaveLeft) {
  Job job(2, 1);
  poseidon_options serving;
  std::promise<Failure> served;
  const std::vector<Failure> failures =
      job.Run([&](std::uint32_t rank, const poseidon_options& options) {
        std::thread server;
        if (rank == 1) {
          serving = options;
          serving.role = POSEIDON_SERVER;
          serving.requested_rank = 0;
          server = std::thread(
              [&] { served.set_value(FailureOf([&] { poseidon_cpp::Serve(serving); })); });
        }
        const Failure failure = FailureOf([&] {
          Session session(options);
          Model model = session.NewModel();
          const std::uint32_t a = model.Declare(Dense("a", 10));
          model.Commit();
          std::vector<float> gradient(10, static_cast<float>(2 * rank));
          model.BeginStep(0);
          model.Push(a, 0, View(gradient));
          model.Wait(a);
          EXPECT_THAT(gradient, testing::Each(1.0f));
          EXPECT_EQ(model.Statistics(a).key_value.payload_bytes_sent, 40u);
          session.Leave();
        });
        EXPECT_EQ(failure.code, POSEIDON_OK) << failure.message;
        if (server.joinable()) server.join();
      });
  ExpectAllOk(failures);
  const Failure failure = served.get_future().get();
  EXPECT_EQ(failure.code, POSEIDON_OK) << failure.message;
}

// The program is interrupted (Ctrl-C) in a call that would block for ever: the call ends the job and returns.
TEST(Ends, AnInterruptedWaitEndsTheJob) {
  Job job(2);
  std::promise<void> ended;
  std::shared_future<void> rank_0_ended = ended.get_future().share();
  const std::vector<Failure> failures = job.Run([&](std::uint32_t rank, poseidon_options options) {
    std::atomic<bool> waits = false;
    if (rank == 0) {
      options.interrupted = [](void* user) { return static_cast<std::atomic<bool>*>(user)->load() ? 1 : 0; };
      options.interrupted_user = &waits;
    }
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 4));
    model.Commit();
    model.BeginStep(0);
    if (rank == 1) {  // never pushes
      rank_0_ended.wait();
      session.Barrier();
      return;
    }
    std::vector<float> gradient(4, 1.0f);
    model.Push(a, 0, View(gradient));
    waits = true;
    const Failure failure = FailureOf([&] { model.Wait(a); });
    EXPECT_EQ(failure.code, POSEIDON_ABORTED);
    EXPECT_THAT(failure.message, HasSubstr("was interrupted"));
    ended.set_value();
  });
  EXPECT_EQ(failures[1].code, POSEIDON_ABORTED);
  EXPECT_EQ(failures[1].culprit, 0);
}

TEST(Ends, AnInterruptedJoinReturns) {
  poseidon_options options = Alone();
  options.workers = 2;  // of which the second never comes
  options.token_bytes = kToken.data();
  std::atomic<int> asked = 0;
  options.interrupted = [](void* user) { return static_cast<std::atomic<int>*>(user)->fetch_add(1) > 1 ? 1 : 0; };
  options.interrupted_user = &asked;
  const Failure failure = FailureOf([&] { Session session(options); });
  EXPECT_EQ(failure.code, POSEIDON_ABORTED);
  EXPECT_THAT(failure.message, HasSubstr("was interrupted"));
}

TEST(Ends, AnInterruptedCollectiveEndsTheJob) {
  Job job(2);
  const std::vector<Failure> failures = job.Run([&](std::uint32_t rank, poseidon_options options) {
    std::atomic<bool> waits = false;
    options.interrupted = [](void* user) { return static_cast<std::atomic<bool>*>(user)->load() ? 1 : 0; };
    options.interrupted_user = &waits;
    Session session(options);
    if (rank == 1) session.Leave();
    waits = true;
    session.Barrier();
  });
  EXPECT_EQ(failures[0].code, POSEIDON_ABORTED);
  EXPECT_EQ(failures[1].code, POSEIDON_ABORTED);
}

// ---- an accelerator's memory

// Kernels that make gradient and factors run after they were pushed; the means land on the device, and have the
// bits that the same numbers in host memory give. A layer in host memory is pushed beside it.
TEST(Devices, MeansLandInMemoryThatOnlyCopiesTouch) {
  constexpr std::uint32_t kRanks = 3;
  constexpr std::uint64_t kOutputs = 7, kInputs = 11, kRows = 5, kSteps = 4;
  constexpr std::uint64_t kFlat = kOutputs * kInputs + kOutputs;
  const auto number = [](std::uint32_t rank, std::uint64_t step, std::uint64_t i) {
    return 0.25f * static_cast<float>((rank * 31 + step * 7 + i * 13) % 97) - 11.0f;
  };
  std::array<std::vector<float>, 2> means;  // of rank 0: on the device, on the host
  for (const bool on_device : {true, false}) {
    Job job(kRanks);
    ExpectAllOk(job.Run([&](std::uint32_t rank, poseidon_options options) {
      FakeAccelerator accelerator(1 << 20);
      const poseidon_device device = accelerator.Device();
      options.device = &device;
      options.schemes = "fc=sfb";
      Session session(options);
      Model model = session.NewModel();
      const std::uint32_t a = model.Declare(Dense("a", 3000));
      const std::uint32_t f = model.Declare(WithFactors("fc", kOutputs, kInputs));
      const std::uint32_t h = model.Declare(Dense("on the host", 9));
      model.Commit();
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        model.BeginStep(step);
        std::vector<float> numbers(3000 + kFlat + kRows * (kOutputs + kInputs));
        for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = number(rank, step, i);
        const std::uint64_t at_f = 3000, at_u = at_f + kFlat, at_v = at_u + kRows * kOutputs;
        std::vector<float> host(9, static_cast<float>(rank));
        FakeAccelerator::Event made;
        if (on_device) {
          accelerator.Launch(
              [&] { std::memcpy(accelerator.Inside(accelerator.At(0)), numbers.data(), numbers.size() * 4); }, &made);
          model.Push(a, step, OnDevice(accelerator, 0, 3000, &made));
          model.PushFactors(f, step, OnDevice(accelerator, at_u * 4, kRows * kOutputs, &made),
                            OnDevice(accelerator, at_v * 4, kRows * kInputs, &made), kRows,
                            OnDevice(accelerator, at_f * 4, kFlat));
        } else {
          model.Push(a, step, View(numbers.data(), 3000));
          model.PushFactors(f, step, View(&numbers[at_u], kRows * kOutputs), View(&numbers[at_v], kRows * kInputs),
                            kRows, View(&numbers[at_f], kFlat));
        }
        model.Push(h, step, View(host));
        model.Wait(a);
        model.Wait(f);
        model.Wait(h);
        EXPECT_THAT(host, testing::Each(1.0f));
        if (on_device) std::memcpy(numbers.data(), accelerator.Inside(accelerator.At(0)), numbers.size() * 4);
        if (rank == 0) means[on_device ? 0 : 1].insert(means[on_device ? 0 : 1].end(), numbers.begin(), numbers.begin() + at_u);
      }
      EXPECT_EQ(accelerator.copies_out, on_device ? static_cast<int>(3 * kSteps) : 0);
      EXPECT_EQ(accelerator.copies_in, on_device ? static_cast<int>(2 * kSteps) : 0);
      session.Leave();
    }));
  }
  EXPECT_EQ(means[0], means[1]);
  EXPECT_EQ(means[0][1], (number(0, 0, 1) + number(1, 0, 1) + number(2, 0, 1)) / 3);
}

// 9 MiB leave in three parts; the last one's failure is the layer's.
TEST(Devices, ALargeGradientIsCopiedInParts) {
  constexpr std::uint64_t kElements = (9 << 20) / sizeof(float);
  Job job(2);
  ExpectAllOk(job.Run([&](std::uint32_t rank, poseidon_options options) {
    FakeAccelerator accelerator(16 << 20);
    const poseidon_device device = accelerator.Device();
    options.device = &device;
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", kElements));
    model.Commit();
    model.BeginStep(0);
    FakeAccelerator::Event made;
    float* const inside = static_cast<float*>(accelerator.Inside(accelerator.At(0)));
    accelerator.Launch([&] { std::fill_n(inside, kElements, static_cast<float>(rank)); }, &made);
    model.Push(a, 0, OnDevice(accelerator, 0, kElements, &made));
    model.Wait(a);
    EXPECT_EQ(accelerator.copies_out, 3);
    EXPECT_TRUE(std::all_of(inside, inside + kElements, [](float x) { return x == 0.5f; }));
    session.Leave();
  }));
}

TEST_F(AloneWithDevice, ForeignMemoryAndMixturesAreRefused) {
  model.Commit();
  model.BeginStep(0);
  poseidon_view other = OnDevice(accelerator, 0, 4);
  other.device_id = 1;
  EXPECT_THAT(FailureOf([&] { model.Push(a, 0, other); }).message, HasSubstr("expected host memory (1) or the session's device 0 of type 2"));
  std::vector<float> rows(3);
  EXPECT_THAT(FailureOf([&] { model.PushFactors(f, 0, View(rows.data(), 2), View(rows), 1, OnDevice(accelerator, 0, 8)); }).message,
              HasSubstr("are one on the host and one on the device"));
  FakeAccelerator::Event one, two;
  EXPECT_THAT(FailureOf([&] {
                model.PushFactors(f, 0, OnDevice(accelerator, 64, 2, &one), OnDevice(accelerator, 128, 3, &two), 1,
                                  OnDevice(accelerator, 0, 8));
              }).message,
              HasSubstr("two ready events"));
  EXPECT_EQ(FailureOf([&] {
              model.PushFactors(f, 0, OnDevice(accelerator, 64, 2, &one), OnDevice(accelerator, 128, 3, &one), 1,
                                OnDevice(accelerator, 0, 8, &two));
            }).message,
            "the factors of layer 'f' and its gradient have two ready events, expected the same one");
  EXPECT_THAT(FailureOf([&] { session.Sum(OnDevice(accelerator, 0, 4)); }).code, POSEIDON_UNIMPLEMENTED);
  // The header asks for the same event in all of them.
  accelerator.Launch([] {}, &one);
  model.PushFactors(f, 0, OnDevice(accelerator, 64, 2, &one), OnDevice(accelerator, 128, 3, &one), 1,
                    OnDevice(accelerator, 0, 8, &one));
  model.Wait(f);
  session.Leave();
}

// A session that is closed while a copy is under way returns when the device is through with it.
TEST(Devices, ClosingWaitsForCopiesAndAFailedCopyIsTheLayersFailure) {
  FakeAccelerator accelerator(1 << 20);
  const poseidon_device device = accelerator.Device();
  poseidon_options options = Alone();
  options.device = &device;
  {
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 1000));
    model.Commit();
    model.BeginStep(0);
    accelerator.fail_copies = true;
    model.Push(a, 0, OnDevice(accelerator, 0, 1000));
    EXPECT_THAT(FailureOf([&] { model.Wait(a); }).message, HasSubstr("a copy of 4000 bytes from fake:0 failed with code 11"));
    accelerator.fail_copies = false;
  }
  Session session(options);
  Model model = session.NewModel();
  const std::uint32_t a = model.Declare(Dense("a", 1000));
  model.Commit();
  model.BeginStep(0);
  for (int i = 0; i < 20; ++i) accelerator.Launch([] {});  // what the copy has to wait behind
  model.Push(a, 0, OnDevice(accelerator, 0, 1000));
}

// ---- beside the steps

TEST(Collectives, SumBroadcastBarrierGather) {
  constexpr std::uint32_t kRanks = 3;
  Job job(kRanks);
  ExpectAllOk(job.Run([](std::uint32_t rank, const poseidon_options& options) {
    Session session(options);
    std::vector<double> numbers(100, 1.0 + rank);
    session.Sum(View(numbers));
    EXPECT_THAT(numbers, testing::Each(6.0));
    std::vector<std::int64_t> counts(7, rank == 2 ? 42 : -1);
    session.Broadcast(View(counts), 2);
    EXPECT_THAT(counts, testing::Each(42));
    session.Barrier();
    EXPECT_EQ(session.Gather(std::string(rank * 5, static_cast<char>('a' + rank))),
              (std::vector<std::string>{"", "bbbbb", "cccccccccc"}));
    session.Leave();
  }));
}

// Each worker sums what the other does not; whose call comes first, and who owns the small one, both end.
TEST(Collectives, OfTwoSizesEndTheJobForAll) {
  for (const std::uint32_t small : {0u, 1u}) {
    for (const int before : {0, 1}) {
      Job job(2);
      const std::vector<Failure> failures = job.Run([&](std::uint32_t rank, const poseidon_options& options) {
        Session session(options);
        for (int i = 0; i < before; ++i) session.Barrier();
        std::vector<float> numbers(rank == small ? 10 : 2000, 1);
        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));  // most often rank 0's comes first
        session.Sum(View(numbers));
      });
      for (const Failure& failure : failures) {
        EXPECT_NE(failure.code, POSEIDON_OK);
        EXPECT_THAT(failure.message, HasSubstr("collective")) << "small " << small << ", before " << before;
      }
    }
  }
}

TEST(Trace, HoldsTheEnginesSpansAndTheCores) {
  Job job(2);
  ExpectAllOk(job.Run([](std::uint32_t, poseidon_options options) {
    options.trace_spans = 1000;
    Session session(options);
    Model model = session.NewModel();
    const std::uint32_t a = model.Declare(Dense("a", 5000));
    model.Commit();
    std::vector<float> gradient(5000, 1.0f);
    model.BeginStep(3);
    poseidon_span span = POSEIDON_NEW(poseidon_span);
    span.lane = POSEIDON_LANE_COMPUTE;
    span.step = 3;
    span.begin_nanoseconds = poseidon_now(session.get());
    span.end_nanoseconds = poseidon_now(session.get());
    span.label = "backward";
    EXPECT_EQ(poseidon_record(session.get(), &span, nullptr), POSEIDON_OK);
    span.lane = 17;
    EXPECT_EQ(poseidon_record(session.get(), &span, nullptr), POSEIDON_INVALID_ARGUMENT);
    model.Push(a, 3, View(gradient));
    model.Wait(a);
    bool computed = false;
    bool sent = false;
    for (const poseidon_span& found : session.TakeTrace()) {
      EXPECT_LE(found.begin_nanoseconds, found.end_nanoseconds);
      computed = computed || std::string(found.label) == "backward";
      sent = sent || (found.lane == POSEIDON_LANE_SEND && found.bytes > 0 && found.step == 3);
    }
    EXPECT_TRUE(computed);
    EXPECT_TRUE(sent);
    session.Leave();
  }));
}

}  // namespace
