// SPDX-License-Identifier: Apache-2.0
// What is refused, or ends the job for all: by a sentence that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/c_api/one_process.h"

namespace {

using namespace poseidon_test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

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
  EXPECT_THAT(refusal([](auto& o) { o.lanes = 17; }).message, HasSubstr("lanes is 17"));
  EXPECT_THAT(refusal([](auto& o) { o.zero_compression = 3; }).message, HasSubstr("zero_compression is 3"));
  EXPECT_THAT(refusal([](auto& o) { o.strategy = "ps"; }).message, HasSubstr("strategy is 'ps', expected one of poseidon, wfbp"));
  EXPECT_THAT(refusal([](auto& o) { o.bandwidth = "400MB"; }).message, HasSubstr("bandwidth: rate '400MB' is not understood, expected bits"));
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

}  // namespace
