// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_POSEIDON_H_
#define POSEIDON_SESSION_POSEIDON_H_

#include <stddef.h>
#include <stdint.h>

// Poseidon for engines of any language: all that libposeidon.so exports.
//
// One process is one worker of a job. Its life:
//
//   poseidon_open               join the job; returns when all members are connected
//   poseidon_model_new, poseidon_declare (per layer), poseidon_commit
//   each step:
//     poseidon_begin_step       before the first layer runs forward
//     per layer, forward:       poseidon_wait(layer): the mean of the step before has landed
//     per layer, backward:      poseidon_push_dense or poseidon_push_factors, as poseidon_scheme_of
//                               says, as soon as the gradient exists
//   poseidon_leave, poseidon_close
//
// A dedicated server process calls poseidon_serve and nothing else.
// examples/c_mlp is a whole engine on this header; poseidon.hpp wraps it for C++.
//
// Rules for every function.
//
// Structs begin with their size, so that program and library may be of different versions: make
// them with POSEIDON_NEW. Fields not set are zero, and zero is the default. The library takes the
// smaller struct of an older program; the larger one of a newer program it refuses only if a field
// that it does not know is not zero. It fills no more of a struct than struct_size says.
//
// Failures: functions return a poseidon_code, POSEIDON_OK (0) or the kind of failure, and describe
// a failure in `status` where that is not NULL. Nothing aborts the process. The first failure of
// scope job is final: every call returns it from then on.
//
// Memory: strings and structs handed in are copied before the call returns, unless a function says
// that memory is lent. Text comes out through structs and buffers of the caller's.
//
// Threads: "main thread" means one thread at a time, ordered by the caller; any thread will do.
// Callbacks run on threads of the session's, unless said otherwise; they must neither block, nor
// call poseidon_close, nor throw.
//
// Nothing here reads the environment, writes to a stream or keeps state outside its handles.

// C's names, not the tree's. NOLINTBEGIN(readability-identifier-naming)

#define POSEIDON_VERSION_MAJOR 0
#define POSEIDON_VERSION_MINOR 1

#define POSEIDON_API __attribute__((visibility("default")))

