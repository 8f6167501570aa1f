// SPDX-License-Identifier: Apache-2.0
#include "poseidon/wire/plan_codec.h"

#include <string>

#include "poseidon/base/byte_codec.h"
#include "poseidon/plan/lanes.h"
#include "poseidon/plan/schemes.h"

namespace poseidon::wire {
namespace {

using plan::ClusterSpec;
using plan::FactorShape;
using plan::LayerMeasurement;
using plan::LayerPlan;
using plan::LayerSpec;
using plan::Plan;

constexpr std::uint8_t kFormat = 4;
constexpr std::size_t kMaxReasonBytes = 16384;
constexpr std::uint32_t kMaxRanks = 0xffff;

// The fewest bytes one of them takes, which bounds how many a buffer of a given size can hold.
constexpr std::size_t kLeastLayerBytes = 4 + 4 + 1 + 8 + 4 + 1;
constexpr std::size_t kLeastLayerPlanBytes = 1 + 1 + 4 + 8 + 8 + 1 + 4 + 8 + 8 + 8 + 8;

template <typename Enum>
Enum Choice(ByteReader& in) {
  // The cast takes any number, so the value is checked after it.
  const auto value = static_cast<Enum>(in.U8());
  if (!IsValid(value)) in.Fail();
  return value;
}

void PutLayer(ByteWriter& out, const LayerSpec& layer) {
  out.Text(layer.name);
  out.Text(layer.shape);
  out.U8(static_cast<std::uint8_t>(layer.dtype));
  out.U64(layer.elements);
  out.U32(layer.forward_position);
  out.Bool(layer.factors.has_value());
  if (!layer.factors) return;
  out.U64(layer.factors->outputs);
  out.U64(layer.factors->inputs);
  out.Bool(layer.factors->bias);
  out.Bool(layer.factors->table);
  out.Bool(layer.factors->by_device);
}

LayerSpec GetLayer(ByteReader& in) {
  LayerSpec layer;
  layer.name = in.Text(plan::kMaxNameBytes);
  layer.shape = in.Text(plan::kMaxNameBytes);
  layer.dtype = Choice<DType>(in);
  layer.elements = in.U64();
  layer.forward_position = in.U32();
  if (!in.Bool()) return layer;
  FactorShape shape;
  shape.outputs = in.U64();
  shape.inputs = in.U64();
  shape.bias = in.Bool();
  shape.table = in.Bool();
  shape.by_device = in.Bool();
  layer.factors = shape;
  return layer;
}

void PutCluster(ByteWriter& out, const ClusterSpec& cluster) {
  out.U32(cluster.workers);
  out.U32(cluster.servers);
  out.Bool(cluster.servers_share_worker_hosts);
  out.U32(static_cast<std::uint32_t>(cluster.host_of_rank.size()));
  for (const std::uint32_t host : cluster.host_of_rank) out.U32(host);
  out.F64(cluster.copy_bytes_per_second);
  out.F64(cluster.bandwidth);
  out.F64(cluster.latency);
  out.F64(cluster.rebuild_flops);
  out.F64(cluster.cpu_seconds_per_wire_byte);
  out.F64(cluster.cores_per_worker);
  out.U32(cluster.compute_threads);
  out.U16(cluster.lanes);
}

ClusterSpec GetCluster(ByteReader& in) {
  ClusterSpec cluster;
  cluster.workers = in.U32();
  cluster.servers = in.U32();
  if (cluster.workers < 1 || cluster.workers > kMaxRanks || cluster.servers > kMaxRanks) {
    in.Fail();
  }
  cluster.servers_share_worker_hosts = in.Bool();
  const std::uint32_t ranks = in.Count(kMaxRanks, 4);
  cluster.host_of_rank.reserve(ranks);
  for (std::uint32_t i = 0; i < ranks; ++i) cluster.host_of_rank.push_back(in.U32());
  // The cost model indexes by these numbers (SumByHost, AtLeaders).
  if (!plan::AreHosts(cluster.host_of_rank, cluster.workers)) in.Fail();
  cluster.copy_bytes_per_second = in.Quantity();
  cluster.bandwidth = in.Quantity();
  cluster.latency = in.Quantity();
  cluster.rebuild_flops = in.Quantity();
  cluster.cpu_seconds_per_wire_byte = in.Quantity();
  cluster.cores_per_worker = in.Quantity();
  cluster.compute_threads = in.U32();
  cluster.lanes = in.U16();
  if (cluster.lanes < 1 || cluster.lanes > plan::kMaxLanes) in.Fail();
  return cluster;
}

void PutLayerPlan(ByteWriter& out, const LayerPlan& layer) {
  out.U8(static_cast<std::uint8_t>(layer.scheme));
  out.Bool(layer.forced);
  out.Text(layer.reason);
  out.F64(layer.measured.forward_seconds);
  out.F64(layer.measured.backward_seconds);
  out.Bool(layer.measured.backward_has_weight_product);
  out.U32(static_cast<std::uint32_t>(layer.measured.rows.size()));
  for (const std::uint32_t rows : layer.measured.rows) out.U32(rows);
  out.U64(layer.bytes_sent);
  out.U64(layer.bytes_received);
  out.F64(layer.transfer_seconds);
  out.F64(layer.rebuild_seconds);
  out.U32(layer.send_position);
}

LayerPlan GetLayerPlan(ByteReader& in) {
  LayerPlan layer;
  layer.scheme = Choice<plan::Scheme>(in);
  layer.forced = in.Bool();
  layer.reason = in.Text(kMaxReasonBytes);
  layer.measured.forward_seconds = in.Quantity();
  layer.measured.backward_seconds = in.Quantity();
  layer.measured.backward_has_weight_product = in.Bool();
  const std::uint32_t ranks = in.Count(kMaxRanks, 4);
  layer.measured.rows.reserve(ranks);
  for (std::uint32_t i = 0; i < ranks; ++i) layer.measured.rows.push_back(in.U32());
  layer.bytes_sent = in.U64();
  layer.bytes_received = in.U64();
  layer.transfer_seconds = in.Quantity();
  layer.rebuild_seconds = in.Quantity();
  layer.send_position = in.U32();
  return layer;
}

}  // namespace

ByteBuffer EncodeLayers(std::span<const LayerSpec> layers) {
  ByteWriter out;
  out.U8(kFormat);
  out.U32(static_cast<std::uint32_t>(layers.size()));
  for (const LayerSpec& layer : layers) PutLayer(out, layer);
  return out.Take();
}

Result<std::vector<LayerSpec>> DecodeLayers(ConstBytes bytes) {
  ByteReader in(bytes);
  if (in.U8() != kFormat) in.Fail();
  const std::uint32_t count = in.Count(plan::kMaxLayers, kLeastLayerBytes);
  std::vector<LayerSpec> layers;
  // A reader that has failed reads zeros from then on, so the loop asks before it allocates one more layer.
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) layers.push_back(GetLayer(in));
  POSEIDON_RETURN_IF_ERROR(in.Finish("the list of layers"));
  POSEIDON_RETURN_IF_ERROR(plan::Validate(layers));
  return layers;
}

