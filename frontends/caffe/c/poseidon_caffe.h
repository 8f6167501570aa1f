// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_C_POSEIDON_CAFFE_H_
#define POSEIDON_FRONTENDS_CAFFE_C_POSEIDON_CAFFE_H_

// The trainer's nets and solvers for other languages: all that libposeidon_caffe.so exports. The Python package
// poseidon.caffe is made of it. Library and caller are of one version (poseidon_caffe_version).
//
// Rules for every function.
//
// Failures: a function that returns a poseidon_caffe_code returns 0, or the kind of failure, which poseidon_caffe_error
// then describes. Nothing aborts the process.
//
// Memory: strings and arrays handed in are copied before the call returns. A text that is returned belongs to the library
// and is valid until this thread's next call.
//
// Threads: a net, a solver with its nets, and views of their blobs: one thread at a time, any. Callbacks run on the thread
// that called, inside its call; they must not throw, nor free the net or solver that calls.
//
// Numbers are 32-bit floats, in C order.

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef POSEIDON_CAFFE_API
#define POSEIDON_CAFFE_API __attribute__((visibility("default")))
#endif

typedef int32_t poseidon_caffe_code;  // of poseidon::StatusCode; poseidon_caffe_code_name has their names
typedef struct poseidon_caffe_net poseidon_caffe_net;
typedef struct poseidon_caffe_blob poseidon_caffe_blob;    // lives as long as its net
typedef struct poseidon_caffe_solver poseidon_caffe_solver;
typedef struct poseidon_caffe_learned poseidon_caffe_learned;  // the learned blobs of a layer of type Python

POSEIDON_CAFFE_API const char* poseidon_caffe_version(void);
// What this thread's last failed call was: one sentence; and whom it blames, a worker's number, or -1.
POSEIDON_CAFFE_API const char* poseidon_caffe_error(void);
POSEIDON_CAFFE_API int32_t poseidon_caffe_culprit(void);
// "INVALID_ARGUMENT" and so on.
POSEIDON_CAFFE_API const char* poseidon_caffe_code_name(poseidon_caffe_code code);
// Fails where the libtorch_cpu.so that is loaded has another minor version than the one that this library was built with.
// To be called before anything else that computes.
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_check_torch(void);
// The types of layers there are, one a line, in alphabetical order.
POSEIDON_CAFFE_API const char* poseidon_caffe_layer_types(void);
// Caffe's messages: a serialized google.protobuf.FileDescriptorProto of `bytes` bytes.
POSEIDON_CAFFE_API const char* poseidon_caffe_descriptor(size_t* bytes);

// What solvers and nets tell the user, a line at a time: level 1 is what training reports, 2 a warning, 3 an error.
// NULL, as at first: to standard error.
typedef void (*poseidon_caffe_say)(int32_t level, const char* line);
POSEIDON_CAFFE_API void poseidon_caffe_set_say(poseidon_caffe_say say);
// Asked before every other callback and between a solver's iterations: not 0 ends the call that is under way, which then
// fails, but a solver's between iterations. NULL, as at first: never.
POSEIDON_CAFFE_API void poseidon_caffe_set_interrupted(int32_t (*interrupted)(void*));

// --- Nets ----------------------------------------------------------------------------------------

typedef struct poseidon_caffe_state {
  int32_t phase;       // 0 TRAIN, 1 TEST
  int32_t level;
  const char* stages;  // one a line
  uint64_t seed;       // of fillers, dropout masks, crops
} poseidon_caffe_state;

// Reads a prototxt and builds its net with filled weights. Files that it names are looked for beside it, too.
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_net_new(const char* prototxt, const poseidon_caffe_state* state,
                                                              poseidon_caffe_net** net);
// Views and blobs' numbers that somebody holds stay. Not for a solver's nets. NULL is allowed.
POSEIDON_CAFFE_API void poseidon_caffe_net_free(poseidon_caffe_net* net);

