// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_TIMELINE_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_TIMELINE_H_

#include <cstdint>
#include <span>
#include <string>

#include "frontends/caffe/net/net.h"
#include "poseidon/base/result.h"
#include "poseidon/base/trace.h"
#include "poseidon/plan/layer.h"
#include "poseidon/session/session.h"

namespace poseidon::caffe {

// A worker's spans for trace.json: those of the core and those of the solver. Steps are numbered as the
// solver numbers its iterations, also after a resume; the session's own begin with 0.
// Thread: the solver's; the session records from any.
class Timeline {
 public:
  Timeline();

  // For the session, which the timeline outlives.
  TraceRecorder* recorder() { return &recorder_; }
  // The iteration with which training begins: the session's step 0.
  void BeginAt(std::uint64_t iteration) { first_iteration_ = iteration; }
  // A span of the solver, of a layer of the net.
  void Record(TraceSpan span);
  // All workers' spans as Chrome and Perfetto read them: one process row per worker, one thread row per lane. Every
  // worker of `session` calls it, rank 0 gets the text and the others an empty one. Null: a worker alone. `declared`
  // are the session's layers, empty without one.
  Result<std::string> Collect(session::Session* session, const Net& net, std::span<const plan::LayerSpec> declared);

 private:
  std::vector<TraceSpan> Take();

  TraceRecorder recorder_;
  std::uint64_t first_iteration_ = 0;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_TIMELINE_H_
