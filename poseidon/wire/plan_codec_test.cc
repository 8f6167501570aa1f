// SPDX-License-Identifier: Apache-2.0
#include "poseidon/wire/plan_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "poseidon/base/byte_codec.h"
#include "poseidon/plan/planner.h"
#include "poseidon/plan/schemes.h"

namespace poseidon::wire {
namespace {

using plan::LayerSpec;
using plan::Plan;
using plan::Scheme;
using ::testing::HasSubstr;

std::vector<LayerSpec> Layers() {
  return {{.name = "conv1", .shape = "20x1x5x5+20", .elements = 520},
          {.name = "ip1",
           .shape = "500x800+500",
           .dtype = DType::kF64,
           .elements = 400'500,
           .forward_position = 1,
           .factors = plan::FactorShape{500, 800, true}},
          {.name = "words",
           .shape = "1000x16",
           .elements = 16'000,
           .forward_position = 2,
           .factors = plan::FactorShape{.outputs = 1000, .inputs = 16, .table = true}}};
}

Plan MakeExample() {
  plan::ClusterSpec cluster;
  cluster.workers = 3;
  cluster.servers = 2;
  cluster.host_of_rank = {0, 1, 0};
  cluster.copy_bytes_per_second = 4e9;
  cluster.bandwidth = 119.5e6;
  cluster.latency = 1e-4;
  cluster.rebuild_flops = 3e10;
  cluster.cpu_seconds_per_wire_byte = 0.6e-9;
  cluster.cores_per_worker = 0.5;
  plan::LayerMeasurement measured;
  measured.forward_seconds = 1e-3;
  measured.backward_seconds = 2e-3;
  measured.rows = {64, 63, 0};
  const std::vector<plan::LayerMeasurement> all = {measured, measured, measured};
  Plan plan = plan::MakePlan(Layers(), cluster, all, {}).value();
  plan.epoch = PlanEpoch(1);
  plan.switch_step = Step(10);
  return plan;
}

TEST(PlanCodec, WhatWasEncodedIsDecoded) {
  EXPECT_EQ(DecodeLayers(EncodeLayers(Layers())).value(), Layers());
  EXPECT_EQ(DecodeLayers(EncodeLayers({})).value(), std::vector<LayerSpec>{});
  EXPECT_EQ(DecodePlan(EncodePlan(MakeExample())).value(), MakeExample());
}

TEST(PlanCodec, EveryTruncationIsRefused) {
  const ByteBuffer plan = EncodePlan(MakeExample());
  for (std::size_t size = 0; size < plan.size(); ++size) {
    EXPECT_EQ(DecodePlan(ConstBytes(plan).first(size)).status().code(), StatusCode::kDataLoss);
  }
  const ByteBuffer layers = EncodeLayers(Layers());
  for (std::size_t size = 0; size < layers.size(); ++size) {
    EXPECT_EQ(DecodeLayers(ConstBytes(layers).first(size)).status().code(), StatusCode::kDataLoss);
  }
}

TEST(PlanCodec, BytesBehindTheEndAreRefused) {
  ByteBuffer plan = EncodePlan(MakeExample());
  plan.push_back(std::byte{0});
  EXPECT_THAT(DecodePlan(plan).status().message(), HasSubstr("1 bytes behind its end"));
}

TEST(PlanCodec, AbsurdCountsAllocateNothing) {
  ByteWriter out;
  out.U8(1);
  out.U32(0xffff'ffff);
  EXPECT_EQ(DecodeLayers(out.buffer()).status().code(), StatusCode::kDataLoss);
}

TEST(PlanCodec, IllegalValuesAreRefused) {
  Plan plan = MakeExample();
  plan.step_seconds = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(DecodePlan(EncodePlan(plan)).ok());
  plan = MakeExample();
  plan.cluster.bandwidth = -1;
  EXPECT_FALSE(DecodePlan(EncodePlan(plan)).ok());
  plan = MakeExample();
  plan.cluster.host_of_rank = {0, 2, 0};
  EXPECT_FALSE(DecodePlan(EncodePlan(plan)).ok());
  plan = MakeExample();
  plan.cluster.workers = 0;
  EXPECT_FALSE(DecodePlan(EncodePlan(plan)).ok());
  plan = MakeExample();
  plan.layers[1].scheme = static_cast<Scheme>(4);
  EXPECT_FALSE(DecodePlan(EncodePlan(plan)).ok());
  auto layers = Layers();
  layers[1].elements += 1;
  EXPECT_THAT(DecodeLayers(EncodeLayers(layers)).status().message(), HasSubstr("layer 'ip1'"));
}

TEST(PlanCodec, KnowsEveryScheme) {
  Plan plan = MakeExample();
  for (const plan::SchemeRow& row : plan::Schemes()) {
    plan.layers[1].scheme = row.scheme;
    EXPECT_EQ(DecodePlan(EncodePlan(plan)).value(), plan) << row.name;
    EXPECT_TRUE(CheckPlanFits(plan, Layers()).ok()) << row.name;
  }
}

TEST(CheckPlanFits, NamesTheLayer) {
  const auto layers = Layers();
  EXPECT_TRUE(CheckPlanFits(MakeExample(), layers).ok());
  Plan plan = MakeExample();
  plan.layers[0].scheme = Scheme::kFactorBroadcast;
  EXPECT_THAT(CheckPlanFits(plan, layers).message(), HasSubstr("layer 'conv1'"));
  plan = MakeExample();
  plan.layers[1].measured.rows.pop_back();
  EXPECT_THAT(CheckPlanFits(plan, layers).message(), HasSubstr("row counts of 2 ranks"));
  plan = MakeExample();
  plan.layers[2].scheme = Scheme::kKeyValue;
  EXPECT_THAT(CheckPlanFits(plan, layers).message(), HasSubstr("the plan has scheme kv for layer 'words', expected sfb"));
  plan.layers.pop_back();
  EXPECT_THAT(CheckPlanFits(plan, layers).message(), HasSubstr("has 2 layers, expected the 3"));
}

// Arbitrary bytes and damaged encodings: refused, or decoded to what encodes to the same bytes.
TEST(PlanCodec, DamagedBytesNeverSurprise) {
  std::mt19937_64 random(11);
  const ByteBuffer good_plan = EncodePlan(MakeExample());
  const ByteBuffer good_layers = EncodeLayers(Layers());
  int accepted = 0;
  for (int i = 0; i < 100'000; ++i) {
    ByteBuffer bytes = i % 2 == 0 ? good_plan : good_layers;
    if (i % 10 == 9) {
      bytes.resize(random() % 200);
      for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    }
    for (std::uint64_t flips = random() % 4; flips > 0 && !bytes.empty(); --flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    if (random() % 8 == 0) bytes.resize(random() % (bytes.size() + 1));
    if (const auto plan = DecodePlan(bytes); plan.ok()) {
      ++accepted;
      ASSERT_EQ(EncodePlan(*plan), bytes);
    }
    if (const auto layers = DecodeLayers(bytes); layers.ok()) {
      ++accepted;
      ASSERT_EQ(EncodeLayers(*layers), bytes);
    }
  }
  EXPECT_GT(accepted, 10'000);
}

}  // namespace
}  // namespace poseidon::wire