// The graph as JSON, layers with the splits that were put in, as Caffe does:
//   {"name": "", "phase": 1, "layers": [{"name": "", "type": "", "bottoms": [blob ids], "tops": [ids], "learned": count}, ...],
//    "blobs": [names], "loss_weights": [by blob], "inputs": [ids of tops of Input layers], "outputs": [ids]}
POSEIDON_CAFFE_API const char* poseidon_caffe_net_describe(poseidon_caffe_net* net);
POSEIDON_CAFFE_API poseidon_caffe_blob* poseidon_caffe_net_blob(poseidon_caffe_net* net, int32_t id);
POSEIDON_CAFFE_API poseidon_caffe_blob* poseidon_caffe_net_learned(poseidon_caffe_net* net, int32_t layer, int32_t index);

// Runs layers `first` to `last`, both included, forward, or down from `first` to `last` backward. A forward pass that
// begins at layer 0 takes the next batch of data. Gradients of learned blobs add up until they are cleared.
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_net_forward(poseidon_caffe_net* net, int32_t first, int32_t last, double* loss);
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_net_backward(poseidon_caffe_net* net, int32_t first, int32_t last);
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_net_clear_param_diffs(poseidon_caffe_net* net);
// Makes the diffs of learned blobs, zero, where there are none yet. To be called before one is looked at.
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_net_need_param_diffs(poseidon_caffe_net* net);
// Gives all blobs the shapes that follow from the inputs', without computing.
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_net_reshape(poseidon_caffe_net* net);

// Weights by layer name, of a .caffemodel or an HDF5 file.
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_net_copy_from(poseidon_caffe_net* net, const char* model);
// From here on both nets have the same learned blobs, those of `other`, in layers of one name.
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_net_share_with(poseidon_caffe_net* net, const poseidon_caffe_net* other);
// Writes net and weights, as HDF5 where `hdf5` is not 0.
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_net_save(poseidon_caffe_net* net, const char* path, int32_t hdf5);
// Copies the arrays into the first layer, of type MemoryData: data of `shape` (4 numbers), and shape[0] labels.
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_net_set_input_arrays(poseidon_caffe_net* net, const float* data, const int64_t* shape,
                                                                           const float* labels);

// --- Blobs ---------------------------------------------------------------------------------------

enum { POSEIDON_CAFFE_MOST_AXES = 32 };
typedef struct poseidon_caffe_view {
  float* numbers;  // what the blob computes with: writing changes it
  void* hold;      // keeps `numbers` where they are, whatever becomes of blob and net, until poseidon_caffe_release
  int32_t axes;
  int64_t shape[POSEIDON_CAFFE_MOST_AXES];
} poseidon_caffe_view;

// The numbers of a blob as they are now (diff 0) or their gradients (1), which are made, zero, where there are none. A pass
// or a reshape may give the blob other memory, which a new view then shows.
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_blob_view(poseidon_caffe_blob* blob, int32_t diff, poseidon_caffe_view* view);
// Thread: any.
POSEIDON_CAFFE_API void poseidon_caffe_release(void* hold);
// `view` gets axes and shape, nothing to release.
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_blob_shape(const poseidon_caffe_blob* blob, poseidon_caffe_view* view);
// The blob of a net's graph gets another shape, and zeros where that holds another count of numbers. What is computed from
// it follows in the next pass. `net` may be NULL in a callback of a layer, which reshapes its tops.
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_blob_reshape(poseidon_caffe_net* net, poseidon_caffe_blob* blob, int32_t axes,
                                                const int64_t* shape);

// --- Solvers -------------------------------------------------------------------------------------

// Which worker of how many this process is, as its environment says: poseidon run, torchrun, mpirun or srun; 0 of 1 where it
// says nothing. A solver of several workers joins the job in its first step, where all weights become worker 0's; gradients
// are averaged over the workers from then on. One solver a process. The process leaves the job when it ends, by exit(): with 0 it waits
// until the others have come so far, with another code it ends the job for them. It must not free the solver before, and
// callbacks that other threads may not call any more are to be unset by then (poseidon_caffe_set_say).
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_place(int32_t* rank, int32_t* workers);

typedef struct poseidon_caffe_solver_options {
  const char* type;  // "SGD", "Adam", ...; NULL: the one that the file names
  int64_t seed;      // where the file has no random_seed; below 0: 1
} poseidon_caffe_solver_options;

POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_solver_new(const char* prototxt, const poseidon_caffe_solver_options* options,
                                              poseidon_caffe_solver** solver);
