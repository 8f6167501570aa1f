// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_C_HANDLES_H_
#define POSEIDON_C_HANDLES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/base/trace.h"
#include "poseidon/c/callbacks.h"
#include "poseidon/c/poseidon.h"
#include "poseidon/c/run_files.h"
#include "poseidon/place/meeting.h"
#include "poseidon/session/session.h"

// Everything a session's callbacks may touch; the session itself goes first, with its threads.
struct poseidon_session {
  explicit poseidon_session(const poseidon_options& options) : log(options.log, options.log_user) {}

  poseidon::c::CallbackLog log;
  std::unique_ptr<poseidon::c::CallbackEngine> own_engine;
  std::unique_ptr<poseidon::c::LateBlasEngine> blas_engine;
  std::unique_ptr<poseidon::TraceRecorder> trace;
  std::vector<std::unique_ptr<poseidon_model>> models;
  std::optional<poseidon_device> device;
  std::set<std::string, std::less<>> named_layers;  // in the options' schemes
  std::unique_ptr<poseidon::c::RunFiles> run;  // of rank 0, where it writes an account of the run

  std::unique_ptr<poseidon::session::Session> session;

  static poseidon::Result<std::unique_ptr<poseidon_session>> Open(const poseidon_options& options);

  poseidon::factors::ProductEngine* engine() const {
    if (own_engine) return own_engine.get();
    return blas_engine.get();
  }
  // This worker as the author; the coordinator puts its name before the reason.
  poseidon::Status OwnAbort(std::string reason) const {
    return poseidon::Status(poseidon::StatusCode::kAborted, std::move(reason), poseidon::StatusScope::kJob,
                  session->rank().value());
  }
};

struct poseidon_meeting {
  std::string token_file;  // empty: a job of one worker needs none
  std::unique_ptr<poseidon::place::Meeting> meeting;  // nullptr: nothing was left open
};

struct poseidon_model {
  poseidon_model(poseidon_session* session, poseidon::session::Model* of) : owner(session), model(of) {}

  poseidon_session* const owner;
  poseidon::session::Model* const model;  // lives in the session
  std::vector<poseidon::wire::Measured::Layer> measured;  // by layer, as poseidon_measured noted it
};

namespace poseidon::c {

inline Status CheckSession(const poseidon_session* session) {
  if (session == nullptr) return InvalidArgument("the session is NULL");
  if (session->session->forked()) {
    return FailedPrecondition("the session is of the process that this one was forked from, expected no call to it here");
  }
  return OkStatus();
}
inline Status CheckModel(const poseidon_model* model) {
  return model != nullptr ? CheckSession(model->owner) : InvalidArgument("the model is NULL");
}
inline Status CheckLayer(const poseidon_model* model, std::uint32_t layer) {
  POSEIDON_RETURN_IF_ERROR(CheckModel(model));
  return model->model->CheckLayer(LayerId(layer));
}

}  // namespace poseidon::c

#endif  // POSEIDON_C_HANDLES_H_
