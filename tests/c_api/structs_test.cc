// SPDX-License-Identifier: Apache-2.0
// poseidon.h from the outside: versions, and structs of older and newer programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "tests/c_api/one_process.h"

namespace {

using namespace poseidon_test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;
using testing::StartsWith;

TEST(Version, IsThatOfTheHeader) {
  EXPECT_EQ(poseidon_version(), POSEIDON_VERSION_MAJOR << 16 | POSEIDON_VERSION_MINOR);
  EXPECT_THAT(poseidon_version_text(),
              StartsWith(std::to_string(POSEIDON_VERSION_MAJOR) + "." + std::to_string(POSEIDON_VERSION_MINOR) + "."));
}

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

}  // namespace
