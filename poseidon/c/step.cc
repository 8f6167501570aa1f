// SPDX-License-Identifier: Apache-2.0
// The step through the C header: models, plans, pushes, waits, measurements.
#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/c/handles.h"
#include "poseidon/c/options.h"
#include "poseidon/c/poseidon.h"
#include "poseidon/c/structs.h"

using namespace poseidon;           // NOLINT(google-build-using-namespace): the C names live outside
using namespace poseidon::c;        // NOLINT(google-build-using-namespace)
using namespace poseidon::session;  // NOLINT(google-build-using-namespace)

Result<plan::Scheme> poseidon_model::SchemeOf(std::uint32_t layer, std::uint64_t step) const {
  POSEIDON_RETURN_IF_ERROR(CheckLayer(layer));
  std::lock_guard lock(mutex);
  if (!final_plan && step >= owner->final_plan_step) {
    return FailedPrecondition("step " + std::to_string(step) +
                              " follows the final plan, which poseidon_begin_step has to bring");
  }
  const bool follows_final = final_plan && step >= final_plan->switch_step.value();
  return (follows_final ? *final_plan : *provisional).layers[layer].scheme;
}

// A push out of turn is refused here, before it can disturb the one under way.
Status poseidon_model::Push(std::uint32_t id, std::uint64_t step, const poseidon_view* gradient,
                            const poseidon_factors* factors, const poseidon_push* more) {
  POSEIDON_RETURN_IF_ERROR(session().failure());
  POSEIDON_ASSIGN_OR_RETURN(const plan::Scheme scheme, SchemeOf(id, step));
  Layer& layer = layers[id];
  const plan::LayerSpec& spec = layer.spec;
  const std::string name = "layer '" + spec.name + "'";
  const bool as_factors = factors != nullptr;
  if (as_factors != (scheme == plan::Scheme::kFactorBroadcast)) {
    return FailedPrecondition(name + " was pushed " + (as_factors ? "as factors" : "dense") +
                              ", but the plan's scheme for step " + std::to_string(step) + " is " +
                              std::string(plan::NameOf(scheme)));
  }
  POSEIDON_ASSIGN_OR_RETURN(const TensorView view, TakeView(gradient, "the gradient of " + name));
  if (view.elements != spec.elements || view.dtype != spec.dtype) {
    return InvalidArgument("the gradient of " + name + " has " + std::to_string(view.elements) +
                           " elements of " + std::string(NameOf(view.dtype)) + ", expected " +
                           std::to_string(spec.elements) + " of " +
                           std::string(NameOf(spec.dtype)));
  }
  poseidon_push extra{};
  if (more != nullptr) {
    POSEIDON_ASSIGN_OR_RETURN(extra, Take(more));
  }
  Factors rows;
  if (as_factors) {
    if (extra.absent != 0 || extra.weight != 0) {
      return InvalidArgument("factors of " + name +
                             " were pushed absent or weighted, expected as many rows as there are");
    }
    POSEIDON_ASSIGN_OR_RETURN(const poseidon_factors taken, Take(factors));
    rows.rows = taken.rows;
    const auto take_factor = [&](const poseidon_view* of, std::uint64_t width,
                                 const char* which) -> Result<const std::byte*> {
      if (taken.rows == 0) return static_cast<const std::byte*>(nullptr);
      POSEIDON_ASSIGN_OR_RETURN(const TensorView factor,
                                TakeView(of, "the factor " + std::string(which) + " of " + name));
      if (factor.elements != taken.rows * width || factor.dtype != spec.dtype) {
        return InvalidArgument("the factor " + std::string(which) + " of " + name + " has " +
                               std::to_string(factor.elements) + " elements of " +
                               std::string(NameOf(factor.dtype)) + ", expected " +
                               std::to_string(taken.rows) + "x" + std::to_string(width) + " of " +
                               std::string(NameOf(spec.dtype)));
      }
      return static_cast<const std::byte*>(factor.memory);
    };
    POSEIDON_ASSIGN_OR_RETURN(rows.u, take_factor(taken.u, spec.factors->outputs, "u"));
    POSEIDON_ASSIGN_OR_RETURN(rows.v, take_factor(taken.v, spec.factors->inputs, "v"));
  }

  std::lock_guard lock(mutex);
  if (layer.last_step && step <= *layer.last_step) {
    return FailedPrecondition(name + " was pushed for step " + std::to_string(step) +
                              " after step " + std::to_string(*layer.last_step));
  }
  if (!session().Landed(LayerId(id))) {
    return FailedPrecondition(name + " was pushed for step " + std::to_string(step) +
                              " before its step " + std::to_string(*layer.last_step) +
                              " had landed");
  }
  layer.last_step = step;
  owner->PushBegan();
  Completion landed = [handle = owner, tell = extra.landed,
                       user = extra.landed_user](const Status& status) {
    if (tell != nullptr) {
      poseidon_status told{};
      told.struct_size = sizeof told;
      Answer(status, &told);
      tell(user, &told);
    }
    handle->PushEnded();
  };
  if (as_factors) {
    session().PushFactors({.layer = LayerId(id),
                           .step = Step(step),
                           .factors = rows,
                           .gradient = view,
                           .landed = std::move(landed)});
  } else {
    session().Push({.layer = LayerId(id),
                    .step = Step(step),
                    .gradient = view,
                    .absent = extra.absent != 0,
                    .weight = extra.weight,
                    .landed = std::move(landed)});
  }
  return OkStatus();
}

