// SPDX-License-Identifier: Apache-2.0
#include "poseidon/coordinator/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace poseidon::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<plan::LayerSpec> Layers() {
  return {{.name = "conv1", .shape = "20x1x5x5+20", .elements = 520},
          {.name = "ip1",
           .shape = "500x800+500",
           .elements = 400'500,
           .forward_position = 1,
           .factors = plan::FactorShape{500, 800, true}}};
}

wire::Declare Declaration() {
  wire::Declare declare;
  declare.layers = Layers();
  declare.product_hashes = {0, 77};
  declare.engine = "loops";
  declare.rebuild_flops = 3e10;
  declare.bandwidth = 1e9;
  declare.latency = 1e-4;
  declare.cores = 8;
  declare.compute_threads = 7;
  return declare;
}

TEST(Agree, EqualWorkersAgree) {
  const std::vector<wire::Declare> all(3, Declaration());
  const Agreement agreement = Agree(all, 2).value();
  EXPECT_EQ(agreement.layers, Layers());
  EXPECT_THAT(agreement.products_agree, ElementsAre(true, true));
  EXPECT_EQ(agreement.cluster.workers, 3u);
  EXPECT_EQ(agreement.cluster.servers, 2u);
  EXPECT_EQ(agreement.cluster.bandwidth, 1e9);
}

TEST(Agree, TheSlowestPartCounts) {
  std::vector<wire::Declare> all(3, Declaration());
  all[1].bandwidth = 5e8;
  all[1].cores = 4;
  all[2].latency = 3e-4;
  all[2].rebuild_flops = 1e10;
  all[2].compute_threads = 3;
  const plan::ClusterSpec cluster = Agree(all, 0).value().cluster;
  EXPECT_EQ(cluster.bandwidth, 5e8);
  EXPECT_EQ(cluster.latency, 3e-4);
  EXPECT_EQ(cluster.rebuild_flops, 1e10);
  EXPECT_EQ(cluster.cores_per_worker, 4);
  EXPECT_EQ(cluster.compute_threads, 3u);
}

// A worker that measured nothing says nothing.
TEST(Agree, UnknownIsNotSlow) {
  std::vector<wire::Declare> all(2, Declaration());
  all[0].bandwidth = 0;
  all[0].rebuild_flops = 0;
  EXPECT_EQ(Agree(all, 0).value().cluster.bandwidth, 1e9);
  EXPECT_EQ(Agree(all, 0).value().cluster.rebuild_flops, 3e10);
  all[1].bandwidth = 0;
  EXPECT_EQ(Agree(all, 0).value().cluster.bandwidth, 0);
}

TEST(Agree, OneDifferentProductIsEnough) {
  std::vector<wire::Declare> all(3, Declaration());
  all[2].product_hashes[1] = 78;
  EXPECT_THAT(Agree(all, 0).value().products_agree, ElementsAre(true, false));
}

// The planner leaves out what hosts multiply then, and by the products also what everybody does.
TEST(Agree, ALayerThatAnyDeviceMultipliesIsSaidToBe) {
  std::vector<wire::Declare> all(3, Declaration());
  for (wire::Declare& one : all) one.layers[1].factors->by_device = true;
  EXPECT_TRUE(Agree(all, 0).value().layers[1].is_multiplied_by_device());
  for (const std::size_t rank : {0u, 2u}) {
    std::vector<wire::Declare> mixed = all;
    mixed[rank].layers[1].factors->by_device = false;
    mixed[rank].product_hashes[1] = 78;
    const Agreement agreement = Agree(mixed, 0).value();
    EXPECT_TRUE(agreement.layers[1].is_multiplied_by_device());
    EXPECT_THAT(agreement.products_agree, ElementsAre(true, false));
  }
}

TEST(Agree, ADifferenceNamesLayerWorkerAndBothShapes) {
  std::vector<wire::Declare> all(3, Declaration());
  all[2].layers[1] = {.name = "ip1",
                      .shape = "400x800+400",
                      .elements = 320'400,
                      .forward_position = 1,
                      .factors = plan::FactorShape{400, 800, true}};
  const Status status = Agree(all, 0).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("layer 'ip1'"), HasSubstr("worker 2"), HasSubstr("400x800+400"),
                    HasSubstr("500x800+500"), HasSubstr("worker 0")));
}

TEST(Agree, DifferentNamesOrdersAndCountsAreToldApart) {
  std::vector<wire::Declare> all(2, Declaration());
  all[1].layers[0].name = "conv9";
  EXPECT_THAT(Agree(all, 0).status().message(),
              AllOf(HasSubstr("layer 0"), HasSubstr("'conv9' on worker 1"),
                    HasSubstr("'conv1' on worker 0")));
  all[1] = Declaration();
  all[1].layers.pop_back();
  all[1].product_hashes.pop_back();
  EXPECT_THAT(Agree(all, 0).status().message(),
              AllOf(HasSubstr("worker 1 has 1 learnable layers"), HasSubstr("worker 0 has 2"),
                    HasSubstr("'ip1'")));
  all[1] = Declaration();
  all[1].layers[1].factors.reset();
  EXPECT_THAT(Agree(all, 0).status().message(), HasSubstr("without factors"));
  all[1] = Declaration();
  all[1].layers[0].dtype = DType::kF64;
  EXPECT_THAT(Agree(all, 0).status().message(), HasSubstr("f64"));
  all[1] = Declaration();
  std::swap(all[1].layers[0].forward_position, all[1].layers[1].forward_position);
  EXPECT_THAT(Agree(all, 0).status().message(), HasSubstr("'conv1'"));
}

TEST(Agree, WhatNobodyMayDeclareIsRefused) {
  std::vector<wire::Declare> all(1, Declaration());
  all[0].layers[1].name = "conv1";
  EXPECT_THAT(Agree(all, 0).status().message(),
              AllOf(HasSubstr("worker 0"), HasSubstr("two layers are named 'conv1'")));
}

// Sums exist for f32, f64 and i64: a layer of halves must not come as far as a shard.
TEST(Agree, NumbersThatCannotBeSummedAreRefused) {
  std::vector<wire::Declare> all(2, Declaration());
  for (wire::Declare& declare : all) declare.layers[0].dtype = DType::kBF16;
  const Status status = Agree(all, 0).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("layer 'conv1'"), HasSubstr("bf16")));
}

TEST(Agree, AModelWithoutLayersIsAModel) {
  std::vector<wire::Declare> all(2);
  EXPECT_TRUE(Agree(all, 0).value().layers.empty());
}

TEST(Combine, TakesTheSlowestTimesAndEveryRanksRows) {
  std::vector<wire::Measured> all(2);
  all[0].layers = {{1e-3, 5e-3, 0}, {2e-3, 2e-3, 64}};
  all[1].layers = {{3e-3, 4e-3, 0}, {1e-3, 6e-3, 32}};
  plan::Plan under;
  under.layers.resize(2);
  under.layers[1].scheme = plan::Scheme::kFactorBroadcast;
  const auto combined = Combine(all, Layers(), under);
  ASSERT_EQ(combined.size(), 2u);
  EXPECT_EQ(combined[0].forward_seconds, 3e-3);
  EXPECT_EQ(combined[0].backward_seconds, 5e-3);
  EXPECT_TRUE(combined[0].rows.empty());
  EXPECT_TRUE(combined[0].backward_has_weight_product);
  EXPECT_THAT(combined[1].rows, ElementsAre(64u, 32u));
  EXPECT_FALSE(combined[1].backward_has_weight_product);
}

}  // namespace
}  // namespace poseidon::coordinator
