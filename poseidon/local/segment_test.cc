// SPDX-License-Identifier: Apache-2.0
#include "poseidon/local/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>

#include "poseidon/local/layout.h"

namespace poseidon::local {
namespace {

TEST(Segment, WhatOneWritesTheOtherReads) {
  const auto made = Segment::Make(100'000);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const auto attached = Segment::Attach((*made)->offer());
  ASSERT_TRUE(attached.ok()) << attached.status().message();
  ASSERT_EQ((*attached)->memory().size(), 100'000u);
  (*made)->memory()[99'999] = std::byte{7};
  EXPECT_EQ((*attached)->memory()[99'999], std::byte{7});
  EXPECT_EQ((*attached)->memory()[0], std::byte{0});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>((*attached)->memory().data()) % 4096, 0u);
}

TEST(Segment, AnotherProcessAttachesAndItsDeathLeavesTheRest) {
  const auto made = Segment::Make(4096);
  ASSERT_TRUE(made.ok());
  const wire::Segment offer = (*made)->offer();
  const pid_t child = fork();
  if (child == 0) {
    const auto attached = Segment::Attach(offer);
    if (attached.ok()) (*attached)->memory()[5] = std::byte{9};
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ((*made)->memory()[5], std::byte{9});
}

TEST(Segment, NobodyAttachesAfterClose) {
  const auto made = Segment::Make(4096);
  ASSERT_TRUE(made.ok());
  const wire::Segment offer = (*made)->offer();
  (*made)->Close();
  EXPECT_FALSE(Segment::Attach(offer).ok());
  (*made)->memory()[0] = std::byte{1};
}

TEST(Segment, AnOfferOfSomethingElseIsRefused) {
  const auto made = Segment::Make(4096);
  ASSERT_TRUE(made.ok());
  const wire::Segment offer = (*made)->offer();
  wire::Segment wrong = offer;
  wrong.nonce ^= 1;
  EXPECT_EQ(Segment::Attach(wrong).status().code(), StatusCode::kDataLoss);
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{8192}, ~std::uint64_t{0},
                                    std::uint64_t{1} << 47}) {
    wrong = offer;
    wrong.bytes = bytes;
    EXPECT_EQ(Segment::Attach(wrong).status().code(), StatusCode::kDataLoss) << bytes;
  }
  wrong = offer;
  wrong.process = 0;
  EXPECT_EQ(Segment::Attach(wrong).status().code(), StatusCode::kUnavailable);
  // What is no memory at all, among it a pipe whose opening could wait.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  for (const int descriptor : {ends[0], ends[1], open("/dev/null", O_RDWR), open("/dev/zero", O_RDWR)}) {
    wrong = offer;
    wrong.descriptor = static_cast<std::uint32_t>(descriptor);
    EXPECT_FALSE(Segment::Attach(wrong).ok());
    close(descriptor);
  }
  EXPECT_EQ(Segment::Make(std::uint64_t{1} << 60).status().code(), StatusCode::kResourceExhausted);
}

TEST(Segment, ItsMakerCannotShrinkIt) {
  const auto made = Segment::Make(4096);
  ASSERT_TRUE(made.ok());
  EXPECT_NE(ftruncate(static_cast<int>((*made)->offer().descriptor), 0), 0);
}

TEST(Segment, ProcessesOfOneMachineSayTheSame) { EXPECT_EQ(ThisMachine(), ThisMachine()); }

TEST(Layout, SlotsLieBehindOneAnother) {
  const std::vector<plan::LayerSpec> layers = {
      {.name = "dense", .elements = 3000},
      {.name = "fc", .elements = 100 * 50 + 100, .factors = plan::FactorShape{100, 50, true}}};
  const auto layout = Layout::Of(layers, 3);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->slot_bytes(LayerId(0)), 12'288u);
  EXPECT_EQ(layout->slot_bytes(LayerId(1)), kLeastRows * 150 * 4);
  EXPECT_EQ(layout->OffsetOf(LayerId(0), 2), 2 * 12'288u);
  EXPECT_EQ(layout->OffsetOf(LayerId(1), 0), 4 * 12'288u) << "three workers' and the mean's";
  EXPECT_EQ(layout->bytes(), layout->OffsetOf(LayerId(1), 3) + layout->slot_bytes(LayerId(1)));
}

TEST(Layout, WhatNoAddressSpaceHoldsIsRefused) {
  const std::vector<plan::LayerSpec> layers(20, {.name = "huge", .elements = plan::kMaxElements});
  EXPECT_EQ(Layout::Of(layers, 2).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace poseidon::local
