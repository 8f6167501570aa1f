// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_DETERMINISM_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_DETERMINISM_H_

#include <c10/util/Exception.h>

#include <set>
#include <string>

#include "frontends/caffe/train/output.h"
#include "poseidon/base/mutex.h"

namespace poseidon::caffe {

// While it lives, the engine takes those of its operators that give the same bits every time, where it has them, and others are named
// to `output`, once each, when they first run: two runs may differ then. Workers of a job on devices of one kind are equal all
// the same, for they get the same means.
//
// One a process. Thread: that of the passes, in which the engine warns.
class Determinism final : private c10::WarningHandler {
 public:
  // `says`: whether this worker names them.
  Determinism(Output& output, bool says);
  ~Determinism() override;
  Determinism(const Determinism&) = delete;
  Determinism& operator=(const Determinism&) = delete;

 private:
  void process(const c10::Warning& warning) override;

  Output& output_;
  const bool says_;
  c10::WarningHandler* const before_;
  Mutex mutex_;
  std::set<std::string> named_ POSEIDON_GUARDED_BY(mutex_);
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_DETERMINISM_H_
