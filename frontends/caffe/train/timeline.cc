// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/timeline.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "frontends/caffe/proto/at.h"
#include "poseidon/base/byte_codec.h"

namespace poseidon::caffe {
namespace {

// Spans a worker keeps: the first three iterations and the last, a few hundred of a small net.
constexpr std::size_t kSpans = 30'000;
// The number of a net's first layer in spans; below are the session's layers.
constexpr std::int32_t kNetLayers = 1'000'000;
constexpr int kClockRounds = 5;

double Microseconds(Duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

// `spans` by worker; `offsets` are added to each worker's times to bring them onto worker 0's clock; `name` turns a
// layer number into text.
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
                        {"args", {{"name", NameOf(static_cast<TraceLane>(lane))}}}});
    }
  }
  for (std::size_t w = 0; w < spans.size(); ++w) {
    for (const TraceSpan& span : spans[w]) {
      events.push_back({{"ph", "X"},
                        {"name", std::string(span.label) + " " + name(span.layer)},
                        {"cat", NameOf(span.lane)},
                        {"pid", w},
                        {"tid", static_cast<int>(span.lane)},
                        {"ts", Microseconds(span.begin + offsets[w] - origin)},
                        {"dur", Microseconds(span.end - span.begin)},
                        {"args", {{"step", span.step}, {"bytes", span.bytes}}}});
    }
  }
  return json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump(
      -1, ' ', false, json::error_handler_t::replace);
}

// Spans as bytes for a gather, and back. Labels travel as text.
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

struct UnpackedSpans {
  std::vector<std::string> labels;  // owns what the spans' labels point to
  std::vector<TraceSpan> spans;
};

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

// Everyone reads its clock right behind a barrier; the least difference of several rounds is the
// best estimate of the offset to worker 0.
Result<std::vector<Duration>> ClockOffsets(session::Session& session) {
  std::vector<Duration> offsets(session.workers(), Duration{0});
  std::vector<Duration> error(session.workers(), Duration::max());
  for (int round = 0; round < kClockRounds; ++round) {
    std::vector<std::int64_t> times(session.workers(), 0);
    POSEIDON_RETURN_IF_ERROR(session.Barrier());
    times[session.rank().value()] = session.now().since_origin.count();
    POSEIDON_RETURN_IF_ERROR(session.Sum(ViewOf(std::span(times))));
    for (std::size_t w = 0; w < times.size(); ++w) {
      const Duration offset(times[0] - times[w]);
      const Duration size = offset < Duration{0} ? -offset : offset;
      if (size < error[w]) {
        error[w] = size;
        offsets[w] = offset;
      }
    }
  }
  // Members of one machine share its clock: what was measured there is only the round's noise.
  for (std::size_t w = 0; w < offsets.size(); ++w) {
    if (session.roster()[w].host == session.roster()[0].host) offsets[w] = Duration{0};
  }
  return offsets;
}

}  // namespace

Timeline::Timeline() : recorder_({.spans = kSpans}) {}

void Timeline::Record(TraceSpan span) {
  span.layer += kNetLayers;
  span.step -= first_iteration_;
  recorder_.Record(span);
}

std::vector<TraceSpan> Timeline::Take() {
  std::vector<TraceSpan> spans = recorder_.Take();
  for (TraceSpan& span : spans) span.step += first_iteration_;
  return spans;
}

Result<std::string> Timeline::Collect(session::Session* session, const Net& net,
                                      std::span<const plan::LayerSpec> declared) {
  const auto name = [&](std::int32_t layer) -> std::string {
    if (layer < 0) return "";
    if (layer >= kNetLayers) return net.UniqueName(layer - kNetLayers);
    return At(declared, layer).name;
  };
  if (session == nullptr) {
    const std::vector<TraceSpan> own = Take();
    const Duration same_clock{0};
    return ChromeTrace({&own, 1}, {&same_clock, 1}, name);
  }
  POSEIDON_ASSIGN_OR_RETURN(const std::vector<Duration> offsets, ClockOffsets(*session));
  POSEIDON_ASSIGN_OR_RETURN(const std::vector<ByteBuffer> packed, session->Gather(PackSpans(Take())));
  if (session->rank() != Rank(0)) return std::string();
  std::vector<UnpackedSpans> owners;
  std::vector<std::vector<TraceSpan>> spans;
  for (const ByteBuffer& one : packed) {
    POSEIDON_ASSIGN_OR_RETURN(UnpackedSpans unpacked, UnpackSpans(one));
    spans.push_back(unpacked.spans);
    owners.push_back(std::move(unpacked));
  }
  return ChromeTrace(spans, offsets, name);
}

}  // namespace poseidon::caffe
