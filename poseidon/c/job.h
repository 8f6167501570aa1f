// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_C_JOB_H_
#define POSEIDON_C_JOB_H_

#include <stddef.h>
#include <stdint.h>

// The job: failures, what travels, joining, collectives, the end. Part of poseidon.h, whose rules hold.

// C's names, not the tree's. NOLINTBEGIN(readability-identifier-naming)

// Those of project() in CMakeLists.txt, or the library does not compile.
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
#else
#define POSEIDON_NEW(type) ((type){.struct_size = sizeof(type)})
#endif

#ifdef __cplusplus
extern "C" {
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
  // The member to blame (poseidon_member_name), the first of those that the sentence names, or POSEIDON_NO_CULPRIT.
  int32_t culprit;
  uint32_t reserved;
  char message[1000];  // one sentence without a full stop; cut where it is longer
} poseidon_status;

// "UNAVAILABLE"; lives as long as the library. Thread: any.
POSEIDON_API const char* poseidon_code_name(poseidon_code code);
// Major << 16 | minor of the library at hand. Thread: any.
POSEIDON_API uint32_t poseidon_version(void);
// "0.1.0", the whole version of the library at hand; lives as long as it. Thread: any.
POSEIDON_API const char* poseidon_version_text(void);

// ---- what travels

enum {  // dtypes; sums exist for F32, F64 and I64
  POSEIDON_F64 = 1,
  POSEIDON_F32 = 2,
  POSEIDON_F16 = 3,
  POSEIDON_BF16 = 4,
  POSEIDON_I64 = 5
};

// Where memory is; DLPack's numbers. Memory of a device is taken where the session has that device
// (poseidon_options.device).
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
  void* reserved2;
} poseidon_view;

// ---- joining

enum { POSEIDON_WORKER = 0, POSEIDON_SERVER = 1 };

enum {  // how members prove that they belong to the job, and what others can read
  POSEIDON_WIRE_AUTO = 0,  // PLAIN where this member listens on loopback, else TLS
  POSEIDON_WIRE_TLS = 1,   // handshake of TLS 1.3 keyed by the token; all that follows is encrypted and authenticated
  POSEIDON_WIRE_AUTH = 2,  // both ends prove the token; all that follows is authenticated, and can be read by others
  POSEIDON_WIRE_PLAIN = 3  // both ends prove the token; what follows can be read and changed by others
};

// Workers of one host combine through its memory before anything crosses the network: never, always,
// or where there are several hosts and one of them has several workers. On a single host they combine gradients, and not factors.
enum { POSEIDON_LEVELS_FLAT = 0, POSEIDON_LEVELS_HOST = 1, POSEIDON_LEVELS_AUTO = 2 };
// Whether factors leave without the numbers that are +0.0, from which the others make the same bits: each for which
// that takes less time than the zeros take on the network, none, or every one, for tests.
enum { POSEIDON_ZERO_COMPRESSION_AUTO = 0, POSEIDON_ZERO_COMPRESSION_OFF = 1, POSEIDON_ZERO_COMPRESSION_ALWAYS = 2 };
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

// An accelerator whose memory a push may hand over. The session never touches that memory itself: it asks for copies
// to and from host memory of its own. Both copy functions return at once and call done(token, code) exactly once, from
// any thread, when the copy has ended; until then both memories are lent. Copies of one direction run in the
// order in which they were asked for. Called on one thread of the session's.
typedef struct poseidon_device {
  size_t struct_size;
  int32_t device_type;  // as poseidon_view names it, e.g. POSEIDON_CUDA; not POSEIDON_HOST
  int32_t device_id;
  const char* name;     // for messages, "cuda:0"; NULL: its number
  void* user;
  // Copies once `ready`, the event of the view, has happened; NULL: at once. A large gradient is copied in parts, all asked
  // for at once, each with its view's event.
  void (*copy_to_host)(void* user, const void* from, void* into, size_t bytes, void* ready,
                       void (*done)(void* token, poseidon_code code), void* token);
  void (*copy_from_host)(void* user, const void* from, void* into, size_t bytes,
                         void (*done)(void* token, poseidon_code code), void* token);
  // Host memory that copies reach at full speed, 64-byte aligned, NULL if none is left; both NULL: the session's own.
  void* (*allocate_host)(void* user, size_t bytes);
  void (*free_host)(void* user, void* memory, size_t bytes);
  // Registers memory of the session's, so that copies reach it at full speed: whole pages, which the workers of a host share where they
  // combine first. Returns 0 if it cannot. Both NULL: gradients go through memory of allocate_host's.
  int32_t (*register_host)(void* user, void* memory, size_t bytes);
  void (*unregister_host)(void* user, void* memory, size_t bytes);
} poseidon_device;

typedef struct poseidon_meeting poseidon_meeting;  // place.h

