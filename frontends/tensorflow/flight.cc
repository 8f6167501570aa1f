// SPDX-License-Identifier: Apache-2.0
#include "frontends/tensorflow/flight.h"

#include <chrono>
#include <utility>

namespace poseidon::tensorflow {
namespace {

// Nanoseconds of the core's clock.
std::int64_t SteadyNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

bool Flight::Begin(std::uint64_t step, Lent lent, poseidon_push landing, const Push& push, std::string* why) {
  Lent before;  // of a step that ended between its push and its mean
  {
    MutexLock lock(mutex_);
    if (step_ && !landed_) {
      *why = "a gradient of step " + std::to_string(step) + " came before that of step " + std::to_string(*step_) +
             " had landed, expected one step at a time";
      return false;
    }
    step_ = step;
    landed_ = false;
    failure_.clear();
    before = std::exchange(lent_, std::move(lent));
  }
  landing.landed = &Flight::OnLanded;
  landing.landed_user = this;
  // Unlocked: it may land before the push returns.
  auto status = POSEIDON_NEW(poseidon_status);
  if (push(&landing, &status) == POSEIDON_OK) return true;
  *why = status.message;
  MutexLock lock(mutex_);
  step_.reset();
  lent_ = {};
  return false;
}

void Flight::Take(std::uint64_t step, TF_OpKernelContext* context, Done done, Give give) {
  Taker taker{context, std::move(done), std::move(give), SteadyNow()};
  Tensor mean;
  std::string failure;
  {
    MutexLock lock(mutex_);
    if (step_ == step && !landed_) {
      taker_.emplace(std::move(taker));
      return;
    }
    if (step_ == step) {
      step_.reset();
      mean = std::move(lent_.gradient);
      failure = std::move(failure_);
    } else {
      failure = "the mean of step " + std::to_string(step) + " is asked for, which is not under way";
    }
  }
  End(std::move(mean), std::move(failure), std::move(taker));
}

void Flight::OnLanded(void* self, const poseidon_status* status) { static_cast<Flight*>(self)->Land(*status); }

void Flight::Land(const poseidon_status& status) {
  MutexLock lock(mutex_);
  const Tensor u = std::move(lent_.u);
  const Tensor v = std::move(lent_.v);
  const std::string failure = status.code == POSEIDON_OK ? "" : status.message;
  if (!taker_) {
    landed_ = true;
    failure_ = failure;
    return;
  }
  Taker taker = *std::exchange(taker_, std::nullopt);
  clock_->Waited(layer_, *step_, taker.asked, SteadyNow());
  step_.reset();
  Tensor mean = std::move(lent_.gradient);
  lock.Unlock();
  End(std::move(mean), failure, std::move(taker));
}

void Flight::End(Tensor mean, std::string failure, Taker taker) {
  const StatusOfCall status;
  if (failure.empty()) failure = taker.give(taker.context, mean, status);
  if (!status.ok()) {
    Tf().TF_OpKernelContext_Failure(taker.context, status.get());
  } else if (!failure.empty()) {
    Fail(taker.context, failure);
  }
  mean.reset();  // before the ops behind it run: they may use its memory again
  taker.done.Call();
}

}  // namespace poseidon::tensorflow
