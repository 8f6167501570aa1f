// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/determinism.h"

#include <utility>

namespace poseidon::caffe {
namespace {

// Between the operator's name and these words nothing else is.
constexpr const char* kWords = " does not have a deterministic implementation";

}  // namespace

Determinism::Determinism(std::function<void(const std::string&)> say)
    : say_(std::move(say)), before_(c10::WarningUtils::get_warning_handler()) {
  c10::WarningUtils::set_warning_handler(this);
}

Determinism::~Determinism() { c10::WarningUtils::set_warning_handler(before_); }

void Determinism::process(const c10::Warning& warning) {
  const std::string text = warning.msg();
  const std::size_t end = text.find(kWords);
  if (end == std::string::npos) return before_->process(warning);
  {
    MutexLock lock(mutex_);
    if (!named_.insert(text.substr(0, end)).second) return;
  }
  if (say_) {
    say_(text.substr(0, end) + " gives no two times the same bits on this device, so a run's weights differ from those of another in their "
                               "last bits");
  }
}

}  // namespace poseidon::caffe
