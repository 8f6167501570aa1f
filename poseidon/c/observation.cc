// SPDX-License-Identifier: Apache-2.0
// Observation through the C header: statistics and the trace.
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/c/handles.h"
#include "poseidon/c/poseidon.h"
#include "poseidon/c/structs.h"

using namespace poseidon;           // NOLINT(google-build-using-namespace): the C names live outside
using namespace poseidon::c;        // NOLINT(google-build-using-namespace)
using namespace poseidon::session;  // NOLINT(google-build-using-namespace)

namespace {

poseidon_traffic TrafficOf(const messaging::TrafficCell& cell) {
  return {cell.sent.frames,     cell.sent.header_bytes,     cell.sent.payload_bytes,
          cell.received.frames, cell.received.header_bytes, cell.received.payload_bytes};
}

}  // namespace

poseidon_code poseidon_get_statistics(const poseidon_session* session,
                                      poseidon_statistics* statistics, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    const Statistics known = session->session->Collect();
    poseidon_statistics given{};
    given.control = TrafficOf(known.control);
    given.collectives = TrafficOf(known.collectives);
    given.wire_bytes_sent = known.wire.wire_bytes_out;
    given.wire_bytes_received = known.wire.wire_bytes_in;
    given.busy_seconds = known.busy_seconds;
    given.waited_seconds = known.waited_seconds;
    given.slower_workers_seconds = known.overlap.skew();
    given.hidden_share = known.hidden_share();
    given.allocated_bytes = known.allocated_bytes;
    given.link_bytes_per_second = known.link.bytes_per_second;
    given.link_latency_seconds = known.link.latency_seconds;
    given.measured_seconds = known.overlap.seconds();
    given.measured_steps = known.overlap.steps();
    given.bandwidth = known.bandwidth;
    return Give("poseidon_statistics", given, statistics);
  });
}

poseidon_code poseidon_get_layer_statistics(const poseidon_model* model, uint32_t layer,
                                            poseidon_layer_statistics* statistics,
                                            poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckLayer(model, layer));
    const ModelStatistics all = model->model->Collect();
    const LayerStatistics& known = all.layers.at(layer);
    poseidon_layer_statistics given{};
    given.key_value = TrafficOf(known.gradients);
    given.factors = TrafficOf(known.factors);
    given.steps = known.steps;
    given.seconds = known.seconds;
    given.local_bytes = known.local_bytes;
    given.factor_bytes_sent = known.factors.sent.whole_bytes;
    given.factor_bytes_received = known.factors.received.whole_bytes;
    return Give("poseidon_layer_statistics", given, statistics);
  });
}

void poseidon_reset_timings(poseidon_session* session) {
  if (session == nullptr) return;
  Answering(nullptr, [&] {
    session->session->ResetTimings();
    return OkStatus();
  });
}

int64_t poseidon_now(const poseidon_session* session) {
  return session != nullptr ? session->session->now().since_origin.count() : 0;
}

poseidon_code poseidon_record(poseidon_session* session, const poseidon_span* span,
                              poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    POSEIDON_ASSIGN_OR_RETURN(const poseidon_span taken, Take(span));
    if (taken.lane < POSEIDON_LANE_COMPUTE || taken.lane > POSEIDON_LANE_TO_DEVICE) {
      return InvalidArgument("a span's lane is " + std::to_string(taken.lane) +
                             ", expected one of POSEIDON_LANE_...");
    }
    if (session->trace) {
      session->trace->Record({.lane = static_cast<TraceLane>(taken.lane),
                              .layer = taken.layer,
                              .step = taken.step,
                              .begin = TimePoint{Duration(taken.begin_nanoseconds)},
                              .end = TimePoint{Duration(taken.end_nanoseconds)},
                              .bytes = taken.bytes,
                              .label = taken.label != nullptr ? taken.label : "",
                              .model = static_cast<std::uint16_t>(taken.model)});
    }
    return OkStatus();
  });
}

poseidon_code poseidon_note(poseidon_session* session, uint64_t step, int32_t test, const poseidon_number* numbers,
                            uint32_t count, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    if (numbers == nullptr && count != 0) return InvalidArgument("the numbers are NULL, expected " + std::to_string(count));
    std::vector<std::pair<std::string, double>> known;
    for (const poseidon_number& number : std::span(numbers, count)) {
      if (number.name == nullptr) return InvalidArgument("the name of a number is NULL");
      known.emplace_back(number.name, number.value);
    }
    if (session->run) session->run->Note(step, test != 0, known);
    return OkStatus();
  });
}

poseidon_code poseidon_take_trace(poseidon_session* session,
                                  void (*take)(void* user, const poseidon_span* span), void* user,
                                  poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    if (take == nullptr) return InvalidArgument("the trace's callback is NULL");
    if (!session->trace) return OkStatus();
    for (const TraceSpan& known : session->trace->Take()) {
      poseidon_span span = POSEIDON_NEW(poseidon_span);
      span.lane = static_cast<std::int32_t>(known.lane);
      span.layer = known.layer;
      span.step = known.step;
      span.begin_nanoseconds = known.begin.since_origin.count();
      span.end_nanoseconds = known.end.since_origin.count();
      span.bytes = known.bytes;
      span.label = known.label;
      span.model = known.model;
      take(user, &span);
    }
    return OkStatus();
  });
}
