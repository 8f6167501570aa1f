// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_UNIQUE_FUNCTION_H_
#define POSEIDON_BASE_UNIQUE_FUNCTION_H_

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon {

// Room for what a callback of the core holds: whether its object lives (base/alive.h), the object, a key and a number.
inline constexpr std::size_t kInlineBytes = 48;

template <typename Signature, std::size_t inline_bytes = kInlineBytes>
class UniqueFunction;

// A callable that may own move-only things. Empty after a move; calling an empty one is a bug.
// Memory: a callable of at most `inline_bytes` bytes whose move cannot fail is held in place, any other is allocated.
template <typename R, typename... Args, std::size_t inline_bytes>
class UniqueFunction<R(Args...), inline_bytes> {
 public:
  UniqueFunction() = default;
  UniqueFunction(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)
  template <typename F>
    requires(!std::is_same_v<std::decay_t<F>, UniqueFunction> &&
             std::is_invocable_r_v<R, std::decay_t<F>&, Args...>)
  UniqueFunction(F&& function) {  // NOLINT(google-explicit-constructor)
    if constexpr (HoldsInPlace<std::decay_t<F>>()) {
      Hold<std::decay_t<F>>(std::forward<F>(function));
    } else {
      Hold<Allocated<std::decay_t<F>>>(std::make_unique<std::decay_t<F>>(std::forward<F>(function)));
    }
  }
  UniqueFunction(UniqueFunction&& other) noexcept { Take(other); }
  UniqueFunction& operator=(UniqueFunction&& other) noexcept {
    if (this == &other) return *this;
    // What it held dies last, because its destructor may use this function.
    UniqueFunction before(std::move(*this));
    Take(other);
    return *this;
  }
  UniqueFunction(const UniqueFunction&) = delete;
  UniqueFunction& operator=(const UniqueFunction&) = delete;
  ~UniqueFunction() {
    if (kind_ != nullptr) kind_->destroy(memory_);
  }

  explicit operator bool() const { return kind_ != nullptr; }
  R operator()(Args... args) const {
    POSEIDON_CHECK(kind_ != nullptr, "an empty function was called");
    return kind_->call(memory_, std::forward<Args>(args)...);
  }

 private:
  // What is done with a callable of one type at some address.
  struct Kind {
    R (*call)(std::byte* at, Args&&... args);
    void (*move)(std::byte* from, std::byte* to);  // and destroys what was at `from`
    void (*destroy)(std::byte* at);
  };
  // In the place of a callable that is not held in place.
  template <typename F>
  struct Allocated {
    explicit Allocated(std::unique_ptr<F> callable) : function(std::move(callable)) {}
    R operator()(Args... args) { return (*function)(std::forward<Args>(args)...); }
    std::unique_ptr<F> function;
  };

  template <typename F>
  static constexpr bool HoldsInPlace() {
    return sizeof(F) <= inline_bytes && alignof(F) <= alignof(void*) && std::is_nothrow_move_constructible_v<F>;
  }
  template <typename F>
  static F& At(std::byte* at) {
    return *std::launder(reinterpret_cast<F*>(at));
  }
  template <typename F>
  static constexpr Kind kKindOf{
      .call = [](std::byte* at, Args&&... args) -> R { return At<F>(at)(std::forward<Args>(args)...); },
      .move =
          [](std::byte* from, std::byte* to) {
            ::new (to) F(std::move(At<F>(from)));
            At<F>(from).~F();
          },
      .destroy = [](std::byte* at) { At<F>(at).~F(); }};

  template <typename F, typename G>
  void Hold(G&& callable) {
    static_assert(HoldsInPlace<F>());
    ::new (memory_) F(std::forward<G>(callable));
    kind_ = &kKindOf<F>;
  }
  // Pre: empty.
  void Take(UniqueFunction& other) noexcept {
    kind_ = std::exchange(other.kind_, nullptr);
    if (kind_ != nullptr) kind_->move(other.memory_, memory_);
  }

  const Kind* kind_ = nullptr;
  alignas(void*) mutable std::byte memory_[inline_bytes];
};

}  // namespace poseidon

#endif  // POSEIDON_BASE_UNIQUE_FUNCTION_H_
