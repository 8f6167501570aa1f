// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_TENSORFLOW_MODEL_TABLE_H_
#define POSEIDON_FRONTENDS_TENSORFLOW_MODEL_TABLE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "frontends/tensorflow/flight.h"
#include "frontends/tensorflow/step_clock.h"
#include "poseidon/c/poseidon.h"

namespace poseidon::tensorflow {

// The functions of libposeidon.so that ops call. This library does not link it: TensorFlow opens it among its own symbols,
// and two copies of the core would be two jobs. Each under its own name.
#define POSEIDON_TENSORFLOW_CORE(X) \
  X(begin_step) X(takes) X(push_dense) X(push_factors) X(push_rows) X(get_gathered) X(timed) X(waited) X(now) X(record)
struct Core {
#define POSEIDON_TENSORFLOW_MEMBER(name) decltype(&poseidon_##name) name = nullptr;
  POSEIDON_TENSORFLOW_CORE(POSEIDON_TENSORFLOW_MEMBER)
#undef POSEIDON_TENSORFLOW_MEMBER
};

// A model of the core as ops find it. `handle` is null once the job has been left.
struct Model {
  poseidon_session* session = nullptr;
  poseidon_model* handle = nullptr;
  std::uint32_t number = 0;  // among the session's models
  std::deque<Flight> flights;  // by the core's number of the layer; they stay where they are
  StepClock clock;
};

// The models that Python has made, by their places, which are the ops' attribute `model`. Never destroyed: ops may be
// under way when the process ends.
class ModelTable {
 public:
  static ModelTable& The();

  void SetCore(const Core& core);
  // With `layers` layers; a null handle takes the model out, once no op is in a call of the core with it.
  void Set(std::int64_t place, poseidon_session* session, poseidon_model* handle, std::uint32_t number, std::uint32_t layers);

  // A model that stays in the table meanwhile; false where there is none.
  class Use {
   public:
    explicit Use(std::int64_t place);
    explicit operator bool() const { return model_ != nullptr && model_->handle != nullptr; }
    Model* operator->() const { return model_; }
    const Core& core() const;

   private:
    std::shared_lock<std::shared_mutex> lock_;
    Model* model_ = nullptr;
  };
  // A layer's flight, which outlives the model's handle; null where there is no such layer.
  Flight* FlightOf(std::int64_t place, std::int64_t layer);

 private:
  Model* Find(std::int64_t place);  // with the mutex held

  std::shared_mutex mutex_;
  Core core_;
  std::vector<std::unique_ptr<Model>> models_;
};

}  // namespace poseidon::tensorflow

#endif  // POSEIDON_FRONTENDS_TENSORFLOW_MODEL_TABLE_H_