// Ends the job for the others, where the solver is in one. NULL is allowed.
POSEIDON_CAFFE_API void poseidon_caffe_solver_free(poseidon_caffe_solver* solver);
// The solver's net that trains (test -1) or a test net; belongs to the solver. NULL: there is none.
POSEIDON_CAFFE_API poseidon_caffe_net* poseidon_caffe_solver_net(poseidon_caffe_solver* solver, int32_t test);
POSEIDON_CAFFE_API uint64_t poseidon_caffe_solver_iteration(const poseidon_caffe_solver* solver);
// The rate of the last iteration.
POSEIDON_CAFFE_API double poseidon_caffe_solver_rate(const poseidon_caffe_solver* solver);
// The solver's parameters as protobuf text.
POSEIDON_CAFFE_API const char* poseidon_caffe_solver_parameters(const poseidon_caffe_solver* solver);
// From here on every iteration calls `began` at its beginning, when weights have all updates of those before it and gradients are
// zero, and `gradients_ready` when its gradients are computed and weights are not yet updated. 0 ends the run, with a failure.
POSEIDON_CAFFE_API void poseidon_caffe_solver_call(poseidon_caffe_solver* solver, int32_t (*began)(void), int32_t (*gradients_ready)(void));
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_solver_set_base_lr(poseidon_caffe_solver* solver, float rate);
// Of an iteration that fails, in a step or in solve, no weight has the update, and the next step makes it anew. Where another worker
// has ended the job, some may lack the last update.
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_solver_step(poseidon_caffe_solver* solver, uint64_t iterations);
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_solver_solve(poseidon_caffe_solver* solver);
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_solver_restore(poseidon_caffe_solver* solver, const char* state);
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_solver_snapshot(poseidon_caffe_solver* solver);
// Ends the job for the other workers, who hear of the `failure`, a sentence.
POSEIDON_CAFFE_API void poseidon_caffe_solver_abort(poseidon_caffe_solver* solver, const char* failure);
// SHA-256 of the weights, in hexadecimal: workers compare it.
POSEIDON_CAFFE_API const char* poseidon_caffe_solver_hash(poseidon_caffe_solver* solver);

// --- Layers in Python ----------------------------------------------------------------------------

enum { POSEIDON_CAFFE_SETUP = 0, POSEIDON_CAFFE_RESHAPE = 1, POSEIDON_CAFFE_FORWARD = 2, POSEIDON_CAFFE_BACKWARD = 3 };
typedef struct poseidon_caffe_call {
  int64_t object;
  int32_t what;
  int32_t bottoms;
  int32_t tops;
  poseidon_caffe_blob* const* bottom;
  poseidon_caffe_blob* const* top;
  const uint8_t* propagate_down;  // by bottom, of a backward pass
} poseidon_caffe_call;

typedef struct poseidon_caffe_layers {
  // Makes an object of a class; 0: it cannot be made.
  int64_t (*make)(const char* module, const char* layer, const char* param_str, int32_t phase, poseidon_caffe_learned* learned,
                  char* sentence, size_t room);
  // 0: it failed.
  int32_t (*call)(const poseidon_caffe_call* call, char* sentence, size_t room);
  void (*drop)(int64_t object);
} poseidon_caffe_layers;
// Each callback that fails writes a sentence, which ends within `room` bytes. `layers` outlives all nets.
POSEIDON_CAFFE_API void poseidon_caffe_set_layers(const poseidon_caffe_layers* layers);
// In a class's setup: one more learned blob, zero.
POSEIDON_CAFFE_API poseidon_caffe_code poseidon_caffe_learned_add(poseidon_caffe_learned* learned, int32_t axes, const int64_t* shape);
POSEIDON_CAFFE_API int32_t poseidon_caffe_learned_count(const poseidon_caffe_learned* learned);
// Another one once the net has taken them over, after setup.
POSEIDON_CAFFE_API poseidon_caffe_blob* poseidon_caffe_learned_at(poseidon_caffe_learned* learned, int32_t index);

#ifdef __cplusplus
}
#endif

#endif  // POSEIDON_FRONTENDS_CAFFE_C_POSEIDON_CAFFE_H_
