// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_C_POSEIDON_H_
#define POSEIDON_C_POSEIDON_H_

// Poseidon for engines of any language: all that libposeidon.so exports.
//
// One process is one worker of a job. Its life:
//
//   poseidon_open               join the job; returns when all members are connected
//   poseidon_model_new, poseidon_declare (per layer), poseidon_commit
//   each step:
//     poseidon_begin_step       before the first layer runs forward
//     per layer, forward:       poseidon_wait(layer): the mean of the step before has landed
//     per layer, backward:      poseidon_push_dense or poseidon_push_factors, as poseidon_takes
//                               says, or poseidon_push_rows, as soon as the gradient exists
//   poseidon_leave, poseidon_close
//
// A process that mpirun, srun or torchrun started finds out which worker it is, and meets the others, by
// poseidon_find_place and poseidon_meet before it.
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

#include "poseidon/c/job.h"
#include "poseidon/c/observation.h"
#include "poseidon/c/place.h"
#include "poseidon/c/step.h"

#endif  // POSEIDON_C_POSEIDON_H_
