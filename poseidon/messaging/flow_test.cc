// SPDX-License-Identifier: Apache-2.0
#include "poseidon/messaging/flow.h"

#include <gtest/gtest.h>

#include "poseidon/wire/frame.h"

namespace poseidon::messaging {
namespace {

constexpr double kGigabit = 125e6;

TEST(FlowFor, AnUnknownLinkKeepsTheDefaults) {
  EXPECT_EQ(FlowFor({}, 3), Flow{});
  EXPECT_EQ(FlowFor({kGigabit, 50e-6}, 0), Flow{});
}

TEST(FlowFor, ChunksAreHalfAMillisecond) {
  EXPECT_EQ(FlowFor({kGigabit, 50e-6}, 3).chunk_bytes, 64u * 1024);
  EXPECT_EQ(FlowFor({10 * kGigabit, 50e-6}, 3).chunk_bytes, 512u * 1024);
  EXPECT_EQ(FlowFor({kGigabit / 10, 50e-6}, 3).chunk_bytes, 64u * 1024);
  EXPECT_EQ(FlowFor({100 * kGigabit, 50e-6}, 3).chunk_bytes, wire::kMaxPayload);
}

TEST(FlowFor, ChunksOfAllConnectionsAreAMillisecondAndAHalf) {
  EXPECT_EQ(FlowFor({10 * kGigabit, 50e-6}, 1).chunk_bytes,
            FlowFor({10 * kGigabit, 50e-6}, 3).chunk_bytes);
  EXPECT_EQ(FlowFor({10 * kGigabit, 50e-6}, 7).chunk_bytes, 256u * 1024);
  EXPECT_EQ(FlowFor({10 * kGigabit, 50e-6}, 15).chunk_bytes, 128u * 1024);
  // Not less than a tenth of a millisecond on each.
  EXPECT_EQ(FlowFor({10 * kGigabit, 50e-6}, 63).chunk_bytes, 128u * 1024);
}

TEST(FlowFor, AllConnectionsTogetherHoldARoundTripAndAMillisecond) {
  const std::size_t one = FlowFor({10 * kGigabit, 50e-6}, 1).send_buffer_bytes;
  EXPECT_NEAR(static_cast<double>(one), 10 * kGigabit * 1.1e-3, 1);
  EXPECT_NEAR(static_cast<double>(FlowFor({10 * kGigabit, 50e-6}, 3).send_buffer_bytes),
              static_cast<double>(one) / 3, 1);
}

TEST(FlowFor, ALonePeerOnALongLinkGetsAllOfIt) {
  // 10 ms there and back: two round trips at full rate, however many peers there are.
  EXPECT_NEAR(static_cast<double>(FlowFor({kGigabit, 5e-3}, 7).send_buffer_bytes),
              2 * kGigabit * 10e-3, 1);
}

TEST(FlowFor, BoundsHold) {
  EXPECT_EQ(FlowFor({1e3, 0}, 8).send_buffer_bytes, 64u * 1024);
  EXPECT_EQ(FlowFor({1e12, 1}, 1).send_buffer_bytes, 8u * 1024 * 1024);
  EXPECT_EQ(UrgentFlowFor({1e3, 0}, 8).send_buffer_bytes, 16u * 1024);
  EXPECT_EQ(UrgentFlowFor({1e3, 0}, 8).chunk_bytes, 16u * 1024);
}

TEST(FlowFor, ManyPeersShareTheFloors) {
  EXPECT_EQ(FlowFor({1e3, 0}, 32).send_buffer_bytes, 16u * 1024);
  EXPECT_EQ(FlowFor({1e3, 0}, 32).chunk_bytes, 16u * 1024);
  EXPECT_EQ(UrgentFlowFor({1e3, 0}, 16).chunk_bytes, 8u * 1024);
  EXPECT_EQ(FlowFor({1e3, 0}, 1023).send_buffer_bytes, 8u * 1024) << "at least a few segments each";
}

TEST(FlowFor, WhereBytesGetLostLittleIsCommitted) {
  const Flow slow = FlowFor({50e6, 100e-6}, 7);
  EXPECT_EQ(slow.lossy_chunk_bytes, 16u * 1024);
  EXPECT_EQ(slow.lossy_send_buffer_bytes, 16u * 1024);
  EXPECT_EQ(UrgentFlowFor({50e6, 100e-6}, 7).lossy_send_buffer_bytes, 16u * 1024);
  // Of a fast link shared by few the buffers last as long as before: with less it is idle while the thread waits for a core.
  EXPECT_EQ(FlowFor({kGigabit, 50e-6}, 3).lossy_chunk_bytes, 16u * 1024);
  EXPECT_EQ(FlowFor({kGigabit, 50e-6}, 3).lossy_send_buffer_bytes, 64u * 1024);
  // A lone peer still gets the whole of a long link.
  EXPECT_NEAR(static_cast<double>(FlowFor({kGigabit, 5e-3}, 7).lossy_send_buffer_bytes), kGigabit * 10e-3, 1);
}

TEST(FlowFor, AWindowStaysInTheCacheWhereTheThreadIsSlowerThanTheLink) {
  const double slow = 1e-9;  // a tenth of 10 Gbit/s more than the thread carries
  EXPECT_EQ(FlowFor({10 * kGigabit, 20e-6, slow}, 1).window_bytes, 512u * 1024);
  EXPECT_EQ(FlowFor({10 * kGigabit, 20e-6, slow}, 3).window_bytes, 512u * 1024);
  EXPECT_EQ(FlowFor({10 * kGigabit, 20e-6, slow}, 6).window_bytes, 256u * 1024);
  EXPECT_EQ(FlowFor({10 * kGigabit, 20e-6, slow}, 1023).window_bytes, 64u * 1024);
  EXPECT_EQ(UrgentFlowFor({10 * kGigabit, 20e-6, slow}, 3).window_bytes, 512u * 1024);
}

TEST(FlowFor, AWindowFillsTheLinkThatIsSlower) {
  for (const double cpu : {0.0, 0.5e-9}) {
    const Flow flow = FlowFor({10 * kGigabit, 20e-6, cpu}, 3);
    EXPECT_EQ(flow.window_bytes, 2 * (flow.chunk_bytes + flow.send_buffer_bytes));
    EXPECT_EQ(UrgentFlowFor({10 * kGigabit, 20e-6, cpu}, 3).window_bytes, flow.window_bytes);
  }
  EXPECT_EQ(FlowFor({kGigabit / 10, 20e-6}, 3).window_bytes, 512u * 1024) << "more than the link needs";
}

TEST(UrgentFlowFor, CommitsHalfAmongManyButARoundTripOnEach) {
  for (const std::size_t peers : {1u, 3u, 7u, 31u}) {
    for (const double rate : {kGigabit, 10 * kGigabit, 40 * kGigabit}) {
      const LinkSpeed link{rate, 20e-6};
      const Flow usual = FlowFor(link, peers);
      const Flow urgent = UrgentFlowFor(link, peers);
      const double most = peers >= 7 || rate == kGigabit ? 1.0 / 2 : 2.0 / 3;
      EXPECT_LE(DrainSeconds(urgent, link, peers), most * DrainSeconds(usual, link, peers))
          << peers << " peers at " << rate;
      EXPECT_GE(static_cast<double>(urgent.send_buffer_bytes), rate * 40e-6 - 1);
    }
  }
  EXPECT_EQ(UrgentFlowFor({}, 3), Flow{});
}

TEST(DrainSeconds, IsWhatAllConnectionsCommitOverTheRate) {
  const Flow flow{.chunk_bytes = 1000, .write_bytes = 2000, .send_buffer_bytes = 8000};
  EXPECT_DOUBLE_EQ(DrainSeconds(flow, {1e6, 1e-3}, 3), 0.03);
  EXPECT_EQ(DrainSeconds(flow, {}, 3), 0);
}

}  // namespace
}  // namespace poseidon::messaging