#ifdef __cplusplus
// POSEIDON_NEW(poseidon_options) is an options struct with its size set and all else zero.
template <typename T>
inline T poseidon_new_struct() {
  T made = T();
  made.struct_size = sizeof(T);
  return made;
}
#define POSEIDON_NEW(type) (poseidon_new_struct<type>())
extern "C" {
#else
#define POSEIDON_NEW(type) ((type){.struct_size = sizeof(type)})
#endif

// ---- failures

typedef int32_t poseidon_code;
enum {
  POSEIDON_OK = 0,
  POSEIDON_INVALID_ARGUMENT = 1,     // the caller or the user gave something wrong
  POSEIDON_NOT_FOUND = 2,            // a file or a host that is not there
  POSEIDON_FAILED_PRECONDITION = 3,  // right call, wrong moment
  POSEIDON_UNAVAILABLE = 4,          // a peer or the network is gone
  POSEIDON_DEADLINE_EXCEEDED = 5,
  POSEIDON_ABORTED = 6,  // the job was ended, by someone named in the message
  POSEIDON_DATA_LOSS = 7,
  POSEIDON_PERMISSION_DENIED = 8,  // the token or a file's permissions
  POSEIDON_RESOURCE_EXHAUSTED = 9,
  POSEIDON_UNIMPLEMENTED = 10,
  POSEIDON_INTERNAL = 11
};

// How much is broken; a failure of the request leaves the session as it was.
enum {
  POSEIDON_SCOPE_REQUEST = 0,
  POSEIDON_SCOPE_CONNECTION = 1,
  POSEIDON_SCOPE_PEER = 2,
  POSEIDON_SCOPE_JOB = 3
};

enum { POSEIDON_NO_CULPRIT = -1 };

// One failure, copied out; a call that succeeds writes POSEIDON_OK and an empty message.
typedef struct poseidon_status {
  size_t struct_size;
  poseidon_code code;
  int32_t scope;
  int32_t culprit;  // the member to blame (poseidon_member_name), or POSEIDON_NO_CULPRIT
  uint32_t reserved;
  char message[1000];  // one sentence without a full stop; cut where it is longer
} poseidon_status;

// "UNAVAILABLE"; lives as long as the library. Thread: any.
POSEIDON_API const char* poseidon_code_name(poseidon_code code);
// Major << 16 | minor of the library at hand. Thread: any.
POSEIDON_API uint32_t poseidon_version(void);

// ---- what travels

enum {  // dtypes; sums exist for F32, F64 and I64
  POSEIDON_F64 = 1,
  POSEIDON_F32 = 2,
  POSEIDON_F16 = 3,
  POSEIDON_BF16 = 4,
  POSEIDON_I64 = 5
};

// Where memory is; DLPack's numbers. Today only host memory is taken.
enum {
  POSEIDON_HOST = 1,  // and 0
  POSEIDON_CUDA = 2,
  POSEIDON_PINNED_HOST = 3
};

// `elements` numbers of one dtype, contiguous, in the caller's memory.
typedef struct poseidon_view {
  size_t struct_size;
  void* memory;
  uint64_t elements;
  int32_t dtype;
  int32_t device_type;
  int32_t device_id;
  uint32_t reserved;
  void* ready;  // event of the device after which the memory may be read; NULL: it may be at once
  void* done;   // event to record when the result has landed; NULL: none
} poseidon_view;

// ---- joining

enum { POSEIDON_WORKER = 0, POSEIDON_SERVER = 1 };

enum {  // how members prove that they belong to the job, and what others can read
  POSEIDON_WIRE_AUTO = 0,  // AUTH where this member listens on loopback, else TLS
  POSEIDON_WIRE_TLS = 1,   // TLS 1.3 keyed by the token: authenticated and encrypted
  POSEIDON_WIRE_AUTH = 2   // both ends prove the token, then plain frames with checksums
};

// Workers of one host combine through its memory before anything crosses the network: never, always,
// or where there are several hosts and one of them has several workers.
enum { POSEIDON_LEVELS_FLAT = 0, POSEIDON_LEVELS_HOST = 1, POSEIDON_LEVELS_AUTO = 2 };
enum { POSEIDON_POLICY_TIME = 1, POSEIDON_POLICY_BYTES = 2 };  // 0 is TIME

enum {
  POSEIDON_LOG_DEBUG = 0,
  POSEIDON_LOG_NOTICE = 1,
  POSEIDON_LOG_WARNING = 2,
  POSEIDON_LOG_ERROR = 3
};

#define POSEIDON_NEVER UINT64_MAX

// One product that rebuilds a mean gradient from factors: out = alpha * u^T v.
typedef struct poseidon_product {
  size_t struct_size;
  int32_t dtype;
  uint32_t reserved;
  const void* u;  // [rows x outputs], row-major, 64-byte aligned
  const void* v;  // [rows x inputs], row-major, 64-byte aligned
  uint64_t rows;  // at least 1
  uint64_t outputs;
  uint64_t inputs;
  double alpha;
  void* out;  // [outputs x inputs], row-major, overwritten
} poseidon_product;

// The engine's own matrix product, instead of the CBLAS that comes with the library. For the same
// input it must give the same bits on every worker, every time: one thread count, one
// transposition.
typedef struct poseidon_engine {
  size_t struct_size;
  // POSEIDON_OK or a failure code. Called on one thread of the session's, one product at a time;
  // this callback may compute as long as it takes.
  poseidon_code (*multiply)(void* user, const poseidon_product* product);
  void* user;
  const char* description;  // name, version, threads: for messages about workers that differ
} poseidon_engine;

typedef struct poseidon_options {
  size_t struct_size;

  // Who this process is. `workers` and `servers` are the same in all processes of the job.
  int32_t role;
  int32_t hosts_coordinator;  // not 0: in exactly one worker, which becomes rank 0
  uint32_t workers;           // at least 1
  uint32_t servers;           // dedicated ones; 0: every worker holds a share
  int32_t requested_rank;     // of a worker; 0: any
  uint32_t listen_port;       // 0: any free one

  // Where. Addresses are numeric.
  const char* listen_host;       // NULL: 127.0.0.1
  const char* advertise_host;    // where the others reach this member; NULL: listen_host
  const char* coordinator_host;  // where rank 0 listens; not used by rank 0 itself; NULL: 127.0.0.1
  uint32_t coordinator_port;
  int32_t wire;
  const char* host;  // the machine's name in messages; NULL: "localhost"
  // Called in poseidon_open, on its thread, once this member listens and before anybody has joined:
  // rank 0 learns its address here, and tells the others.
  void (*listening)(void* user, const char* host, uint32_t port);
  void* listening_user;

  // The job's token of 256 random bits: exactly one of these, or none where the job is one worker.
  const char* token_file;      // as poseidon_make_token_file writes it
  const uint8_t* token_bytes;  // 32 of them
  int32_t token_fd;            // an open descriptor with the file's text, above 0; it stays open

  uint32_t threads;  // of the default product engine; 0: 1
  uint32_t cores;    // this worker may use, for the planner; 0: those of the machine
  uint32_t reserved;

  double join_timeout_seconds;  // 0: 120
  double dead_after_seconds;    // a silent member is given up after this long; 0: 30

  // The plan. Rank 0's word counts, except for final_plan_step, which all workers share.
  int32_t policy;
  uint32_t reserved2;
  // Lines (or ';' between) of name=scheme, scheme kv or sfb; in names a backslash takes the
  // character after it as it is. `schemes` is what the user forces; `plan_pin` is a plan from before
  // (poseidon_plan_text); the user wins.
  const char* schemes;
  const char* plan_pin;
  // The step from which the plan made of measurements holds; every worker reports before it
  // (poseidon_report). 0: 10. POSEIDON_NEVER: the first plan stays.
  uint64_t final_plan_step;

  const poseidon_engine* engine;  // NULL: CBLAS, once a layer declares factors

  void (*log)(void* user, int32_t level, const char* line);  // NULL: silence. Called on any thread.
  void* log_user;

  uint64_t trace_spans;         // how many to keep for poseidon_take_trace; 0: no trace
  uint64_t memory_limit_bytes;  // a dedicated server refuses to need more; 0: no limit
  // Sent to measure the link, 1 MiB to 1 GiB; 0: 4 MiB; POSEIDON_NEVER: none.
  uint64_t probe_bytes;

  int32_t levels;  // rank 0's word counts
  uint32_t reserved3;
  // Workers that name the same machine can share memory; NULL: as the system says; "": with nobody.
  const char* machine;
} poseidon_options;

typedef struct poseidon_session poseidon_session;
typedef struct poseidon_model poseidon_model;

// Writes a new random token to a file that only its owner can read (mode 0600), replacing one of
// that name. Thread: any.
POSEIDON_API poseidon_code poseidon_make_token_file(const char* path, poseidon_status* status);

// Joins the job as a worker and sets *session. Blocks until all members are connected, at most
// about join_timeout_seconds. On failure *session is NULL. Thread: any; the handle is freed by
// poseidon_close.
POSEIDON_API poseidon_code poseidon_open(const poseidon_options* options,
                                         poseidon_session** session, poseidon_status* status);

// The whole life of a dedicated server (role POSEIDON_SERVER): joins, holds its share, and returns
// when the job is over: POSEIDON_OK after its orderly end. Blocks. Thread: any.
POSEIDON_API poseidon_code poseidon_serve(const poseidon_options* options, poseidon_status* status);

// Thread: any, also from callbacks.
POSEIDON_API uint32_t poseidon_rank(const poseidon_session* session);
POSEIDON_API uint32_t poseidon_workers(const poseidon_session* session);
// Writes "worker 2 on host b", cut to `capacity` bytes with its final zero, and returns the length
// it has uncut.
POSEIDON_API size_t poseidon_member_name(const poseidon_session* session, int32_t member,
                                         char* buffer, size_t capacity);
// The job's failure, POSEIDON_OK while it runs.
POSEIDON_API poseidon_code poseidon_failure(const poseidon_session* session,
                                            poseidon_status* status);

// The orderly end: blocks until all workers have called it. Every pushed layer has been waited for.
// Main thread.
POSEIDON_API poseidon_code poseidon_leave(poseidon_session* session, poseidon_status* status);

// Ends the job for everybody, now; this member is named as the one that did. `reason` is one
// sentence without a full stop. Does not block; calls that wait return POSEIDON_ABORTED. Thread:
// any.
POSEIDON_API void poseidon_abort(poseidon_session* session, const char* reason);

// Frees the session and its models; NULL is allowed. Without poseidon_leave before it, it ends the
// job for everybody, like poseidon_abort. When it returns no lent memory is touched any more and
// all callbacks have returned. Blocks shortly. Main thread, after every other call has returned.
POSEIDON_API void poseidon_close(poseidon_session* session);

// ---- a model

// One layer: one contiguous flat gradient, weight and bias together.
typedef struct poseidon_layer {
  size_t struct_size;
  const char* name;           // unique in its model, the same on every worker
  const char* shape;          // for people, "500x800+500"; NULL: none
  uint64_t elements;          // of the flat gradient, at least 1
  int32_t dtype;              // F32, F64 or I64
  uint32_t forward_position;  // 0 runs first in the forward pass
  // Of a fully connected layer: its gradient is the weight [outputs x inputs], row-major, and
  // behind it the bias [outputs], where it has one. Both 0: the gradient is not a product of
  // factors.
  uint64_t outputs;
  uint64_t inputs;
  int32_t bias;
  uint32_t reserved;
} poseidon_layer;

// Sets *model to a new, empty model, freed with its session. One model per session in this version.
// Main thread.
POSEIDON_API poseidon_code poseidon_model_new(poseidon_session* session, poseidon_model** model,
                                              poseidon_status* status);

// Adds a layer; *id is its number in all calls below, counting from 0. Main thread, before
// poseidon_commit.
POSEIDON_API poseidon_code poseidon_declare(poseidon_model* model, const poseidon_layer* layer,
                                            uint32_t* id, poseidon_status* status);

// Compares the declaration with every other worker's and makes the first plan. Blocks until all
// have committed. A difference ends the job and names layer and worker. Main thread, once.
POSEIDON_API poseidon_code poseidon_commit(poseidon_model* model, poseidon_status* status);

// How a layer's gradient becomes the mean over all workers: slices summed by their owners
// (poseidon_push_dense), or factors to everyone and one product everywhere (poseidon_push_factors).
enum { POSEIDON_KEY_VALUE = 1, POSEIDON_FACTOR_BROADCAST = 2 };

// How one layer goes, why, and what that is predicted to take per step. Predictions are 0 in the
// first plan, where nothing was measured.
typedef struct poseidon_layer_plan {
  size_t struct_size;
  int32_t scheme;
  int32_t forced;       // not 0: by the user or a pinned plan
  uint64_t bytes_sent;  // payload of the busiest worker
  uint64_t bytes_received;
  double transfer_seconds;
  double rebuild_seconds;  // the product of all workers' factors
  char reason[512];
} poseidon_layer_plan;

typedef struct poseidon_plan {
  size_t struct_size;
  uint64_t switch_step;  // the first step that follows this plan
  int32_t final_plan;    // not 0: made of measurements
  int32_t policy;
  uint32_t layers;
  uint32_t reserved;
  double step_seconds;           // predicted with these schemes
  double compute_seconds;        // of it, without any waiting
  double single_worker_seconds;  // a step of one worker without a network
  double speedup;
  double wfbp_seconds;        // if communication overlapped with backward only
  double dense_step_seconds;  // with the key-value scheme for every layer
  uint64_t dense_bytes_sent;  // the busiest worker's, with the key-value scheme for every layer
} poseidon_plan;

// The newest plan that poseidon_commit or poseidon_begin_step brought. Thread: any.
POSEIDON_API poseidon_code poseidon_get_plan(const poseidon_model* model, poseidon_plan* plan,
                                             poseidon_status* status);
POSEIDON_API poseidon_code poseidon_get_layer_plan(const poseidon_model* model, uint32_t layer,
                                                   poseidon_layer_plan* plan,
                                                   poseidon_status* status);
// That plan as lines of name=scheme, for poseidon_options.plan_pin: written, cut to `capacity`
// bytes with its final zero; returns the length it has uncut, 0 before poseidon_commit. Thread:
// any.
POSEIDON_API size_t poseidon_plan_text(const poseidon_model* model, char* buffer, size_t capacity);

// ---- a step

// Call before a step's first forward pass; steps count up from 0 (or from where training resumes).
// At the final plan's switch step it blocks until that plan is known. Main thread.
POSEIDON_API poseidon_code poseidon_begin_step(poseidon_model* model, uint64_t step,
                                               poseidon_status* status);

// Sets *scheme to how the layer is to be pushed in `step`, which has begun. Thread: any.
POSEIDON_API poseidon_code poseidon_scheme_of(const poseidon_model* model, uint32_t layer,
                                              uint64_t step, int32_t* scheme,
                                              poseidon_status* status);

// What a push may say beyond its gradient.
typedef struct poseidon_push {
  size_t struct_size;
  int32_t absent;   // not 0: contribute nothing, receive the mean of the others (key-value only)
  uint32_t weight;  // of this contribution in the mean (key-value only); 0 on all: unweighted
  // Called once for every push that returned POSEIDON_OK, when poseidon_wait would no longer block.
  void (*landed)(void* user, const poseidon_status* status);
  void* landed_user;
} poseidon_push;

// dW = u^T v of this worker's `rows` samples; rows may be 0, and differ between workers and steps.
// The mean is the sum over all workers' rows divided by the number of workers.
typedef struct poseidon_factors {
  size_t struct_size;
  const poseidon_view* u;  // [rows x outputs]: errors of the outputs, row-major
  const poseidon_view* v;  // [rows x inputs]: inputs, row-major
  uint32_t rows;           // with 0 rows u and v may be NULL
  uint32_t reserved;
} poseidon_factors;

// Hands over a layer's flat gradient of `step`; the mean over all workers lands over it. The memory
// is lent until poseidon_wait has returned or `landed` was called. Returns at once. `more` may be
// NULL. A call out of turn (another scheme, an older step, a layer not waited for) is refused and
// changes nothing. Thread: any, one at a time per layer.
POSEIDON_API poseidon_code poseidon_push_dense(poseidon_model* model, uint32_t layer, uint64_t step,
                                               const poseidon_view* gradient,
                                               const poseidon_push* more, poseidon_status* status);

// Hands over a layer's factors of `step`; the mean lands in `gradient`, bias included. Else as
// above; the factors are lent as long as the gradient, and stay unchanged.
POSEIDON_API poseidon_code poseidon_push_factors(poseidon_model* model, uint32_t layer,
                                                 uint64_t step, const poseidon_factors* factors,
                                                 const poseidon_view* gradient,
                                                 const poseidon_push* more,
                                                 poseidon_status* status);

// Blocks until the mean of the layer's last push has landed; returns at once where there is none.
// Thread: any but the callbacks'.
POSEIDON_API poseidon_code poseidon_wait(poseidon_model* model, uint32_t layer,
                                         poseidon_status* status);
// Blocks until the mean of one of `count` layers, at least one, has landed and sets *landed to the
// first in the order given for which poseidon_wait would not block. A program that has to wait for
// one layer can update another meanwhile. Thread: any but the callbacks'.
POSEIDON_API poseidon_code poseidon_wait_any(poseidon_model* model, const uint32_t* layers,
                                             uint32_t count, uint32_t* landed,
                                             poseidon_status* status);
// 1 where poseidon_wait would not block, else 0. Thread: any.
POSEIDON_API int32_t poseidon_landed(const poseidon_model* model, uint32_t layer);

// ---- measurements, for the final plan

// What the first steps took in this layer; undeclared neighbours (activations, the update) count
// with the declared layer before them.
typedef struct poseidon_measurement {
  size_t struct_size;
  double forward_seconds;
  double backward_seconds;
  uint32_t rows;  // gradient rows of this worker per step; 0 where there are no factors
  uint32_t reserved;
} poseidon_measurement;

// Notes one layer's measurement; poseidon_report sends all noted ones, once, before the final
// plan's switch step. Layers without one count as free. Main thread.
POSEIDON_API poseidon_code poseidon_measured(poseidon_model* model, uint32_t layer,
                                             const poseidon_measurement* measurement,
                                             poseidon_status* status);
POSEIDON_API poseidon_code poseidon_report(poseidon_model* model, poseidon_status* status);

// ---- collectives: every worker calls the same ones in the same order; they block. Main thread.

// Leaves the sum over all ranks, taken in rank order and not scaled, in every rank's memory.
POSEIDON_API poseidon_code poseidon_sum(poseidon_session* session, const poseidon_view* view,
                                        poseidon_status* status);
// Leaves root's numbers in every rank's memory.
POSEIDON_API poseidon_code poseidon_broadcast(poseidon_session* session, const poseidon_view* view,
                                              uint32_t root, poseidon_status* status);
POSEIDON_API poseidon_code poseidon_barrier(poseidon_session* session, poseidon_status* status);
// Brings every rank's bytes to all: `take` is called once per rank, in rank order, on the caller's
// thread, before the call returns. Sizes may differ.
POSEIDON_API poseidon_code poseidon_gather(poseidon_session* session, const void* bytes,
                                           size_t size,
                                           void (*take)(void* user, uint32_t rank,
                                                        const void* bytes, size_t size),
                                           void* user, poseidon_status* status);

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
  poseidon_traffic key_value;
  poseidon_traffic factors;
  uint64_t steps;
  double seconds;  // from push to landed mean, summed over the steps
  uint64_t local_bytes;  // written to the host's shared memory or read from it
} poseidon_layer_statistics;

