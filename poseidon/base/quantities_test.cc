// SPDX-License-Identifier: Apache-2.0
#include "poseidon/base/quantities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poseidon {
namespace {

using ::testing::HasSubstr;

TEST(ParseRate, TakesNumbersWithUnits) {
  EXPECT_DOUBLE_EQ(*ParseRate("10Gbit"), 10e9);
  EXPECT_DOUBLE_EQ(*ParseRate("2.5 Gbit/s"), 2.5e9);
  EXPECT_DOUBLE_EQ(*ParseRate("100mbps"), 100e6);
  EXPECT_DOUBLE_EQ(*ParseRate("64kbit"), 64e3);
  EXPECT_DOUBLE_EQ(*ParseRate("1e9bit"), 1e9);
  for (const char* ten : {"10G", "10g", "10Gb/s", "10Gbps", "10 Gbits/s", "10000M", "1e10bps"}) {
    EXPECT_DOUBLE_EQ(*ParseRate(ten), 10e9) << ten;
  }
  EXPECT_DOUBLE_EQ(*ParseRate("400Mbit"), 400e6);
}

TEST(ParseRate, RefusesInOneSentence) {
  for (const char* text : {"", "fast", "10", "10GB", "1GBps", "1e15Gbit", "0Gbit", "-1Gbit", "nanGbit", "infGbit",
                           "10Gbit/h", "1e400bit"}) {
    const Result<double> rate = ParseRate(text);
    ASSERT_FALSE(rate.ok()) << text;
    EXPECT_THAT(rate.status().message(), HasSubstr("rate '" + std::string(text) + "'"));
    EXPECT_THAT(rate.status().message(), HasSubstr("10Gbit"));
  }
}

TEST(ParseDuration, TakesNumbersWithUnits) {
  EXPECT_DOUBLE_EQ(*ParseDuration("100us"), 100e-6);
  EXPECT_DOUBLE_EQ(*ParseDuration("0.5 ms"), 0.5e-3);
  EXPECT_DOUBLE_EQ(*ParseDuration("2s"), 2);
  EXPECT_DOUBLE_EQ(*ParseDuration("0s"), 0);
  for (const char* text : {"", "100", "-1us", "1 hour", "infs"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

TEST(ParseBandwidth, IsInBytes) {
  EXPECT_DOUBLE_EQ(*ParseBandwidth("400Mbit"), 50e6);
  EXPECT_EQ(*ParseBandwidth(""), 0);
  EXPECT_THAT(ParseBandwidth("400MB").status().message(), HasSubstr("bandwidth: rate '400MB' is not understood"));
}

TEST(RateText, HasAUnit) {
  EXPECT_EQ(RateText(10e9), "10 Gbit/s");
  EXPECT_EQ(RateText(2.5e9), "2.5 Gbit/s");
  EXPECT_EQ(RateText(100e6), "100 Mbit/s");
  EXPECT_EQ(RateText(1e9), "1 Gbit/s");
  EXPECT_EQ(RateText(500), "500 bit/s");
  EXPECT_EQ(RateText(1e12), "1 Tbit/s");
}

}  // namespace
}  // namespace poseidon
