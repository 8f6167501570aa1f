// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_C_STEP_H_
#define POSEIDON_C_STEP_H_

#include <stddef.h>
#include <stdint.h>

#include "poseidon/c/job.h"

// The step: models, plans, pushes, waits, measurements. Part of poseidon.h, whose rules hold.

// C's names, not the tree's. NOLINTBEGIN(readability-identifier-naming)

#ifdef __cplusplus
extern "C" {
#endif

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
  // Not 0: a table of `outputs` entries of `inputs` numbers each, F32 or F64, without a bias, of whose gradient a worker
  // has some rows (an embedding). They go to every worker as they are (poseidon_push_rows).
  int32_t table;
  // Not 0: some worker has the gradient on a device, where a message costs the program several times what it costs on the host.
  // The same on every worker. For poseidon_join_small alone.
  int32_t on_device;
  // Of a layer with outputs and inputs whose product the program makes itself, on its device: the seconds of a test product there,
  // over product_rows rows of the same numbers on every worker, and a hash of its bits. Where the hashes of all workers are
  // equal, the plan may send factors to every worker, and then takes POSEIDON_GATHERED: the mean is what poseidon_get_gathered
  // gives. Otherwise the layer takes POSEIDON_FACTORS, and the session makes the product (poseidon_options.engine).
  uint64_t product_rows;
  uint64_t product_hash;
  double product_seconds;
} poseidon_layer;

// Sets *model to a new, empty model, freed with its session, which holds up to 256. Every worker makes the same
// models in the same order. Main thread.
POSEIDON_API poseidon_code poseidon_model_new(poseidon_session* session, poseidon_model** model,
                                              poseidon_status* status);

// Says which of `count` layers, in forward order, an engine should declare as one: a message costs the processors of
// both ends time whatever its size. Sets first[i] to the index of the first of those that layer i goes with, to i where
// it stays alone. Layers that go together are of one dtype and have 128 KiB at most, or 512 KiB where one of `layers` is
// on a device. Declared is one layer, with the name and the forward position of the first, whose gradient is theirs in a
// row and no product of factors; it is pushed when all of them are there, and waited for before the first of them runs.
// Tables stay alone, and layers with factors whose product has more than 16 KiB, and those named in
// poseidon_options.schemes. Changes nothing. Thread: any.
POSEIDON_API poseidon_code poseidon_join_small(const poseidon_session* session, const poseidon_layer* const* layers,
                                               uint32_t count, uint32_t* first, poseidon_status* status);

// Adds a layer; *id is its number in all calls below, counting from 0. Main thread, before
// poseidon_commit.
POSEIDON_API poseidon_code poseidon_declare(poseidon_model* model, const poseidon_layer* layer,
                                            uint32_t* id, poseidon_status* status);

// Compares the declaration with every other worker's and makes the first plan. Blocks until all
// have committed. A difference ends the job and names layer and worker. Main thread, once.
POSEIDON_API poseidon_code poseidon_commit(poseidon_model* model, poseidon_status* status);

// Memory of the session's own for a layer, where the workers of a host combine first.
typedef struct poseidon_memory {
  size_t struct_size;
  void* brought;     // page-aligned; NULL: the session has none
  const void* mean;  // page-aligned
  uint64_t bytes;    // of each: the gradient's at least
} poseidon_memory;

// Fills *memory, for a program that copies gradients from a device of its own. A push whose gradient is at `brought` lends it as any
// other, but the session does not copy it, and its mean lands in `mean`, where it stays until the layer's next push. A push of factors
// may bring them there too, u at its begin and v right behind it; its gradient is other memory, where its mean lands. The program may
// register both ranges with its device, in whole pages; it gives them up, and has ended its copies, before poseidon_close. A session
// with a poseidon_device does all that itself, and gives NULL. Thread: any, after poseidon_commit.
POSEIDON_API poseidon_code poseidon_get_memory(const poseidon_model* model, uint32_t layer, poseidon_memory* memory,
                                               poseidon_status* status);

// What a worker hands over for a layer: its flat gradient (poseidon_push_dense), or its factors
// (poseidon_push_factors; of a table its rows, poseidon_push_rows). The plan's scheme decides. GATHERED: its factors, and the
// program multiplies what all workers brought (poseidon_get_gathered). A table takes FACTORS.
enum { POSEIDON_GRADIENT = 1, POSEIDON_FACTORS = 2, POSEIDON_GATHERED = 3 };

