// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_SIGNALS_H_
#define POSEIDON_TOOLS_SIGNALS_H_

#include "frontends/caffe/train/options.h"
#include "frontends/caffe/train/worker.h"

namespace poseidon::tools {

// Turns signals to a process that trains by itself into requests to its worker: SIGTERM, and SIGINT
// and SIGHUP with the effects that the options say. One at a time in a process; `options` outlives
// it. Until Begin() a signal ends the process; afterwards too when it is gone.
class SignalRequests {
 public:
  explicit SignalRequests(const caffe::TrainOptions& options) : options_(options) {}
  ~SignalRequests();
  SignalRequests(const SignalRequests&) = delete;
  SignalRequests& operator=(const SignalRequests&) = delete;

  void Begin();
  caffe::Requests& requests() { return requests_; }

 private:
  static void OnSignal(int signal_number);

  const caffe::TrainOptions& options_;
  caffe::Requests requests_;
};

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_SIGNALS_H_
