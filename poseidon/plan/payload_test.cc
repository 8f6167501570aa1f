// SPDX-License-Identifier: Apache-2.0
#include "poseidon/plan/payload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "poseidon/plan/units_range.h"

namespace poseidon::plan {
namespace {

// The oracle: every single message of a step, delivered and counted at both ends.
class Ledger {
 public:
  Ledger(std::size_t workers, std::size_t servers)
      : payload_{std::vector<NodeBytes>(workers), std::vector<NodeBytes>(servers)} {}
  // Nodes: the workers by rank, then the servers.
  void Message(std::size_t from, std::size_t to, std::uint64_t bytes) {
    if (from == to) return;
    Node(from).sent += bytes;
    Node(to).received += bytes;
  }
  const LayerPayload& payload() const { return payload_; }

 private:
  NodeBytes& Node(std::size_t i) {
    return i < payload_.workers.size() ? payload_.workers[i]
                                       : payload_.servers[i - payload_.workers.size()];
  }
  LayerPayload payload_;
};

TEST(KeyValuePayload, EqualsEveryMessageCounted) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    const auto workers = static_cast<std::uint32_t>(1 + random() % 9);
    const auto servers = static_cast<std::uint32_t>(random() % 5);
    const auto shards = static_cast<std::uint16_t>(servers == 0 ? workers : servers);
    const DType dtype = i % 3 == 0 ? DType::kF64 : DType::kF32;
    const std::uint64_t elements = 1 + random() % 100'000;
    const auto slices = MakeSlices(elements, dtype, shards, 0);
    Ledger ledger(workers, servers);
    for (const Slice& slice : slices) {
      const std::size_t owner = servers == 0 ? slice.shard : workers + slice.shard;
      for (std::size_t w = 0; w < workers; ++w) {
        ledger.Message(w, owner, slice.count * SizeOf(dtype));
        ledger.Message(owner, w, slice.count * SizeOf(dtype));
      }
    }
    ASSERT_EQ(KeyValuePayload(slices, dtype, workers, servers), ledger.payload());
  }
}

TEST(FactorPayload, EqualsEveryMessageCounted) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 2000; ++i) {
    const FactorShape shape{.outputs = 1 + random() % 999, .inputs = 1 + random() % 999};
    std::vector<std::uint32_t> rows(1 + random() % 9);
    for (auto& k : rows) k = static_cast<std::uint32_t>(random() % 4 == 0 ? 0 : random() % 300);
    Ledger ledger(rows.size(), 0);
    for (std::size_t from = 0; from < rows.size(); ++from) {
      for (std::size_t to = 0; to < rows.size(); ++to) {
        ledger.Message(from, to, rows[from] * shape.outputs * 4);
        ledger.Message(from, to, rows[from] * shape.inputs * 4);
      }
    }
    ASSERT_EQ(FactorPayload(shape, DType::kF32, rows), ledger.payload());
  }
}

TEST(FactorScatterPayload, EqualsEveryMessageCounted) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 2000; ++i) {
    const auto workers = static_cast<std::uint32_t>(1 + random() % 9);
    const auto servers = static_cast<std::uint32_t>(random() % 5);
    const auto shards = static_cast<std::uint16_t>(servers == 0 ? workers : servers);
    const DType dtype = i % 3 == 0 ? DType::kF64 : DType::kF32;
    const FactorShape shape{.outputs = 1 + random() % 40, .inputs = 1 + random() % 999, .bias = i % 2 == 0};
    std::vector<std::uint32_t> rows(workers);
    for (auto& k : rows) k = static_cast<std::uint32_t>(random() % 4 == 0 ? 0 : random() % 300);
    Ledger ledger(workers, servers);
    for (const UnitRange& range : DivideUnits(shape, shards)) {
      const std::size_t owner = servers == 0 ? range.shard : workers + range.shard;
      for (std::size_t w = 0; w < workers; ++w) {
        ledger.Message(w, owner, rows[w] * range.count * SizeOf(dtype));    // errors of the owner's units
        ledger.Message(w, owner, rows[w] * shape.inputs * SizeOf(dtype));
        ledger.Message(owner, w, range.count * shape.inputs * SizeOf(dtype));  // the slice
        if (shape.bias) ledger.Message(owner, w, range.count * SizeOf(dtype));
      }
    }
    const LayerPayload payload = FactorScatterPayload(shape, dtype, rows, workers, servers, shards);
    ASSERT_EQ(payload, ledger.payload());
    NodeBytes all;
    for (const NodeBytes& member : payload.workers) all = all + member;
    for (const NodeBytes& member : payload.servers) all = all + member;
    ASSERT_EQ(all.sent, all.received);
  }
}

