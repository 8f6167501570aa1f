// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_SUMMARY_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_SUMMARY_H_

#include <string>

#include "frontends/caffe/solver/solver.h"
#include "frontends/caffe/train/options.h"
#include "frontends/caffe/train/output.h"
#include "frontends/caffe/train/reporter.h"
#include "frontends/caffe/train/session_sync.h"
#include "poseidon/session/session.h"

// Rank 0's summary of a run that has ended: for programs and for people.
namespace poseidon::caffe {

struct EndedRun {
  const MemberTask& task;
  const Solver& solver;
  const Net& net;  // the solver's
  const Reporter& reporter;
  const SessionSync* sync;  // null: a worker alone, without a session
  // Of the session, after the last step.
  const session::Statistics& statistics;
  const session::ModelStatistics& trained;
  double seconds = 0;
  std::string weights_hash;
  bool replicas_equal = true;
  int threads = 1;
};

// The text of summary.json.
std::string SummaryText(const EndedRun& run);
// The plan's table, what was hidden, the last test, the speed and the weights.
void PrintEnd(const EndedRun& run, Output& out);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_SUMMARY_H_
