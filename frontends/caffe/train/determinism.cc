// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/determinism.h"

#include <ATen/Context.h>
#include <stdlib.h>

namespace poseidon::caffe {
namespace {

// Between the operator's name and these words nothing else is.
constexpr const char* kWords = " does not have a deterministic implementation";

}  // namespace

Determinism::Determinism(Output& output, bool says) : output_(output), says_(says), before_(c10::WarningUtils::get_warning_handler()) {
  // cuBLAS sums in another order from one call to the next, unless it is told before its first use how much memory it has.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  at::globalContext().setDeterministicFillUninitializedMemory(false);  // every number is written before it is read
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
  c10::WarningUtils::set_warning_handler(this);
}

Determinism::~Determinism() {
  c10::WarningUtils::set_warning_handler(before_);
  at::globalContext().setDeterministicAlgorithms(false, false);
}

void Determinism::process(const c10::Warning& warning) {
  const std::string text = warning.msg();
  const std::size_t end = text.find(kWords);
  if (end == std::string::npos) return before_->process(warning);
  {
    MutexLock lock(mutex_);
    if (!named_.insert(text.substr(0, end)).second) return;
  }
  if (says_) {
    output_.Log(LogLevel::kNotice, text.substr(0, end) + " gives no two times the same bits on this device, so a run's weights differ from those "
                                                         "of another in their last bits");
  }
}

}  // namespace poseidon::caffe