TEST(FactorScatterPayload, AsByHand) {
  // 4 outputs of 3 inputs and a bias: each of two owners gets 2 + 3 numbers a row and returns 2 * (3 + 1).
  const FactorShape shape{.outputs = 4, .inputs = 3, .bias = true};
  const std::vector<std::uint32_t> rows = {5, 1};
  EXPECT_EQ(FactorScatterPayload(shape, DType::kF32, rows, 2, 0, 2).workers,
            (std::vector<NodeBytes>{{5 * 20 + 32, 20 + 32}, {20 + 32, 5 * 20 + 32}}));
  // One server gets all 4 + 3 of each of the 6 rows and returns all 16 to both.
  const LayerPayload at_server = FactorScatterPayload(shape, DType::kF32, rows, 2, 1, 1);
  EXPECT_EQ(at_server.workers, (std::vector<NodeBytes>{{5 * 28, 64}, {28, 64}}));
  EXPECT_EQ(at_server.servers, (std::vector<NodeBytes>{{128, 6 * 28}}));
  // Without rows, as before the first step, what is known are slices.
  EXPECT_EQ(FactorScatterPayload(shape, DType::kF32, {}, 2, 0, 2).workers,
            (std::vector<NodeBytes>{{32, 32}, {32, 32}}));
}

// Two hosts of two workers: their leaders exchange, each the rows of both.
TEST(Payload, OfScatteredFactorsGoesBetweenLeaders) {
  const LayerSpec layer{.name = "fc",
                        .elements = 16,
                        .factors = FactorShape{.outputs = 4, .inputs = 3, .bias = true}};
  ClusterSpec cluster;
  cluster.workers = 4;
  cluster.host_of_rank = {0, 0, 1, 1};
  LayerPlan layer_plan;
  layer_plan.scheme = Scheme::kFactorScatter;
  layer_plan.measured.rows = {2, 3, 1, 0};
  EXPECT_EQ(PayloadOf(layer, {}, layer_plan, cluster).workers,
            (std::vector<NodeBytes>{{132, 52}, {}, {52, 132}, {}}));
}

TEST(Payload, AgreesWithThePublishedExample) {
  // M = N = 4096, K = 32, P = 8: 58.7 M elements through a busiest node that is worker and server,
  // 3.67 M with factors, both directions summed (Zhang et al., USENIX ATC 2017, table 1).
  const LayerSpec layer{.name = "fc",
                        .shape = "4096x4096",
                        .elements = 16'777'216,
                        .factors = FactorShape{4096, 4096, false}};
  const auto slices = MakeSlices(layer.elements, layer.dtype, 8, 0);
  ClusterSpec cluster;
  cluster.workers = 8;
  LayerPlan layer_plan;
  layer_plan.measured.rows.assign(8, 32);
  const NodeBytes dense = BusiestWorker(PayloadOf(layer, slices, layer_plan, cluster));
  EXPECT_EQ((dense.sent + dense.received) / 4, 58'720'256u);
  layer_plan.scheme = Scheme::kFactorBroadcast;
  const NodeBytes factors = BusiestWorker(PayloadOf(layer, slices, layer_plan, cluster));
  EXPECT_EQ((factors.sent + factors.received) / 4, 3'670'016u);
}

TEST(Payload, ServersTakeNoPartInFactors) {
  const LayerSpec layer{
      .name = "fc", .shape = "", .elements = 6, .factors = FactorShape{2, 3, false}};
  ClusterSpec cluster;
  cluster.workers = 2;
  cluster.servers = 1;
  LayerPlan layer_plan;
  layer_plan.scheme = Scheme::kFactorBroadcast;
  layer_plan.measured.rows = {3, 1};
  const LayerPayload payload = PayloadOf(layer, {}, layer_plan, cluster);
  EXPECT_EQ(payload.workers, (std::vector<NodeBytes>{{60, 20}, {20, 60}}));
  EXPECT_EQ(payload.servers, (std::vector<NodeBytes>{{0, 0}}));
}

// An index of 8 bytes and 3 numbers each; hosts do not combine rows, so each worker sends its own to each other.
TEST(Payload, OfATableIsItsRowsBetweenAllWorkers) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const std::uint64_t row = 8 + 3 * SizeOf(dtype);
    const LayerSpec table{.name = "words",
                          .dtype = dtype,
                          .elements = 300,
                          .factors = FactorShape{.outputs = 100, .inputs = 3, .table = true}};
    ClusterSpec cluster;
    cluster.workers = 3;
    cluster.servers = 1;
    cluster.host_of_rank = {0, 1, 0};
    LayerPlan layer_plan;
    layer_plan.scheme = Scheme::kFactorBroadcast;
    layer_plan.measured.rows = {5, 0, 2};
    const LayerPayload payload = PayloadOf(table, {}, layer_plan, cluster);
    EXPECT_EQ(payload.workers,
              (std::vector<NodeBytes>{{10 * row, 2 * row}, {0, 7 * row}, {4 * row, 5 * row}}));
    EXPECT_EQ(payload.servers, std::vector<NodeBytes>(1));
  }
}

}  // namespace
}  // namespace poseidon::plan
