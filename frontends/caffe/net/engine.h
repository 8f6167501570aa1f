// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_NET_ENGINE_H_
#define POSEIDON_FRONTENDS_CAFFE_NET_ENGINE_H_

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "poseidon/base/status.h"

namespace poseidon::caffe {

// While it lives, ATen operators of this thread go straight to their kernels: nothing is recorded
// for automatic differentiation and no version is counted. Tensors made under it are ordinary.
class EngineGuard {
 public:
  EngineGuard() : no_grad_(false) {}

 private:
  c10::AutoGradMode no_grad_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
};

// What ATen threw, as a Status of one line. Its allocator names a source file and asks for a bug report; a user needs
// to know how much memory was asked for.
inline Status StatusOf(const c10::Error& error) {
  std::string text = error.what_without_backtrace();
  constexpr std::string_view kAsked = "you tried to allocate ";
  if (const std::size_t asked = text.find(kAsked); asked != std::string::npos) {
    const std::size_t begin = asked + kAsked.size();
    return ResourceExhausted("out of memory: cannot allocate " + text.substr(begin, text.find(' ', begin) - begin) +
                             " bytes");
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return Internal(std::move(text));
}

// Runs `work` (returning a Status) under an EngineGuard; what ATen throws becomes a Status.
template <typename Work>
Status RunOnEngine(Work&& work) {
  EngineGuard guard;
  try {
    return std::forward<Work>(work)();
  } catch (const c10::Error& error) {
    return StatusOf(error);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory");
  } catch (const std::exception& error) {
    return Internal(error.what());
  }
}

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_NET_ENGINE_H_
