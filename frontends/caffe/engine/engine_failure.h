// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_ENGINE_ENGINE_FAILURE_H_
#define POSEIDON_FRONTENDS_CAFFE_ENGINE_ENGINE_FAILURE_H_

#include <exception>

#include "poseidon/base/status.h"

namespace poseidon::caffe {

// What ATen or another library threw, as one line without ATen's stack: kResourceExhausted where memory was missing, for a device
// with what was asked for and what it has; kUnavailable for a device that fails; else kInternal.
Status EngineFailure(const std::exception& error);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_ENGINE_ENGINE_FAILURE_H_
