// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_TENSORFLOW_FLIGHT_H_
#define POSEIDON_FRONTENDS_TENSORFLOW_FLIGHT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "frontends/tensorflow/kernel.h"
#include "frontends/tensorflow/step_clock.h"
#include "poseidon/base/mutex.h"
#include "poseidon/c/poseidon.h"

namespace poseidon::tensorflow {

// One layer's way from a push to the op that takes the mean, in this step or the next one. Thread: any. Its owner keeps it
// until the core has called back.
class Flight {
 public:
  // `clock` gets how long ops waited for `layer`, and outlives this.
  Flight(StepClock* clock, std::uint32_t layer) : clock_(clock), layer_(layer) {}

  // The memory lent to the core until the mean has landed in `gradient`, or of a table in the session's memory.
  struct Lent {
    Tensor gradient;
    Tensor u;  // factors, where they are sent, or indices and values of a table's rows
    Tensor v;
  };
  // `push` hands `lent` over to the core, with `landed` and its user in the push, and says how that went.
  using Push = std::function<poseidon_code(poseidon_push* landing, poseidon_status* status)>;
  // False, and a sentence in *why, where the core refuses.
  bool Begin(std::uint64_t step, Lent lent, poseidon_push landing, const Push& push, std::string* why);

  // Sets an op's outputs once the mean has landed in `gradient`; an empty string, or why not.
  using Give = std::function<std::string(TF_OpKernelContext* context, const Tensor& gradient, const StatusOfCall& status)>;
  // Gives the mean of `step` to the op and ends it, now or once it has landed.
  void Take(std::uint64_t step, TF_OpKernelContext* context, Done done, Give give);

 private:
  struct Taker {
    TF_OpKernelContext* context;
    Done done;
    Give give;
    std::int64_t asked = 0;  // when, in nanoseconds
  };

  static void OnLanded(void* self, const poseidon_status* status);
  void Land(const poseidon_status& status);
  static void End(Tensor mean, std::string failure, Taker taker);

  StepClock* const clock_;
  const std::uint32_t layer_;

  Mutex mutex_;
  std::optional<std::uint64_t> step_ POSEIDON_GUARDED_BY(mutex_);  // of what is under way or waits to be taken
  bool landed_ POSEIDON_GUARDED_BY(mutex_) = false;
  std::string failure_ POSEIDON_GUARDED_BY(mutex_);
  Lent lent_ POSEIDON_GUARDED_BY(mutex_);
  std::optional<Taker> taker_ POSEIDON_GUARDED_BY(mutex_);
};

}  // namespace poseidon::tensorflow

#endif  // POSEIDON_FRONTENDS_TENSORFLOW_FLIGHT_H_
