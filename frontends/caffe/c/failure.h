// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_C_FAILURE_H_
#define POSEIDON_FRONTENDS_CAFFE_C_FAILURE_H_

#include <cfenv>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "frontends/caffe/c/poseidon_caffe.h"
#include "frontends/caffe/engine/engine_failure.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// Keeps `status` for poseidon_caffe_error of this thread and returns its code.
poseidon_caffe_code Kept(const Status& status);

// The text for the caller, until this thread's next call.
const char* Lent(std::string text);

// Whether the caller wants to end the call that is under way.
bool WantsOut();
// A callback's answer as a status.
Status Answered(std::int32_t answer);

// While it lives, this thread counts subnormal numbers as zero, as the trainer does, and so do threads that it starts; the
// caller's own mode comes back.
class SubnormalsFlushed {
 public:
  SubnormalsFlushed();
  ~SubnormalsFlushed();
  SubnormalsFlushed(const SubnormalsFlushed&) = delete;
  SubnormalsFlushed& operator=(const SubnormalsFlushed&) = delete;

 private:
  std::fenv_t before_;
};

// Runs `work`, which returns a Status; nothing is thrown into the caller's language.
template <typename Work>
poseidon_caffe_code Guarded(Work&& work) {
  const SubnormalsFlushed flushed;
  try {
    return Kept(std::forward<Work>(work)());
  } catch (const std::exception& error) {
    return Kept(EngineFailure(error));
  }
}

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_C_FAILURE_H_
