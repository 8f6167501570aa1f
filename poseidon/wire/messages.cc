// SPDX-License-Identifier: Apache-2.0
#include "poseidon/wire/messages.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "poseidon/base/byte_codec.h"
#include "poseidon/plan/lanes.h"
#include "poseidon/wire/plan_codec.h"

namespace poseidon::wire {
namespace {

constexpr std::size_t kMaxHost = 255;
constexpr std::size_t kMaxReason = 4096;
constexpr std::size_t kMaxLossReason = 512;

// A text is cut before it is sent: a receiver refuses a longer one, and with it the whole message.
std::string Clip(const std::string& text, std::size_t size) { return text.substr(0, size); }

void Put(ByteWriter& w, const Join& m) {
  w.U8(static_cast<std::uint8_t>(m.role));
  w.I32(m.requested_rank);
  w.Text(Clip(m.host, kMaxHost));
  w.Text(Clip(m.listen_host, kMaxHost));
  w.U16(m.listen_port);
  w.Text(Clip(m.machine, kMaxHost));
  w.Text(Clip(m.strategy, kMaxHost));
  w.F64(m.bandwidth);
}
double TakeBandwidth(ByteReader& r) {
  const double bandwidth = r.F64();
  if (!(bandwidth >= 0 && std::isfinite(bandwidth))) r.Fail();
  return bandwidth;
}
Role TakeRole(ByteReader& r) {
  const auto role = static_cast<Role>(r.U8());
  if (role != Role::kWorker && role != Role::kServer) r.Fail();
  return role;
}
void Take(ByteReader& r, Join& m) {
  m.role = TakeRole(r);
  m.requested_rank = r.I32();
  m.host = r.Text(kMaxHost);
  m.listen_host = r.Text(kMaxHost);
  m.listen_port = r.U16();
  m.machine = r.Text(kMaxHost);
  m.strategy = r.Text(kMaxHost);
  m.bandwidth = TakeBandwidth(r);
}

void Put(ByteWriter& w, const Welcome& m) {
  w.U32(m.generation.value());
  w.U16(m.member.value());
  w.F64(m.bandwidth);
  w.U32(static_cast<std::uint32_t>(m.roster.size()));
  for (const RosterEntry& e : m.roster) {
    w.U16(e.member.value());
    w.U8(static_cast<std::uint8_t>(e.role));
    w.U16(e.rank.value());
    w.Text(Clip(e.host, kMaxHost));
    w.Text(Clip(e.listen_host, kMaxHost));
    w.U16(e.listen_port);
    w.Text(Clip(e.machine, kMaxHost));
  }
}
void Take(ByteReader& r, Welcome& m) {
  m.generation = Generation(r.U32());
  m.member = MemberId(r.U16());
  m.bandwidth = TakeBandwidth(r);
  // 19 bytes are an entry with empty texts. Count refuses more entries than the rest of the message can hold, here
  // and below, before anything is allocated.
  const std::uint32_t count = r.Count(kMaxMembers, 19);
  for (std::uint32_t i = 0; i < count; ++i) {
    RosterEntry e;
    e.member = MemberId(r.U16());
    e.role = TakeRole(r);
    e.rank = Rank(r.U16());
    e.host = r.Text(kMaxHost);
    e.listen_host = r.Text(kMaxHost);
    e.listen_port = r.U16();
    e.machine = r.Text(kMaxHost);
    m.roster.push_back(std::move(e));
  }
  // The receiver looks itself up in the roster by this number (session/formation.cc).
  if (m.member.value() >= count) r.Fail();
}

void Put(ByteWriter& w, const Refuse& m) { w.Text(Clip(m.reason, kMaxReason)); }
void Take(ByteReader& r, Refuse& m) { m.reason = r.Text(kMaxReason); }

void Put(ByteWriter& w, const Hello& m) {
  w.U32(m.generation.value());
  w.U16(m.from.value());
  w.U16(m.to.value());
  w.U16(m.lane);
}
void Take(ByteReader& r, Hello& m) {
  m.generation = Generation(r.U32());
  m.from = MemberId(r.U16());
  m.to = MemberId(r.U16());
  m.lane = r.U16();
  if (m.lane >= plan::kMaxLanes) r.Fail();
}

void Put(ByteWriter& w, const LaneAddress& m) {
  w.U16(m.lane);
  w.U16(m.port);
}
void Take(ByteReader& r, LaneAddress& m) {
  m.lane = r.U16();
  m.port = r.U16();
  if (m.lane < 1 || m.lane >= plan::kMaxLanes) r.Fail();
}

ModelId TakeModel(ByteReader& r) {
  const std::uint16_t model = r.U16();
  if (model >= kMaxModels) r.Fail();
  return ModelId(model);
}

// Both messages of a barrier.
template <typename Barrier>
void PutStage(ByteWriter& w, const Barrier& m) {
  w.U8(static_cast<std::uint8_t>(m.stage));
  w.U16(m.model.value());
}
template <typename Barrier>
void TakeStage(ByteReader& r, Barrier& m) {
  m.stage = static_cast<Stage>(r.U8());
  if (m.stage < Stage::kConnected || m.stage > Stage::kDone) r.Fail();
  m.model = TakeModel(r);
  if (m.stage != Stage::kDeclared && m.model.value() != 0) r.Fail();
}
void Put(ByteWriter& w, const Reached& m) { PutStage(w, m); }
void Take(ByteReader& r, Reached& m) { TakeStage(r, m); }
void Put(ByteWriter& w, const AllReached& m) { PutStage(w, m); }
void Take(ByteReader& r, AllReached& m) { TakeStage(r, m); }

void PutBlock(ByteWriter& w, const ByteBuffer& bytes) { w.Block(bytes); }
constexpr std::size_t kMaxBlock = 64u << 20;

void Put(ByteWriter& w, const Declare& m) {
  w.U16(m.model.value());
  PutBlock(w, EncodeLayers(m.layers));
  w.U32(static_cast<std::uint32_t>(m.product_hashes.size()));
  for (const std::uint64_t hash : m.product_hashes) w.U64(hash);
  w.Text(Clip(m.engine, kMaxReason));
  w.F64(m.rebuild_flops);
  w.F64(m.bandwidth);
  w.F64(m.latency);
  w.F64(m.cores);
  w.U32(m.compute_threads);
  w.F64(m.cpu_seconds_per_wire_byte);
  w.F64(m.copy_bytes_per_second);
}
void TakeLayers(ByteReader& r, std::vector<plan::LayerSpec>& layers) {
  Result<std::vector<plan::LayerSpec>> decoded = DecodeLayers(r.Block(kMaxBlock));
  if (!r.ok() || !decoded.ok()) return r.Fail();
  layers = *std::move(decoded);
}
void Take(ByteReader& r, Declare& m) {
  m.model = TakeModel(r);
  TakeLayers(r, m.layers);
  const std::uint32_t count = r.Count(plan::kMaxLayers, 8);
  m.product_hashes.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) m.product_hashes.push_back(r.U64());
  // The coordinator compares the hashes layer by layer.
  if (count != m.layers.size()) r.Fail();
  m.engine = r.Text(kMaxReason);
  m.rebuild_flops = r.Quantity();
  m.bandwidth = r.Quantity();
  m.latency = r.Quantity();
  m.cores = r.Quantity();
  m.compute_threads = r.U32();
  m.cpu_seconds_per_wire_byte = r.Quantity();
  m.copy_bytes_per_second = r.Quantity();
}

void Put(ByteWriter& w, const Agreed& m) {
  w.U16(m.model.value());
  PutBlock(w, EncodeLayers(m.layers));
  PutBlock(w, EncodePlan(m.plan));
  w.U64(m.final_plan_step);
}
void Take(ByteReader& r, Agreed& m) {
  m.model = TakeModel(r);
  TakeLayers(r, m.layers);
  Result<plan::Plan> plan = DecodePlan(r.Block(kMaxBlock));
  if (!r.ok() || !plan.ok()) return r.Fail();
  m.plan = *std::move(plan);
  if (m.plan.layers.size() != m.layers.size()) r.Fail();
  m.final_plan_step = r.U64();
}

void Put(ByteWriter& w, const Measured& m) {
  w.U16(m.model.value());
  w.U32(static_cast<std::uint32_t>(m.layers.size()));
  for (const Measured::Layer& layer : m.layers) {
    w.F64(layer.forward_seconds);
    w.F64(layer.backward_seconds);
    w.U32(layer.rows);
  }
}
void Take(ByteReader& r, Measured& m) {
  m.model = TakeModel(r);
  const std::uint32_t count = r.Count(plan::kMaxLayers, 20);
  for (std::uint32_t i = 0; i < count; ++i) {
    Measured::Layer layer;
    layer.forward_seconds = r.Quantity();
    layer.backward_seconds = r.Quantity();
    layer.rows = r.U32();
    m.layers.push_back(layer);
  }
}

void Put(ByteWriter& w, const Suspect& m) {
  w.U16(m.about.value());
  w.Bool(m.lost);
  w.Bool(m.heard_again);
  w.U8(m.code);
  w.Text(Clip(m.reason, kMaxLossReason));
}
void Take(ByteReader& r, Suspect& m) {
  m.about = MemberId(r.U16());
  m.lost = r.Bool();
  m.heard_again = r.Bool();
  m.code = r.U8();
  if (m.code > static_cast<std::uint8_t>(StatusCode::kInternal)) r.Fail();
  m.reason = r.Text(kMaxLossReason);
}

void Put(ByteWriter& w, const Abort& m) {
  w.U32(m.generation.value());
  w.I32(m.culprit);
  w.Bool(m.verdict);
  w.U8(m.code);
  w.Text(Clip(m.reason, kMaxReason));
}
void Take(ByteReader& r, Abort& m) {
  m.generation = Generation(r.U32());
  m.culprit = r.I32();
  m.verdict = r.Bool();
  m.code = r.U8();
  // "OK" would pass for the job's orderly end.
  if (m.code == 0 || m.code > static_cast<std::uint8_t>(StatusCode::kInternal)) r.Fail();
  m.reason = r.Text(kMaxReason);
}

void Put(ByteWriter& w, const Echo& m) {
  w.U64(m.token);
  w.Bool(m.reply);
}
void Take(ByteReader& r, Echo& m) {
  m.token = r.U64();
  m.reply = r.Bool();
}

void Put(ByteWriter& w, const ProbeReport& m) { w.F64(m.bytes_per_second); }
void Take(ByteReader& r, ProbeReport& m) { m.bytes_per_second = r.Quantity(); }

void Put(ByteWriter& w, const Segment& m) {
  w.U16(m.model.value());
  w.U32(m.process);
  w.U32(m.descriptor);
  w.U64(m.bytes);
  w.U64(m.nonce);
}
void Take(ByteReader& r, Segment& m) {
  m.model = TakeModel(r);
  m.process = r.U32();
  m.descriptor = r.U32();
  m.bytes = r.U64();
  m.nonce = r.U64();
}

void Put(ByteWriter& w, const Progress& m) {
  w.F64(m.quiet_seconds);
  w.F64(m.idle_seconds);
  w.Bool(m.blocked);
  w.Text(Clip(m.busy_with, kMaxHost));
  // The earlier steps come first (Progress::waits), so what is left out is of later steps.
  const std::size_t waits = std::min(m.waits.size(), kMaxWaits);
  w.U32(static_cast<std::uint32_t>(waits));
  for (std::size_t i = 0; i < waits; ++i) {
    const Wait& wait = m.waits[i];
    w.U8(static_cast<std::uint8_t>(wait.what));
    w.U16(wait.model.value());
    w.U32(wait.layer.value());
    w.U64(wait.step.value());
    w.U32(static_cast<std::uint32_t>(wait.on.size()));
    for (const MemberId member : wait.on) w.U16(member.value());
  }
}
void Take(ByteReader& r, Progress& m) {
  m.quiet_seconds = r.Quantity();
  m.idle_seconds = r.Quantity();
  m.blocked = r.Bool();
  m.busy_with = r.Text(kMaxHost);
  const std::uint32_t waits = r.Count(kMaxWaits, 19);
  for (std::uint32_t i = 0; i < waits; ++i) {
    Wait wait;
    wait.what = static_cast<Wait::For>(r.U8());
    if (wait.what < Wait::For::kGradient || wait.what > Wait::For::kMean) r.Fail();
    // Not TakeModel: one-off keys have kCollectiveModel, which is beyond kMaxModels.
    wait.model = ModelId(r.U16());
    wait.layer = LayerId(r.U32());
    wait.step = Step(r.U64());
    const std::uint32_t members = r.Count(kMaxMembers, 2);
    for (std::uint32_t j = 0; j < members; ++j) wait.on.push_back(MemberId(r.U16()));
    m.waits.push_back(std::move(wait));
  }
}

template <std::size_t I = 0>
Result<Message> TakeAlternative(std::size_t index, ByteReader& reader) {
  if constexpr (I == std::variant_size_v<Message>) {
    return DataLoss("a control message has an unknown type");
  } else {
    if (index != I) return TakeAlternative<I + 1>(index, reader);
    std::variant_alternative_t<I, Message> message;
    Take(reader, message);
    POSEIDON_RETURN_IF_ERROR(reader.Finish("a control message"));
    return Message(std::move(message));
  }
}

}  // namespace

// A message is its place in the variant, counted from 1, then its fields.
ByteBuffer Encode(const Message& message) {
  ByteWriter writer;
  writer.U8(static_cast<std::uint8_t>(message.index() + 1));
  std::visit([&writer](const auto& m) { Put(writer, m); }, message);
  return writer.Take();
}

Result<Message> Decode(ConstBytes bytes) {
  ByteReader reader(bytes);
  const std::uint8_t type = reader.U8();
  if (type == 0) return DataLoss("a control message has an unknown type");
  return TakeAlternative(type - 1u, reader);
}

}  // namespace poseidon::wire
