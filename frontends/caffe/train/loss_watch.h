// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_LOSS_WATCH_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_LOSS_WATCH_H_

#include <optional>
#include <string>

#include "frontends/caffe/solver/observer.h"

namespace poseidon::caffe {

// Sees from finite losses that training has diverged. Thread: the caller's.
class LossWatch {
 public:
  // Returns a hint for the user, once in a run; else nothing.
  std::string Take(const IterationReport& report);

 private:
  std::optional<double> first_;
  int above_ = 0;  // displayed iterations in a row
  bool told_ = false;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_LOSS_WATCH_H_
