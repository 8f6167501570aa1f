// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/average_precision.h"

#include <gtest/gtest.h>

#include <array>

namespace poseidon::caffe {
namespace {

// Four objects of class 1: right, wrong, right, wrong, right from the most confident on. None found of class 2's three, class 3 has no object.
AveragePrecision Some() {
  AveragePrecision precision;
  const std::array<double, 5> rows[] = {
      {-1, 1, 3, -1, -1}, {-1, 2, 3, -1, -1}, {-1, 3, 0, -1, -1},  // of one batch
      {0, 1, 0.5, 1, 0},  {0, 1, 0.9, 1, 0},  {0, 1, 0.1, 1, 0},  {0, 3, 0.7, 0, 1},
      {0, 1, 0.95, 0, 0},  // a difficult object, which is not counted
      {-1, 1, 1, -1, -1},  // of another
      {1, 1, 0.6, 0, 1},  {1, 1, 0.3, 0, 1},
  };
  for (const auto& row : rows) precision.Add(row);
  return precision;
}

double MeanOf(const AveragePrecision& precision, ApVersion version) { return AveragePrecision::Mean(precision.OfClasses(version)); }

TEST(AveragePrecision, SumsPrecisionOverRecall) {
  // Points: precision 1, 1/2, 2/3, 1/2, 3/5 at recall 1/4, 1/4, 1/2, 1/2, 3/4.
  const AveragePrecision precision = Some();
  const double integral = 0.25 * (1 + 2.0 / 3 + 3.0 / 5);
  EXPECT_DOUBLE_EQ(precision.OfClasses(ApVersion::kIntegral).at(1), integral);
  EXPECT_DOUBLE_EQ(precision.OfClasses(ApVersion::kMaxIntegral).at(1), integral);  // precision falls at every step of recall
  EXPECT_DOUBLE_EQ(precision.OfClasses(ApVersion::k11Point).at(1), (3 * 1 + 3 * 2.0 / 3 + 2 * 3.0 / 5) / 11);
  EXPECT_DOUBLE_EQ(MeanOf(precision, ApVersion::kIntegral), integral / 3);
}

TEST(AveragePrecision, ClassesThatHaveNothingAreZeros) {
  const auto classes = Some().OfClasses(ApVersion::kIntegral);
  EXPECT_EQ(classes.size(), 3u);
  EXPECT_EQ(classes.at(2), 0);
  EXPECT_EQ(classes.at(3), 0);
  EXPECT_EQ(MeanOf(AveragePrecision(), ApVersion::k11Point), 0);
}

TEST(AveragePrecision, TheGreatestPrecisionBeyondARecallCounts) {
  AveragePrecision precision;
  const std::array<double, 5> rows[] = {{-1, 1, 2, -1, -1}, {0, 1, 0.9, 0, 1}, {0, 1, 0.8, 1, 0}, {0, 1, 0.7, 1, 0}};
  for (const auto& row : rows) precision.Add(row);
  EXPECT_DOUBLE_EQ(MeanOf(precision, ApVersion::kIntegral), 0.5 * (1.0 / 2 + 2.0 / 3));
  EXPECT_DOUBLE_EQ(MeanOf(precision, ApVersion::kMaxIntegral), 2.0 / 3);
  EXPECT_DOUBLE_EQ(MeanOf(precision, ApVersion::k11Point), 2.0 / 3);
}

TEST(AveragePrecision, NamesOfVersionsAreSsds) {
  EXPECT_EQ(ParseApVersion("11point").value(), ApVersion::k11Point);
  EXPECT_EQ(ParseApVersion("VOC").status().message(), "the solver's ap_version is 'VOC', expected Integral, MaxIntegral or 11point");
}

}  // namespace
}  // namespace poseidon::caffe
