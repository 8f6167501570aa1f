// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_C_JOB_H_
#define POSEIDON_FRONTENDS_CAFFE_C_JOB_H_

#include <memory>
#include <utility>

#include "frontends/caffe/solver/solver.h"
#include "frontends/caffe/train/options.h"
#include "frontends/caffe/train/output.h"
#include "frontends/caffe/train/session_sync.h"
#include "poseidon/base/result.h"
#include "poseidon/factors/engine.h"
#include "poseidon/place/place.h"
#include "poseidon/session/session.h"

namespace poseidon::caffe {

// The place that this process's environment says, as poseidon run, torchrun, mpirun and srun set it; worker 0 of 1 where it says
// nothing.
Result<place::Place> OwnPlace();

// One solver's part in a job of several workers, each a process of its own that runs the same program. It leaves the job when the
// process ends, behind all that runs there: with exit code 0 when all workers have come so far, and with another one at once.
// Thread: the solver's. Lifetime: solver and output outlive it.
class Job {
 public:
  Job(place::Place place, Output& output) : place_(std::move(place)), output_(output) {}
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  // Ends the job for the others where it has not been left.
  ~Job();

  // Meets the other workers and connects `solver` with them; all weights are rank 0's from here on. Blocks. Does nothing
  // when repeated. kFailedPrecondition where another solver of this process is in the job.
  Status Join(Solver* solver);
  // What all workers want at the iteration begun last.
  SolverAction Agreed();
  // Tells the others that this worker has failed, whatever they wait for.
  void Abort(const Status& failure);

 private:
  Result<std::unique_ptr<session::Session>> Open(const MemberTask& task, int threads, const Solver& solver);
  void EndWithProcess();
  void End(int exit_code);

  const place::Place place_;
  Output& output_;
  std::unique_ptr<factors::ProductEngine> engine_;
  std::unique_ptr<session::Session> session_;
  std::unique_ptr<SessionSync> sync_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_C_JOB_H_