typedef struct poseidon_options {
  size_t struct_size;

  // Who this process is. `workers` and `servers` are the same in all processes of the job.
  int32_t role;
  int32_t hosts_coordinator;  // not 0: in exactly one worker, which becomes rank 0
  uint32_t workers;           // at least 1; with the servers 4096 at most
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
  // rank 0 learns its address here, and its program passes it on to the others.
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
  double dead_after_seconds;    // a silent member is given up after this long, at least 0.1; 0: 30

  // The plan. Rank 0's values count, except for final_plan_step, which all workers share.
  int32_t policy;
  uint32_t reserved2;
  // Lines (or ';' between) of name=scheme, scheme by its name (kv, sfb, ...); in names a backslash
  // takes the character after it as it is. `schemes` is what the user forces; `plan_pin` is a plan from before
  // (poseidon_plan_text); the user wins.
  const char* schemes;
  const char* plan_pin;
  // The step from which the plan made of measurements holds; every worker reports before it
  // (poseidon_report). 0: 10. POSEIDON_NEVER: the first plan stays.
  uint64_t final_plan_step;

  const poseidon_engine* engine;  // NULL: a BLAS, once a layer declares factors; see blas

  // NULL: silence. Called on any thread. Who has no log of its own may give poseidon_log_to_stderr.
  void (*log)(void* user, int32_t level, const char* line);
  void* log_user;

  // How many to keep for poseidon_take_trace, of 64 bytes each; 0: no trace. Whole steps are kept: each model's first three
  // and as many of the last as fit.
  uint64_t trace_spans;
  uint64_t memory_limit_bytes;  // a dedicated server refuses to need more; 0: no limit
  // Sent to measure the link, 1 MiB to 1 GiB; 0: 4 MiB; POSEIDON_NEVER: none.
  uint64_t probe_bytes;

  int32_t levels;  // rank 0's value counts
  uint32_t reserved3;
  // Workers that name the same machine can share memory; NULL: as the system says; "": with nobody.
  const char* machine;

  // Called about every 100 ms while a call of the program's blocks, on the thread that called, until it returns not
  // 0: then the job ends as by poseidon_abort, and the call returns POSEIDON_ABORTED. For engines whose user presses
  // Ctrl-C. NULL: a call blocks as long as it takes.
  int32_t (*interrupted)(void* user);
  void* interrupted_user;

  const poseidon_device* device;  // whose memory pushes may hand over, besides the host's; NULL: none

  // A member that is alive but keeps the others waiting is named to `log` of rank 0 after 2 s, and ends the job after
  // this long; ten times as long if its process, or one that it started, uses a processor or it has said what it is busy with
  // (poseidon_say_busy). At least 1; 0: 60. Rank 0's value counts.
  double stuck_after_seconds;

  // File of the BLAS library that multiplies factors where there is no `engine` (sgemm_ and dgemm_ with 32-bit
  // integers, or the OpenBLAS inside NumPy's wheels). NULL: the BLAS of a PyTorch that the process has loaded, else the
  // system's OpenBLAS.
  const char* blas;

  // Rank 0's, from poseidon_meet: is told where this member listens, before anybody has joined, as `listening` is. Where
  // it cannot leave that for the others, poseidon_open fails. Lent until poseidon_open returns. NULL: none
  poseidon_meeting* meeting;

  // A file that is there and that gets the failure of the job as soon as this member knows it: the number of the culprit, -1
  // for none, the code's name and the message, in a line. Lent until poseidon_open returns. `poseidon run` names one in
  // POSEIDON_VERDICT_FILE, and blames that member. Before a job of several workers forms, "joins" is written there. NULL: none
  const char* verdict_file;

  int32_t zero_compression;  // of what this worker sends
  // Threads of the network of every member, each with connections of its own, where this one hosts the coordinator; 0: as many
  // as the links need and the cores have to spare.
  uint32_t lanes;

  // How layers are scheduled: "poseidon", or a published system's way, to compare with: "wfbp", "p3", "dear", "ps-2017",
  // "dense" (docs/strategies.md). The same on all members, or the others are refused. NULL: "poseidon"
  const char* strategy;

  // What this member may use of its link in each direction, headers included, as in "400Mbit" or "2.5Gbps". A job keeps to the
  // least that a member says (docs/bandwidth.md). NULL: all of it
  const char* bandwidth;

  // A file or a pipe that is there and that gets a line about once a second: what this member does, for its launcher.
  // `poseidon run --watch` and `--metrics-port` name one in POSEIDON_FIGURES_FILE. Lent until poseidon_open returns. NULL: none
  const char* figures_file;

  // A folder into which rank 0 writes, in poseidon_leave, what it knows of the run: `poseidon report` makes a page of it.
  // poseidon_open removes those files of an earlier run there. Spans are kept for it as trace_spans says, 30000 where that is 0;
  // poseidon_take_trace takes them away. poseidon_note adds losses. What cannot be written is said to `log`. NULL: none
  const char* run_dir;
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
// Whether the strategy begins a forward pass when every layer has landed. The program then waits for all layers, not for each
// before its own forward pass.
POSEIDON_API int32_t poseidon_waits_for_all(const poseidon_session* session);
// Writes "worker 2 on host b", cut to `capacity` bytes with its final zero, and returns the length
// it has uncut.
POSEIDON_API size_t poseidon_member_name(const poseidon_session* session, int32_t member,
                                         char* buffer, size_t capacity);
// The job's failure, POSEIDON_OK while it runs.
POSEIDON_API poseidon_code poseidon_failure(const poseidon_session* session,
                                            poseidon_status* status);

// Says, should others wait for this worker, what it is busy with ("evaluates", "compiles its model"): they wait longer
// then. NULL or "": with nothing but its steps. Thread: any.
POSEIDON_API void poseidon_say_busy(poseidon_session* session, const char* with);
// A log for poseidon_options: writes warnings and errors to standard error, a line each, after "poseidon: ", cut at
// 4096 bytes. A line that standard error does not take at once is lost. Thread: any.
POSEIDON_API void poseidon_log_to_stderr(void* user, int32_t level, const char* line);

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
//
// A session belongs to the process that opened it. A child that was forked from it holds none of the session's
// connections; there poseidon_abort and poseidon_close do nothing, and every other call fails.
POSEIDON_API void poseidon_close(poseidon_session* session);

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

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(readability-identifier-naming)

#endif  // POSEIDON_C_JOB_H_
