// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/joining.h"

#include <gmock/gmock.h>

namespace poseidon::plan {
namespace {

using ::testing::ElementsAre;

constexpr std::uint64_t kMost = kMostJoinedBytes / 4;  // elements of f32

LayerSpec Of(const std::string& name, std::uint64_t elements, DType dtype = DType::kF32) {
  return {.name = name, .dtype = dtype, .elements = elements};
}

TEST(Joining, SmallLayersJoinOverLargeOnesUpToASize) {
  EXPECT_THAT(JoinSmall(std::vector{Of("a", kMost / 10), Of("b", kMost + 1), Of("c", kMost / 2), Of("d", kMost + 1),
                                    Of("e", kMost / 10), Of("f", kMost / 2), Of("g", kMost / 10)}),
              ElementsAre(0, 1, 0, 3, 0, 5, 5));
}

TEST(Joining, AMessageIsFullAtTheLimitAndNotBelow) {
  EXPECT_THAT(JoinSmall(std::vector{Of("a", kMost - 1), Of("b", 1), Of("c", 1)}), ElementsAre(0, 0, 2));
  EXPECT_THAT(JoinSmall(std::vector{Of("a", 1), Of("b", kMost), Of("c", 1)}), ElementsAre(0, 1, 0));
}

TEST(Joining, EveryTypeHasItsOwn) {
  EXPECT_THAT(JoinSmall(std::vector{Of("a", 3), Of("b", 3, DType::kF64), Of("c", 3), Of("d", 3, DType::kF64)}),
              ElementsAre(0, 1, 0, 1));
}

TEST(Joining, TablesAndNamedOnesStayAlone) {
  std::vector<LayerSpec> layers = {Of("a", 3), Of("b", 6), Of("c", 3), Of("d", 3)};
  layers[1].factors = FactorShape{.outputs = 3, .inputs = 2, .table = true};
  EXPECT_THAT(JoinSmall(layers, {"c"}), ElementsAre(0, 1, 2, 0));
}

TEST(Joining, AProductJoinsUpToASizeWithoutItsBias) {
  std::vector<LayerSpec> layers = {Of("a", 3), Of("b", 64 * 64 + 64), Of("c", 65 * 64)};
  layers[1].factors = FactorShape{.outputs = 64, .inputs = 64, .bias = true};
  layers[2].factors = FactorShape{.outputs = 65, .inputs = 64};
  EXPECT_THAT(JoinSmall(layers), ElementsAre(0, 0, 2));
}

}  // namespace
}  // namespace poseidon::plan
