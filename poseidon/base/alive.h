// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BASE_ALIVE_H_
#define POSEIDON_BASE_ALIVE_H_

#include <memory>
#include <utility>

namespace poseidon {

// Lets callbacks outlive the object they belong to. The object holds an Alive as its last member, so that it
// dies before the members that a callback uses, and hands out callbacks through Guard:
//
//   executor_.PostAfter(delay, alive_.Guard([this] { OnTimer(); }));
//
// Effect: a guarded callback calls `f` while the object lives and does nothing, or calls `otherwise` with the
// same arguments, once it is gone. It does not keep the object alive; `f` may destroy the object.
// Thread: a guarded callback is called on the executor on which the object is destroyed, because the check and
// the call are two steps. It may be moved to and destroyed on any other.
// Lifetime: `otherwise` must not use the object.
class Alive {
 public:
  Alive() = default;
  // A callback holds the address of its object, which therefore stays where it is.
  Alive(const Alive&) = delete;
  Alive& operator=(const Alive&) = delete;

  template <typename F>
  auto Guard(F f) const {
    return Guard(std::move(f), [](auto&&...) {});
  }
  template <typename F, typename G>
  auto Guard(F f, G otherwise) const {
    return [mark = std::weak_ptr<const Mark>(mark_), f = std::move(f),
            otherwise = std::move(otherwise)](auto&&... args) mutable -> void {
      if (mark.expired()) {
        otherwise(std::forward<decltype(args)>(args)...);
      } else {
        f(std::forward<decltype(args)>(args)...);
      }
    };
  }

 private:
  struct Mark {};
  const std::shared_ptr<const Mark> mark_ = std::make_shared<Mark>();
};

}  // namespace poseidon

#endif  // POSEIDON_BASE_ALIVE_H_
