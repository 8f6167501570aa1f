// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_DETERMINISM_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_DETERMINISM_H_

#include <c10/util/Exception.h>

#include <functional>
#include <set>
#include <string>

#include "poseidon/base/mutex.h"

namespace poseidon::caffe {

// While it lives, operators of a device that the engine has in no form that gives the same bits every time (Placement) are named, once
// each, when they first run: two runs may differ then. Workers of a job on devices of one kind are equal all the same, for they get
// the same means.
//
// One a process. Thread: that of the passes, in which the engine warns.
class Determinism final : private c10::WarningHandler {
 public:
  // `say` gets a sentence for each; empty: nobody is told.
  explicit Determinism(std::function<void(const std::string&)> say);
  ~Determinism() override;
  Determinism(const Determinism&) = delete;
  Determinism& operator=(const Determinism&) = delete;

 private:
  void process(const c10::Warning& warning) override;

  const std::function<void(const std::string&)> say_;
  c10::WarningHandler* const before_;
  Mutex mutex_;
  std::set<std::string> named_ POSEIDON_GUARDED_BY(mutex_);
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_DETERMINISM_H_