typedef struct poseidon_statistics {
  size_t struct_size;
  poseidon_traffic control;
  poseidon_traffic collectives;
  uint64_t wire_bytes_sent;  // everything, with what encryption adds
  uint64_t wire_bytes_received;
  double busy_seconds;           // at least one layer in flight
  double waited_seconds;         // spent in poseidon_wait
  double hidden_share;           // of the communication, behind computation: 0 to 1; waiting for
                                 // slower workers counts as not hidden
  uint64_t allocated_bytes;      // by the core, for landing places and sums, without the
                                 // connections' own buffers of a frame each
  double link_bytes_per_second;  // measured once; 0: unknown
  double link_latency_seconds;
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
  POSEIDON_LANE_WAIT = 5
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
} poseidon_span;

// Steady time of this machine, in nanoseconds. Thread: any.
POSEIDON_API int64_t poseidon_now(const poseidon_session* session);
// Adds the engine's own span (forward, backward) to the trace, where there is one. `label` is lent
// until the trace is taken: a literal. Thread: any.
POSEIDON_API poseidon_code poseidon_record(poseidon_session* session, const poseidon_span* span,
                                           poseidon_status* status);
// Hands out the spans so far, in the order they ended, and forgets them: `take` is called once per
// span, on the caller's thread, before the call returns. Thread: any.
POSEIDON_API poseidon_code poseidon_take_trace(poseidon_session* session,
                                               void (*take)(void* user, const poseidon_span* span),
                                               void* user, poseidon_status* status);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(readability-identifier-naming)

#endif  // POSEIDON_SESSION_POSEIDON_H_
