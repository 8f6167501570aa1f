// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_SESSION_OPTIONS_H_
#define POSEIDON_SESSION_SESSION_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "poseidon/base/log.h"
#include "poseidon/base/trace.h"
#include "poseidon/device/device.h"
#include "poseidon/factors/engine.h"
#include "poseidon/place/figures.h"
#include "poseidon/session/node_options.h"

namespace poseidon::session {

struct SessionOptions {
  NodeOptions node;
  factors::ProductEngine* engine = nullptr;  // outlives the session; null: no layer uses factors
  LogSink* log = nullptr;                // outlives the session; null: silence
  TraceRecorder* trace = nullptr;        // outlives the session; null: no trace
  // Where given: makes, on the executor it is handed, the device whose memory pushes may name (Push::on_device).
  std::function<std::unique_ptr<device::Device>(Executor&)> device = {};
  // A longer collective goes in pieces of so many bytes; the same on every member.
  std::uint64_t collective_bytes = 1u << 30;
  // Where given: every call that blocks calls it every tenth of a second, on the thread that blocks. True ends
  // the job, as Abort does, and the blocked call returns that failure.
  std::function<bool()> interrupted = {};
  // Where given: is called once, on a thread of the session's, with the failure of the job as soon as it is known.
  std::function<void(const Status&)> failed = {};
  // Where given: is called about once a second, on a thread of its own, from Open to the session's end.
  place::TellFigures figures = {};
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_SESSION_OPTIONS_H_
