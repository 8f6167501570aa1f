// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_ATEN_ENGINE_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_ATEN_ENGINE_H_

#include <memory>

#include "poseidon/factors/engine.h"

namespace poseidon::caffe {

// The trainer's product engine: ATen's matrix product on the host, with the threads ATen was given.
// Thread: one product at a time, any thread.
std::unique_ptr<factors::ProductEngine> MakeAtenEngine(int threads);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_ATEN_ENGINE_H_