ByteBuffer EncodePlan(const Plan& plan) {
  ByteWriter out;
  out.U8(kFormat);
  out.U32(plan.epoch.value());
  out.U64(plan.switch_step.value());
  out.U8(static_cast<std::uint8_t>(plan.policy));
  PutCluster(out, plan.cluster);
  out.F64(plan.step_seconds);
  out.F64(plan.compute_seconds);
  out.F64(plan.single_worker_seconds);
  out.F64(plan.speedup);
  out.F64(plan.wfbp_seconds);
  out.F64(plan.dense_step_seconds);
  out.U64(plan.bytes_sent);
  out.U64(plan.dense_bytes_sent);
  out.U32(static_cast<std::uint32_t>(plan.layers.size()));
  for (const LayerPlan& layer : plan.layers) PutLayerPlan(out, layer);
  return out.Take();
}

Result<Plan> DecodePlan(ConstBytes bytes) {
  ByteReader in(bytes);
  if (in.U8() != kFormat) in.Fail();
  Plan plan;
  plan.epoch = PlanEpoch(in.U32());
  plan.switch_step = Step(in.U64());
  plan.policy = Choice<plan::Policy>(in);
  plan.cluster = GetCluster(in);
  plan.step_seconds = in.Quantity();
  plan.compute_seconds = in.Quantity();
  plan.single_worker_seconds = in.Quantity();
  plan.speedup = in.Quantity();
  plan.wfbp_seconds = in.Quantity();
  plan.dense_step_seconds = in.Quantity();
  plan.bytes_sent = in.U64();
  plan.dense_bytes_sent = in.U64();
  const std::uint32_t count = in.Count(plan::kMaxLayers, kLeastLayerPlanBytes);
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    plan.layers.push_back(GetLayerPlan(in));
    // The number of a layer is not on the wire: it is its place, so no plan can number its layers otherwise.
    plan.layers.back().layer = LayerId(i);
  }
  POSEIDON_RETURN_IF_ERROR(in.Finish("the plan"));
  return plan;
}

Status CheckPlanFits(const Plan& plan, std::span<const LayerSpec> layers) {
  if (plan.layers.size() != layers.size()) {
    return InvalidArgument("the plan has " + std::to_string(plan.layers.size()) +
                           " layers, expected the " + std::to_string(layers.size()) + " declared");
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerPlan& layer = plan.layers[i];
    if (layer.layer.value() != i) {
      return InvalidArgument("the plan has layer '" + layers[i].name + "' as number " +
                             std::to_string(layer.layer.value()) + ", expected " +
                             std::to_string(i));
    }
    if (!plan::RowOf(layer.scheme).applies(layers[i])) {
      return InvalidArgument("the plan has scheme " + std::string(plan::NameOf(layer.scheme)) + " for layer '" +
                             layers[i].name + "', expected " + plan::SchemeNamesFor(layers[i]));
    }
    const std::size_t ranks = layer.measured.rows.size();
    if (ranks != 0 && ranks != plan.cluster.workers) {
      return InvalidArgument("the plan has row counts of " + std::to_string(ranks) +
                             " ranks for layer '" + layers[i].name + "', expected " +
                             std::to_string(plan.cluster.workers));
    }
  }
  return OkStatus();
}

}  // namespace poseidon::wire