// How one layer goes, why, and what that is predicted to take per step. Predictions are 0 in the
// first plan, where nothing was measured.
typedef struct poseidon_layer_plan {
  size_t struct_size;
  int32_t scheme;       // its number in the wire protocol
  int32_t forced;       // not 0: by the user or a pinned plan
  uint64_t bytes_sent;  // payload of the busiest worker
  uint64_t bytes_received;
  double transfer_seconds;
  double rebuild_seconds;  // the product of all workers' factors
  char reason[512];
  char scheme_name[16];  // as in poseidon_options.schemes
  int32_t takes;         // POSEIDON_GRADIENT, POSEIDON_FACTORS or POSEIDON_GATHERED
  uint32_t reserved;
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

// Sets *takes to what the layer is to be pushed as in `step`, which has begun: POSEIDON_GRADIENT,
// POSEIDON_FACTORS or POSEIDON_GATHERED. Thread: any.
POSEIDON_API poseidon_code poseidon_takes(const poseidon_model* model, uint32_t layer, uint64_t step,
                                          int32_t* takes, poseidon_status* status);

// Options of one push beyond its gradient.
typedef struct poseidon_push {
  size_t struct_size;
  int32_t absent;   // not 0: contribute nothing, receive the mean of the others
  // Of this contribution in the mean, whatever the scheme: it is multiplied by its weight, and the divisor is the sum of
  // the weights; 0 on all: unweighted. Beside others that have a weight, one of weight 0 adds nothing, as one of a
  // worker that had no samples. Where a host's workers combine, their weights add up to 32 bits at most.
  uint32_t weight;
  // Called once for every push that returned POSEIDON_OK, when poseidon_wait would no longer block.
  void (*landed)(void* user, const poseidon_status* status);
  void* landed_user;
  // Of a layer that could send factors and is pushed dense: its gradient rows, which the planner wants to know.
  uint32_t rows;
  uint32_t reserved;
  // Not 0: the gradient comes in parts, from its beginning on, as poseidon_arrived says. None is there yet, and what is not
  // there is the program's to write. Of poseidon_push_dense of host memory, not absent.
  int32_t in_parts;
  uint32_t reserved2;
} poseidon_push;

// dW = u^T v of this worker's `rows` samples; rows may be 0, and differ between workers and steps.
// The mean is the sum over all workers' rows divided by the number of workers, or a weighted one (poseidon_push).
typedef struct poseidon_factors {
  size_t struct_size;
  // Both in host memory or both on the device, with one ready event, as the gradient is.
  const poseidon_view* u;  // [rows x outputs]: errors of the outputs, row-major
  const poseidon_view* v;  // [rows x inputs]: inputs, row-major
  uint32_t rows;           // with 0 rows u and v may be NULL
  uint32_t reserved;
} poseidon_factors;

// Hands over a layer's flat gradient of `step`; the mean over all workers lands over it (or in poseidon_memory.mean). The memory,
// of the host or of the session's device, is lent until poseidon_wait has returned or `landed` was called. Returns at once. `more` may be
// NULL. A call out of turn (a gradient where factors are taken, an older step, a layer not waited for) is refused and
// changes nothing. Thread: any, one at a time per layer.
POSEIDON_API poseidon_code poseidon_push_dense(poseidon_model* model, uint32_t layer, uint64_t step,
                                               const poseidon_view* gradient,
                                               const poseidon_push* more, poseidon_status* status);

// The first `elements` numbers of the gradient that was pushed with poseidon_push.in_parts hold their values, and leave
// while the program still writes the rest, say by a copy from its device. Grows; the push is whole once all are there. Each
// call costs messages: a few MiB at a time are enough. Returns at once. A call out of turn (no push in parts under way,
// fewer numbers than before, more than the layer has) is refused and changes nothing. Thread: any, one at a time per layer.
POSEIDON_API poseidon_code poseidon_arrived(poseidon_model* model, uint32_t layer, uint64_t elements,
                                            poseidon_status* status);

// Hands over a layer's factors of `step`; the mean lands in `gradient`, bias included. Else as
// above; the factors are lent as long as the gradient, and stay unchanged. Where the layer takes POSEIDON_GATHERED nothing
// lands in `gradient`, which may be NULL, and poseidon_get_gathered has what came.
POSEIDON_API poseidon_code poseidon_push_factors(poseidon_model* model, uint32_t layer,
                                                 uint64_t step, const poseidon_factors* factors,
                                                 const poseidon_view* gradient,
                                                 const poseidon_push* more,
                                                 poseidon_status* status);

// This worker's rows of a table's gradient: entry indices[i] gets row i of `values`, and the sum of its rows where an index
// comes several times. `count` may be 0, and differ between workers and steps.
typedef struct poseidon_rows {
  size_t struct_size;
  const int64_t* indices;       // [count], each at least 0 and less than the layer's outputs
  const poseidon_view* values;  // [count x inputs], row-major, in host memory
  uint32_t count;               // with 0 indices and values may be NULL
  uint32_t reserved;
} poseidon_rows;

// The mean of a layer's gradient over all workers, unmerged: every worker's rows as it gave them, in the order of ranks, the
// same bits on all workers. Of a table, each number of `values` is divided by the number of workers, or weighted as
// poseidon_push says. Of a layer that takes POSEIDON_GATHERED, each number of `u` is: the mean of the weight is u^T v, with
// v = `values`, and that of the bias the column sums of u. All is memory of the host.
typedef struct poseidon_gathered {
  size_t struct_size;
  const int64_t* indices;  // of a table: [count]
  const void* values;      // [count x inputs], row-major, of the layer's dtype
  uint64_t count;
  const void* u;  // of no table: [count x outputs], row-major
} poseidon_gathered;

// Hands over a layer's rows of `step`, of a layer that was declared as a table. Indices and values are lent, unchanged,
// until poseidon_wait has returned or `landed` was called. Else as poseidon_push_dense; an index of no entry is refused.
POSEIDON_API poseidon_code poseidon_push_rows(poseidon_model* model, uint32_t layer, uint64_t step,
                                              const poseidon_rows* rows, const poseidon_push* more,
                                              poseidon_status* status);
// Fills *gathered with the mean of the layer's last push, which poseidon_wait has returned for or `landed` was called for.
// The memory is the session's, and valid until the layer's next push. Thread: any.
POSEIDON_API poseidon_code poseidon_get_gathered(const poseidon_model* model, uint32_t layer,
                                                 poseidon_gathered* gathered, poseidon_status* status);

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

// ---- measurements, for the final plan: either every pass is timed, or the engine reports what it measured itself

enum { POSEIDON_FORWARD = 0, POSEIDON_BACKWARD = 1 };

// The engine ran a layer's forward (with its update) or backward pass in `step` between two moments of poseidon_now,
// without what it blocked in calls of this library. Undeclared neighbours (activations) count with the declared layer
// before them. The session keeps the clocks, reports them before the final plan's switch step, and shows the
// passes in the trace. Thread: any.
POSEIDON_API poseidon_code poseidon_timed(poseidon_model* model, uint32_t layer, uint64_t step, int32_t pass,
                                          int64_t begin_nanoseconds, int64_t end_nanoseconds,
                                          poseidon_status* status);

// Adds the time for which the engine waited in the step begun last for layers that it takes when `landed` is called:
// it never blocks in poseidon_wait, so only it knows. Counts as waited_seconds (poseidon_get_statistics). Thread: any.
POSEIDON_API poseidon_code poseidon_waited(poseidon_model* model, int64_t nanoseconds, poseidon_status* status);

// The times of the first steps in this layer; undeclared neighbours (activations, the update) count
// with the declared layer before them.
typedef struct poseidon_measurement {
  size_t struct_size;
  double forward_seconds;
  double backward_seconds;
  uint32_t rows;  // gradient rows of this worker per step; 0 where there are neither factors nor a table
  uint32_t reserved;
} poseidon_measurement;

// Notes one layer's measurement; poseidon_report sends all noted ones, once, before the final
// plan's switch step, in place of what poseidon_timed saw. Layers without one count as free. Main thread.
POSEIDON_API poseidon_code poseidon_measured(poseidon_model* model, uint32_t layer,
                                             const poseidon_measurement* measurement,
                                             poseidon_status* status);
POSEIDON_API poseidon_code poseidon_report(poseidon_model* model, poseidon_status* status);

#ifdef __cplusplus
}  // extern "C"
#endif
// NOLINTEND(readability-identifier-naming)

#endif  // POSEIDON_C_STEP_H_
