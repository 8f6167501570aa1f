// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poseidon::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kFactor = 10'000'000;

ClusterSpec Cluster(double bandwidth, double cpu = 0, std::uint32_t workers = 2) {
  ClusterSpec cluster;
  cluster.workers = workers;
  cluster.bandwidth = bandwidth;
  cluster.cpu_seconds_per_wire_byte = cpu;
  return cluster;
}

double MostShare(const ClusterSpec& cluster, std::uint64_t bytes = kFactor) {
  return static_cast<double>(MostPayingBytes(bytes, cluster.workers - 1, CompressionCostsOf(cluster))) /
         static_cast<double>(bytes);
}

TEST(ZeroCompressionPays, ByTheTimeOfBytesAgainstThatOfCompressing) {
  // At 1 Gbit/s a byte takes 8 ns, of which compressing and expanding one take 0.4 ns.
  EXPECT_NEAR(MostShare(Cluster(0.125e9)), 1 - 0.4 / 8, 1e-3);
  EXPECT_NEAR(MostShare(Cluster(1.25e9)), 1 - 0.4 / 0.8, 2e-3);
  EXPECT_NEAR(MostShare(Cluster(1.25e9, 1.1e-9)), 1 - 0.4 / 1.9, 2e-3);
  // Compressed once for three receivers.
  EXPECT_NEAR(MostShare(Cluster(1.25e9, 0, 4)), 1 - (0.2 / 3 + 0.2) / 0.8, 2e-3);
}

TEST(ZeroCompressionPays, NotWhereBytesTakeNoTimeOrAreFew) {
  EXPECT_EQ(MostShare(Cluster(0)), 0);  // unknown
  EXPECT_EQ(MostShare(Cluster(12.5e9)), 0);
  EXPECT_EQ(MostPayingBytes(kFactor, 0, {.wire = 1, .compress = 0, .expand = 0}), 0u);
  EXPECT_EQ(MostShare(Cluster(0.125e9), 1000), 0);  // 8 us, less than a message costs
  EXPECT_GT(MostShare(Cluster(0.125e9), 10'000), 0.5);
}

TEST(WhenFactorsAreCompressed, IsSaidWithItsNumbers) {
  Plan plan;
  plan.cluster = Cluster(0.125e9, 1e-9);
  plan.layers.resize(2);
  EXPECT_EQ(WhenFactorsAreCompressed(plan, ZeroCompression::kAuto), "") << "no factors";
  plan.layers[1].scheme = Scheme::kFactorBroadcast;
  EXPECT_EQ(WhenFactorsAreCompressed(plan, ZeroCompression::kOff), "");
  EXPECT_THAT(WhenFactorsAreCompressed(plan, ZeroCompression::kAlways), HasSubstr("every factor"));
  EXPECT_THAT(WhenFactorsAreCompressed(plan, ZeroCompression::kAuto),
              AllOf(HasSubstr("9.00 ns on the wire"), HasSubstr("0.40 ns to leave zeros out"),
                    HasSubstr("more than 8 % are zeros"), HasSubstr("predictions count them whole")));
  plan.cluster.bandwidth = 0;
  plan.cluster.cpu_seconds_per_wire_byte = 0.4e-9;
  EXPECT_THAT(WhenFactorsAreCompressed(plan, ZeroCompression::kAuto), HasSubstr("no factor leaves without its zeros"));
  plan.cluster.workers = 1;
  EXPECT_EQ(WhenFactorsAreCompressed(plan, ZeroCompression::kAuto), "") << "nobody to send to";
}

TEST(ZeroCompression, HasNames) {
  for (const ZeroCompression mode : {ZeroCompression::kAuto, ZeroCompression::kOff, ZeroCompression::kAlways}) {
    EXPECT_EQ(ParseZeroCompression(NameOf(mode)), mode);
  }
  EXPECT_EQ(ParseZeroCompression("on"), std::nullopt);
}

}  // namespace
}  // namespace poseidon::plan