poseidon_code poseidon_model_new(poseidon_session* session, poseidon_model** model,
                                 poseidon_status* status) {
  if (model != nullptr) *model = nullptr;
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    if (model == nullptr) return InvalidArgument("the place for the model is NULL");
    if (session->model) return Unimplemented("a session holds one model, expected no second one");
    session->model = std::make_unique<poseidon_model>(session);
    *model = session->model.get();
    return OkStatus();
  });
}

poseidon_code poseidon_declare(poseidon_model* model, const poseidon_layer* layer, uint32_t* id,
                               poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    POSEIDON_ASSIGN_OR_RETURN(const poseidon_layer taken, Take(layer));
    if (taken.name == nullptr) return InvalidArgument("a layer's name is NULL");
    const std::string name = "layer '" + std::string(taken.name) + "'";
    if (model->committed) {
      return FailedPrecondition(name + " was declared after the model was committed");
    }
    const auto dtype = static_cast<DType>(taken.dtype);
    if (taken.dtype <= 0 || taken.dtype > POSEIDON_I64 || !HasSum(dtype)) {
      return InvalidArgument(name + " has dtype " + std::to_string(taken.dtype) +
                             ", expected POSEIDON_F32, POSEIDON_F64 or POSEIDON_I64");
    }
    poseidon_model::Layer added;
    added.spec.name = taken.name;
    added.spec.shape = TextOr(taken.shape, "");
    added.spec.dtype = dtype;
    added.spec.elements = taken.elements;
    added.spec.forward_position = taken.forward_position;
    if (taken.outputs != 0 || taken.inputs != 0) {
      added.spec.factors = plan::FactorShape{taken.outputs, taken.inputs, taken.bias != 0};
    }
    std::vector<plan::LayerSpec> all;
    for (const poseidon_model::Layer& known : model->layers) all.push_back(known.spec);
    all.push_back(added.spec);
    POSEIDON_RETURN_IF_ERROR(plan::Validate(all));
    model->layers.push_back(std::move(added));
    if (id != nullptr) *id = static_cast<std::uint32_t>(model->layers.size() - 1);
    return OkStatus();
  });
}

poseidon_code poseidon_commit(poseidon_model* model, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    if (model->committed) return FailedPrecondition("the model was committed before");
    if (model->layers.empty()) return FailedPrecondition("a model without layers was committed");
    std::vector<plan::LayerSpec> specs;
    bool factors = false;
    for (const poseidon_model::Layer& layer : model->layers) {
      specs.push_back(layer.spec);
      factors = factors || layer.spec.factors.has_value();
    }
    if (factors && model->owner->blas_engine) model->owner->blas_engine->Start();
    POSEIDON_ASSIGN_OR_RETURN(plan::Plan plan, model->session().Commit(specs));
    std::lock_guard lock(model->mutex);
    model->provisional = std::move(plan);
    model->committed = true;
    return OkStatus();
  });
}

poseidon_code poseidon_get_plan(const poseidon_model* model, poseidon_plan* plan,
                                poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    std::lock_guard lock(model->mutex);
    if (model->plan() == nullptr) return FailedPrecondition("the model has not been committed");
    const plan::Plan& known = *model->plan();
    poseidon_plan given{};
    given.switch_step = known.switch_step.value();
    given.final_plan = model->final_plan ? 1 : 0;
    given.policy = static_cast<std::int32_t>(known.policy);
    given.layers = static_cast<std::uint32_t>(known.layers.size());
    given.step_seconds = known.step_seconds;
    given.compute_seconds = known.compute_seconds;
    given.single_worker_seconds = known.single_worker_seconds;
    given.speedup = known.speedup;
    given.wfbp_seconds = known.wfbp_seconds;
    given.dense_step_seconds = known.dense_step_seconds;
    given.dense_bytes_sent = known.dense_bytes_sent;
    return Give("poseidon_plan", given, plan);
  });
}

