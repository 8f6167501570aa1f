// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_C_OBSERVATION_H_
#define POSEIDON_C_OBSERVATION_H_

#include <stddef.h>
#include <stdint.h>

#include "poseidon/c/job.h"
#include "poseidon/c/step.h"

// Observation: what was moved, what was waited for, the trace. Part of poseidon.h, whose rules hold.

// C's names, not the tree's. NOLINTBEGIN(readability-identifier-naming)

#ifdef __cplusplus
extern "C" {
#endif

// ---- what happened

// Frames of one kind, each way. This struct never grows.
typedef struct poseidon_traffic {
  uint64_t frames_sent;
  uint64_t header_bytes_sent;
  uint64_t payload_bytes_sent;
  uint64_t frames_received;
  uint64_t header_bytes_received;
  uint64_t payload_bytes_received;
} poseidon_traffic;

typedef struct poseidon_layer_statistics {
  size_t struct_size;
  poseidon_traffic key_value;  // in steps in which the layer went as its gradient
  poseidon_traffic factors;    // in steps in which it went as factors or rows
  uint64_t steps;
  double seconds;  // from push to landed mean, summed over the steps
  uint64_t local_bytes;  // that processors wrote to the host's shared memory or read from it
  // Of `factors`: what the payload would be with the zeros that factors left without
  // (poseidon_options.zero_compression).
  uint64_t factor_bytes_sent;
  uint64_t factor_bytes_received;
} poseidon_layer_statistics;

typedef struct poseidon_statistics {
  size_t struct_size;
  poseidon_traffic control;
  poseidon_traffic collectives;
  uint64_t wire_bytes_sent;  // everything, with what encryption adds
  uint64_t wire_bytes_received;
  double busy_seconds;           // at least one layer in flight
  double waited_seconds;         // spent in poseidon_wait, or reported by poseidon_waited
  double hidden_share;           // of the communication, behind computation: 0 to 1; waiting for a
                                 // worker that computes longer is no communication
  uint64_t allocated_bytes;      // by the core, for landing places, sums and what a device's copies are staged
                                 // in, without the connections' own buffers of a frame each
  double link_bytes_per_second;  // measured once; 0: unknown
  double link_latency_seconds;
  double slower_workers_seconds;  // of waited_seconds: other workers computed longer
  double measured_seconds;       // of the steps that hidden_share counts, from one beginning to the next, models together
  uint64_t measured_steps;
  double bandwidth;              // of the link that the job may use, bytes per second each way; 0: all
} poseidon_statistics;

// Counted since poseidon_open, of this member. Thread: any but the callbacks'.
POSEIDON_API poseidon_code poseidon_get_statistics(const poseidon_session* session,
                                                   poseidon_statistics* statistics,
                                                   poseidon_status* status);
POSEIDON_API poseidon_code poseidon_get_layer_statistics(const poseidon_model* model,
                                                         uint32_t layer,
                                                         poseidon_layer_statistics* statistics,
                                                         poseidon_status* status);
// Begins times of layers and of waiting anew (bytes go on). Thread: any but the callbacks'.
POSEIDON_API void poseidon_reset_timings(poseidon_session* session);

enum {  // rows of a worker's timeline
  POSEIDON_LANE_COMPUTE = 0,
  POSEIDON_LANE_SEND = 1,
  POSEIDON_LANE_RECEIVE = 2,
  POSEIDON_LANE_SUM = 3,
  POSEIDON_LANE_REBUILD = 4,
  POSEIDON_LANE_WAIT = 5,
  // Copies of a poseidon_device: each from when it was asked for, or the one before had ended.
  POSEIDON_LANE_TO_HOST = 6,
  POSEIDON_LANE_TO_DEVICE = 7
};

typedef struct poseidon_span {
  size_t struct_size;
  int32_t lane;
  int32_t layer;  // -1: none
  uint64_t step;
  int64_t begin_nanoseconds;  // as poseidon_now counts
  int64_t end_nanoseconds;
  uint64_t bytes;     // payload moved, 0 where none
  const char* label;  // "forward", "push", ...
  uint32_t model;     // whose layer it is: models count from 0 in the order of poseidon_model_new
  uint32_t reserved;
} poseidon_span;

// Steady time of this machine, in nanoseconds. Thread: any.
POSEIDON_API int64_t poseidon_now(const poseidon_session* session);
// Adds the engine's own span (forward, backward) to the trace, where there is one. `label` is lent
// until the trace is taken: a literal. Thread: any.
POSEIDON_API poseidon_code poseidon_record(poseidon_session* session, const poseidon_span* span,
                                           poseidon_status* status);
// Hands out the spans that were kept (trace_spans), in the order they ended, and forgets them: `take` is called once per
// span, on the caller's thread, before the call returns. Thread: any.
POSEIDON_API poseidon_code poseidon_take_trace(poseidon_session* session,
                                               void (*take)(void* user, const poseidon_span* span),
                                               void* user, poseidon_status* status);

// A loss or the like, by name. This struct never grows.
typedef struct poseidon_number {
  const char* name;
  double value;
} poseidon_number;
// Adds numbers of this worker at `step` to the run's account (poseidon_options.run_dir): of training, or of a test where `test`
// is not 0. "loss" and "accuracy" become curves of `poseidon report`. Does nothing but on rank 0 with a run_dir. Writes a line
// to metrics.jsonl there before it returns; that the file cannot be written is said to `log`, once. Main thread.
POSEIDON_API poseidon_code poseidon_note(poseidon_session* session, uint64_t step, int32_t test,
                                         const poseidon_number* numbers, uint32_t count, poseidon_status* status);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(readability-identifier-naming)

#endif  // POSEIDON_C_OBSERVATION_H_
