// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_UNIQUE_FUNCTION_H_
#define POSEIDON_BASE_UNIQUE_FUNCTION_H_

#include <memory>
#include <type_traits>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon {

template <typename Signature>
class UniqueFunction;

// A callable that may own move-only things. Empty after a move; calling an empty one is a bug.
template <typename R, typename... Args>
class UniqueFunction<R(Args...)> {
 public:
  UniqueFunction() = default;
  UniqueFunction(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)
  template <typename F>
    requires(!std::is_same_v<std::decay_t<F>, UniqueFunction> &&
             std::is_invocable_r_v<R, std::decay_t<F>&, Args...>)
  UniqueFunction(F&& function)  // NOLINT(google-explicit-constructor)
      : callable_(std::make_unique<Holder<std::decay_t<F>>>(std::forward<F>(function))) {}

  UniqueFunction(UniqueFunction&&) noexcept = default;
  UniqueFunction& operator=(UniqueFunction&&) noexcept = default;
  UniqueFunction(const UniqueFunction&) = delete;
  UniqueFunction& operator=(const UniqueFunction&) = delete;

  explicit operator bool() const { return callable_ != nullptr; }
  R operator()(Args... args) const {
    POSEIDON_CHECK(callable_ != nullptr, "an empty function was called");
    return callable_->Call(std::forward<Args>(args)...);
  }

 private:
  struct Callable {
    virtual ~Callable() = default;
    virtual R Call(Args... args) = 0;
  };
  template <typename F>
  struct Holder final : Callable {
    template <typename G>
    explicit Holder(G&& g) : function(std::forward<G>(g)) {}
    R Call(Args... args) override { return function(std::forward<Args>(args)...); }
    F function;
  };
  std::unique_ptr<Callable> callable_;
};

}  // namespace poseidon

#endif  // POSEIDON_BASE_UNIQUE_FUNCTION_H_
