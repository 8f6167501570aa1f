// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/results.h"

#include <algorithm>
#include <map>

#include "poseidon/base/byte_codec.h"

namespace poseidon::caffe {
namespace {

const char* NameOfLane(TraceLane lane) {
  switch (lane) {
    case TraceLane::kCompute: return "compute";
    case TraceLane::kSend: return "send";
    case TraceLane::kReceive: return "receive";
    case TraceLane::kSum: return "sum";
    case TraceLane::kRebuild: return "rebuild";
    case TraceLane::kWait: return "wait";
  }
  return "?";
}
constexpr TraceLane kLastLane = TraceLane::kWait;

messaging::TrafficCell Since(const messaging::TrafficCell& before,
                             const messaging::TrafficCell& after) {
  messaging::TrafficCell cell = after;
  cell.sent.payload_bytes -= before.sent.payload_bytes;
  cell.received.payload_bytes -= before.received.payload_bytes;
  return cell;
}

double Microseconds(Duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

}  // namespace

std::vector<plan::LayerOutcome> OutcomesOf(const session::ModelStatistics& before,
                                           const session::ModelStatistics& after, std::uint64_t steps) {
  std::vector<plan::LayerOutcome> outcomes;
  if (steps == 0) return outcomes;
  for (std::size_t i = 0; i < after.layers.size(); ++i) {
    const session::LayerStatistics none;
    const session::LayerStatistics& first = i < before.layers.size() ? before.layers[i] : none;
    const session::LayerStatistics& last = after.layers[i];
    const messaging::TrafficCell dense = Since(first.gradients, last.gradients);
    const messaging::TrafficCell factors = Since(first.factors, last.factors);
    outcomes.push_back(
        {.bytes_sent = (dense.sent.payload_bytes + factors.sent.payload_bytes) / steps,
         .bytes_received = (dense.received.payload_bytes + factors.received.payload_bytes) / steps,
         .seconds = last.steps > 0 ? last.seconds / static_cast<double>(last.steps) : 0});
  }
  return outcomes;
}

std::string ChromeTrace(std::span<const std::vector<TraceSpan>> spans,
                        std::span<const Duration> offsets,
                        const std::function<std::string(std::int32_t)>& name) {
  using nlohmann::json;
  json events = json::array();
  TimePoint origin{Duration::max()};
  for (std::size_t w = 0; w < spans.size(); ++w) {
    for (const TraceSpan& span : spans[w]) origin = std::min(origin, span.begin + offsets[w]);
    events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", w},
                      {"args", {{"name", "worker " + std::to_string(w)}}}});
    for (int lane = 0; lane <= static_cast<int>(kLastLane); ++lane) {
      events.push_back({{"ph", "M"}, {"name", "thread_name"}, {"pid", w}, {"tid", lane},
                        {"args", {{"name", NameOfLane(static_cast<TraceLane>(lane))}}}});
    }
  }
  for (std::size_t w = 0; w < spans.size(); ++w) {
    for (const TraceSpan& span : spans[w]) {
      events.push_back({{"ph", "X"},
                        {"name", std::string(span.label) + " " + name(span.layer)},
                        {"cat", NameOfLane(span.lane)},
                        {"pid", w},
                        {"tid", static_cast<int>(span.lane)},
                        {"ts", Microseconds(span.begin + offsets[w] - origin)},
                        {"dur", Microseconds(span.end - span.begin)},
                        {"args", {{"step", span.step}, {"bytes", span.bytes}}}});
    }
  }
  return json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump();
}

ByteBuffer PackSpans(const std::vector<TraceSpan>& spans) {
  ByteWriter writer;
  std::map<std::string, std::uint32_t> labels;
  for (const TraceSpan& span : spans) {
    labels.emplace(span.label, static_cast<std::uint32_t>(labels.size()));
  }
  std::vector<std::string> by_number(labels.size());
  for (const auto& [label, number] : labels) by_number[number] = label;
  writer.U32(static_cast<std::uint32_t>(by_number.size()));
  for (const std::string& label : by_number) writer.Text(label);
  writer.U32(static_cast<std::uint32_t>(spans.size()));
  for (const TraceSpan& span : spans) {
    writer.U8(static_cast<std::uint8_t>(span.lane));
    writer.I32(span.layer);
    writer.U64(span.step);
    writer.I64(span.begin.since_origin.count());
    writer.I64(span.end.since_origin.count());
    writer.U64(span.bytes);
    writer.U32(labels.at(span.label));
  }
  return writer.Take();
}

Result<UnpackedSpans> UnpackSpans(ConstBytes bytes) {
  ByteReader reader(bytes);
  UnpackedSpans unpacked;
  const std::uint32_t labels = reader.Count(4096, 4);
  for (std::uint32_t i = 0; i < labels; ++i) unpacked.labels.push_back(reader.Text(256));
  const std::uint32_t count = reader.Count(1u << 24, 41);
  unpacked.spans.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    TraceSpan span;
    const std::uint8_t lane = reader.U8();
    span.lane = static_cast<TraceLane>(lane);
    span.layer = reader.I32();
    span.step = reader.U64();
    span.begin.since_origin = Duration(reader.I64());
    span.end.since_origin = Duration(reader.I64());
    span.bytes = reader.U64();
    const std::uint32_t label = reader.U32();
    if (label >= labels || lane > static_cast<std::uint8_t>(kLastLane)) {
      return DataLoss("a worker's trace cannot be read");
    }
    span.label = unpacked.labels[label].c_str();
    unpacked.spans.push_back(span);
  }
  POSEIDON_RETURN_IF_ERROR(reader.Finish("a worker's trace"));
  return unpacked;
}

}  // namespace poseidon::caffe
