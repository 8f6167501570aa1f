// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_CONSOLE_SIGNALS_H_
#define POSEIDON_TOOLS_CONSOLE_SIGNALS_H_

#include <string>

#include "frontends/caffe/train/options.h"
#include "frontends/caffe/train/worker.h"

// SIGINT, SIGTERM and SIGHUP to a worker. The program starts with them blocked (main.cc), so one that comes while its
// libraries load waits until ReceiveSignals is called.
namespace poseidon::tools {

// From here on, to the end of the process, they are requests to the worker: SIGTERM, and SIGINT and
// SIGHUP with the effects that the options say. A second request to stop ends the process at once,
// with a sentence and the exit code of a failure.
void ReceiveSignals(const caffe::TrainOptions& options);

// The requests that signals have made. Lives as long as the process. (Who asked for a stop: stop_signal.h.)
caffe::Requests& SignalRequests();

// A file that this process leaves for others while it starts: a second request to stop removes it
// too. At most two; an empty path forgets them all.
void RemoveAtSecondStop(const std::string& path);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_CONSOLE_SIGNALS_H_