poseidon_code poseidon_get_layer_plan(const poseidon_model* model, uint32_t layer,
                                      poseidon_layer_plan* plan, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckLayer(model, layer));
    std::lock_guard lock(model->mutex);
    const plan::LayerPlan& known = model->plan()->layers[layer];
    poseidon_layer_plan given{};
    given.scheme = static_cast<std::int32_t>(known.scheme);
    given.forced = known.forced ? 1 : 0;
    given.bytes_sent = known.bytes_sent;
    given.bytes_received = known.bytes_received;
    given.transfer_seconds = known.transfer_seconds;
    given.rebuild_seconds = known.rebuild_seconds;
    CopyText(known.reason, given.reason, sizeof given.reason);
    return Give("poseidon_layer_plan", given, plan);
  });
}

size_t poseidon_plan_text(const poseidon_model* model, char* buffer, size_t capacity) {
  CopyText("", buffer, capacity);
  if (model == nullptr) return 0;
  std::string text;
  Answering(nullptr, [&] {
    std::lock_guard lock(model->mutex);
    if (model->plan() == nullptr) return OkStatus();
    for (std::size_t i = 0; i < model->layers.size(); ++i) {
      text += Escaped(model->layers[i].spec.name) + "=" +
              std::string(plan::NameOf(model->plan()->layers[i].scheme)) + "\n";
    }
    return OkStatus();
  });
  CopyText(text, buffer, capacity);
  return text.size();
}

poseidon_code poseidon_begin_step(poseidon_model* model, uint64_t step, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    POSEIDON_ASSIGN_OR_RETURN(const plan::Plan* plan, model->session().BeginStep(Step(step)));
    std::lock_guard lock(model->mutex);
    if (!model->final_plan && model->session().plan_is_final()) model->final_plan = *plan;
    return OkStatus();
  });
}

poseidon_code poseidon_scheme_of(const poseidon_model* model, uint32_t layer, uint64_t step,
                                 int32_t* scheme, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    if (scheme == nullptr) return InvalidArgument("the place for the scheme is NULL");
    POSEIDON_ASSIGN_OR_RETURN(const plan::Scheme known, model->SchemeOf(layer, step));
    *scheme = static_cast<std::int32_t>(known);
    return OkStatus();
  });
}

poseidon_code poseidon_push_dense(poseidon_model* model, uint32_t layer, uint64_t step,
                                  const poseidon_view* gradient, const poseidon_push* more,
                                  poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    return model->Push(layer, step, gradient, nullptr, more);
  });
}

poseidon_code poseidon_push_factors(poseidon_model* model, uint32_t layer, uint64_t step,
                                    const poseidon_factors* factors, const poseidon_view* gradient,
                                    const poseidon_push* more, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    if (factors == nullptr) return InvalidArgument("the poseidon_factors is NULL");
    return model->Push(layer, step, gradient, factors, more);
  });
}

poseidon_code poseidon_wait(poseidon_model* model, uint32_t layer, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckLayer(model, layer));
    return model->session().Wait(LayerId(layer));
  });
}

poseidon_code poseidon_wait_any(poseidon_model* model, const uint32_t* layers, uint32_t count,
                                uint32_t* landed, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    if (layers == nullptr || count == 0 || landed == nullptr) {
      return InvalidArgument("poseidon_wait_any was given no layer or no place for the answer");
    }
    std::vector<LayerId> ids;
    ids.reserve(count);
    for (const std::uint32_t layer : std::span(layers, count)) {
      POSEIDON_RETURN_IF_ERROR(CheckLayer(model, layer));
      ids.emplace_back(layer);
    }
    *landed = model->session().WaitAny(ids).value();
    return OkStatus();
  });
}

int32_t poseidon_landed(const poseidon_model* model, uint32_t layer) {
  if (!CheckLayer(model, layer).ok()) return 1;
  return model->session().Landed(LayerId(layer)) ? 1 : 0;
}

poseidon_code poseidon_measured(poseidon_model* model, uint32_t layer,
                                const poseidon_measurement* measurement, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckLayer(model, layer));
    POSEIDON_ASSIGN_OR_RETURN(const poseidon_measurement taken, Take(measurement));
    if (!(taken.forward_seconds >= 0 && taken.backward_seconds >= 0 &&
          std::isfinite(taken.forward_seconds) && std::isfinite(taken.backward_seconds))) {
      return InvalidArgument("layer '" + model->layers[layer].spec.name +
                             "' was measured to take " + std::to_string(taken.forward_seconds) +
                             " and " + std::to_string(taken.backward_seconds) +
                             " s, expected finite times from 0");
    }
    // A sum with +0 makes 0 of -0, which is no quantity on the wire.
    model->layers[layer].measured = {taken.forward_seconds + 0.0, taken.backward_seconds + 0.0, taken.rows};
    return OkStatus();
  });
}

poseidon_code poseidon_report(poseidon_model* model, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    if (!model->committed) return FailedPrecondition("the model has not been committed");
    POSEIDON_RETURN_IF_ERROR(model->session().failure());
    std::vector<wire::Measured::Layer> measured;
    for (const poseidon_model::Layer& layer : model->layers) measured.push_back(layer.measured);
    model->session().Report(measured);
    return OkStatus();
  });
}
