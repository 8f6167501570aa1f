// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_RESULT_H_
#define POSEIDON_BASE_RESULT_H_

#include <optional>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/base/status.h"

namespace poseidon {

// A T, or the Status that says why there is none. Using the value of a failure is a bug and aborts.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    POSEIDON_CHECK(!status_.ok(), "a Result without a value needs a failure");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & {
    POSEIDON_CHECK(ok(), status_.message().c_str());
    return *value_;
  }
  const T& value() const& {
    POSEIDON_CHECK(ok(), status_.message().c_str());
    return *value_;
  }
  T&& value() && {
    POSEIDON_CHECK(ok(), status_.message().c_str());
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace poseidon

#define POSEIDON_CONCAT_INNER_(a, b) a##b
#define POSEIDON_CONCAT_(a, b) POSEIDON_CONCAT_INNER_(a, b)

// POSEIDON_ASSIGN_OR_RETURN(auto x, MakeX()): declares x from a Result, or returns its Status.
#define POSEIDON_ASSIGN_OR_RETURN(declaration, expression)                                 \
  auto POSEIDON_CONCAT_(poseidon_result_, __LINE__) = (expression);                        \
  if (!POSEIDON_CONCAT_(poseidon_result_, __LINE__).ok())                                  \
    return POSEIDON_CONCAT_(poseidon_result_, __LINE__).status();                          \
  declaration = std::move(POSEIDON_CONCAT_(poseidon_result_, __LINE__)).value()

#endif  // POSEIDON_BASE_RESULT_H_
