// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_C_HANDLES_H_
#define POSEIDON_C_HANDLES_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/base/trace.h"
#include "poseidon/c/callbacks.h"
#include "poseidon/c/poseidon.h"
#include "poseidon/session/session.h"

// Everything a session's callbacks may touch; the session itself goes first, with its threads.
struct poseidon_session {
  explicit poseidon_session(const poseidon_options& options) : log(options.log, options.log_user) {}

  poseidon::c::CallbackLog log;
  std::unique_ptr<poseidon::c::CallbackEngine> own_engine;
  std::unique_ptr<poseidon::c::LateBlasEngine> blas_engine;
  std::unique_ptr<poseidon::TraceRecorder> trace;
  std::unique_ptr<poseidon_model> model;
  std::uint64_t final_plan_step = 0;

  std::mutex mutex;
  std::condition_variable landed;
  std::size_t in_flight = 0;  // pushes whose callback has not returned; guarded by mutex

  std::unique_ptr<poseidon::session::Session> session;

  static poseidon::Result<std::unique_ptr<poseidon_session>> Open(const poseidon_options& options);

  poseidon::sfb::ProductEngine* engine() const {
    if (own_engine) return own_engine.get();
    return blas_engine.get();
  }
  // This worker as the author; the coordinator puts its name before the reason.
  poseidon::Status OwnAbort(std::string reason) const {
    return poseidon::Status(poseidon::StatusCode::kAborted, std::move(reason), poseidon::StatusScope::kJob,
                  session->rank().value());
  }
  void PushBegan() {
    std::lock_guard lock(mutex);
    ++in_flight;
  }
  void PushEnded() {
    std::lock_guard lock(mutex);
    if (--in_flight == 0) landed.notify_all();
  }
};

struct poseidon_model {
  struct Layer {
    poseidon::plan::LayerSpec spec;
    std::optional<std::uint64_t> last_step;  // pushed; guarded by mutex
    poseidon::wire::Measured::Layer measured;
  };

  explicit poseidon_model(poseidon_session* session) : owner(session) {}
  poseidon::session::Session& session() const { return *owner->session; }

  poseidon::Result<poseidon::plan::Scheme> SchemeOf(std::uint32_t layer, std::uint64_t step) const;
  poseidon::Status Push(std::uint32_t layer, std::uint64_t step, const poseidon_view* gradient,
              const poseidon_factors* factors, const poseidon_push* more);
  poseidon::Status CheckLayer(std::uint32_t layer) const {
    if (!committed) return poseidon::FailedPrecondition("the model has not been committed");
    if (layer < layers.size()) return poseidon::OkStatus();
    return poseidon::InvalidArgument("layer " + std::to_string(layer) + " does not exist, the model has " +
                           std::to_string(layers.size()));
  }
  // The newest plan; null before the commit. With mutex held.
  const poseidon::plan::Plan* plan() const {
    if (final_plan) return &*final_plan;
    return provisional ? &*provisional : nullptr;
  }

  poseidon_session* const owner;
  std::vector<Layer> layers;
  std::atomic<bool> committed = false;  // asked by any thread

  mutable std::mutex mutex;
  std::optional<poseidon::plan::Plan> provisional;  // guarded by mutex
  std::optional<poseidon::plan::Plan> final_plan;   // guarded by mutex
};

namespace poseidon::c {

inline Status CheckSession(const poseidon_session* session) {
  return session != nullptr ? OkStatus() : InvalidArgument("the session is NULL");
}
inline Status CheckModel(const poseidon_model* model) {
  return model != nullptr ? OkStatus() : InvalidArgument("the model is NULL");
}
inline Status CheckLayer(const poseidon_model* model, std::uint32_t layer) {
  POSEIDON_RETURN_IF_ERROR(CheckModel(model));
  return model->CheckLayer(layer);
}

}  // namespace poseidon::c

#endif  // POSEIDON_C_HANDLES_H_
