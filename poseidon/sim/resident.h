// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SIM_RESIDENT_H_
#define POSEIDON_SIM_RESIDENT_H_

#include <optional>
#include <utility>

#include "poseidon/sim/simulation.h"

namespace poseidon::sim {

// For tests: an object that lives on one virtual executor. It is made, called through -> and destroyed as by a task of
// that executor, so that a test can call it directly.
template <typename T>
class Resident {
 public:
  template <typename... Args>
  Resident(Simulation& simulation, const Executor& executor, Args&&... args)
      : simulation_(simulation), executor_(executor) {
    const Visit visit(simulation_, executor_);
    object_.emplace(std::forward<Args>(args)...);
  }
  ~Resident() {
    const Visit visit(simulation_, executor_);
    object_.reset();
  }
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  // Lives until the end of the expression that calls.
  class Call {
   public:
    Call(Simulation& simulation, const Executor& executor, T& object)
        : visit_(simulation, executor), object_(object) {}
    T* operator->() const { return &object_; }

   private:
    const Visit visit_;
    T& object_;
  };
  Call operator->() { return Call(simulation_, executor_, *object_); }
  // For another object that refers to it.
  T& object() { return *object_; }

 private:
  Simulation& simulation_;
  const Executor& executor_;
  std::optional<T> object_;
};

}  // namespace poseidon::sim

#endif  // POSEIDON_SIM_RESIDENT_H_
