// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_RESULTS_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_RESULTS_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "poseidon/base/trace.h"
#include "poseidon/plan/explain.h"
#include "poseidon/session/session.h"

// What a run leaves behind, as values.
namespace poseidon::caffe {

// Payload and time per step of every layer between two collections of one session.
std::vector<plan::LayerOutcome> OutcomesOf(const session::ModelStatistics& before,
                                           const session::ModelStatistics& after, std::uint64_t steps);

// A trace as Chrome and Perfetto read it: one process row per worker, one thread row per lane.
// `spans` by worker; `offsets` are added to each worker's times to bring them onto worker 0's clock;
// `name` turns a layer number into text.
std::string ChromeTrace(std::span<const std::vector<TraceSpan>> spans,
                        std::span<const Duration> offsets,
                        const std::function<std::string(std::int32_t)>& name);

// Spans as bytes for a gather, and back. Labels travel as text.
ByteBuffer PackSpans(const std::vector<TraceSpan>& spans);
struct UnpackedSpans {
  std::vector<std::string> labels;  // owns what the spans' labels point to
  std::vector<TraceSpan> spans;
};
Result<UnpackedSpans> UnpackSpans(ConstBytes bytes);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_RESULTS_H_
