// SPDX-License-Identifier: Apache-2.0
// The step through the C header: models, plans, pushes, waits, measurements.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/c/callback_device.h"
#include "poseidon/c/handles.h"
#include "poseidon/c/options.h"
#include "poseidon/c/poseidon.h"
#include "poseidon/c/structs.h"
#include "poseidon/plan/joining.h"
#include "poseidon/tensor/sum.h"

using namespace poseidon;           // NOLINT(google-build-using-namespace): the C names live outside
using namespace poseidon::c;        // NOLINT(google-build-using-namespace)
using namespace poseidon::session;  // NOLINT(google-build-using-namespace)

namespace {

std::int32_t Takes(const Model& model, std::uint32_t layer, plan::Scheme scheme) {
  if (!plan::TakesFactors(scheme)) return POSEIDON_GRADIENT;
  const bool gathered = !model.layers()[layer].is_table() && model.Gathers(LayerId(layer), scheme);
  return gathered ? POSEIDON_GATHERED : POSEIDON_FACTORS;
}

// Divided, because a product of numbers that come from outside may wrap. No width of a committed layer is 0.
bool AreRows(std::uint64_t elements, std::uint64_t rows, std::uint64_t width) {
  return elements % width == 0 && elements / width == rows;
}

// Takes over the factors that the caller's struct names, checked against the layer and the gradient's memory.
Status TakeFactors(const poseidon_factors* given, const poseidon_model& model, const plan::LayerSpec& layer,
                   const Naming& name, Push* push) {
  POSEIDON_ASSIGN_OR_RETURN(const poseidon_factors taken, Take(given));
  push->factors = Factors{.rows = taken.rows};
  if (taken.rows == 0) return OkStatus();
  if (!layer.factors) return InvalidArgument(name() + " has no factors, expected its gradient whole");
  void* ready[2] = {};
  const auto take = [&](const poseidon_view* of, std::uint64_t width, const char* which,
                        void** ready_of) -> Result<const std::byte*> {
    const auto what = [&] { return "the factor " + std::string(which) + " of " + name(); };
    POSEIDON_ASSIGN_OR_RETURN(const PlacedView factor, TakePlacedView(of, what, model.owner->device));
    if (!AreRows(factor.view.elements, taken.rows, width) || factor.view.dtype != layer.dtype) {
      return InvalidArgument(what() + " has " + std::to_string(factor.view.elements) + " elements of " +
                             std::string(NameOf(factor.view.dtype)) + ", expected " + std::to_string(taken.rows) +
                             "x" + std::to_string(width) + " of " + std::string(NameOf(layer.dtype)));
    }
    // Without a gradient both factors are where the first one is.
    if (push->gradient.memory == nullptr && ready_of == &ready[0]) push->on_device = factor.on_device;
    if (factor.on_device != push->on_device) {
      return InvalidArgument(what() + " and its gradient are one on the host and one on the device");
    }
    *ready_of = factor.ready;
    return static_cast<const std::byte*>(factor.view.memory);
  };
  POSEIDON_ASSIGN_OR_RETURN(push->factors->u, take(taken.u, layer.factors->outputs, "u", &ready[0]));
  POSEIDON_ASSIGN_OR_RETURN(push->factors->v, take(taken.v, layer.factors->inputs, "v", &ready[1]));
  // A push has one event, after which the copies of both factors begin.
  if (ready[0] != ready[1]) {
    return InvalidArgument("the factors of " + name() + " have two ready events, expected one behind both");
  }
  if (ready[0] == nullptr) return OkStatus();
  // The gradient's own may say when the mean may land: dropped, the mean would land before.
  if (push->ready != nullptr && static_cast<const CallbackEvent&>(*push->ready).handle() != ready[0]) {
    return InvalidArgument("the factors of " + name() +
                           " and its gradient have two ready events, expected the same one");
  }
  push->ready = std::make_shared<CallbackEvent>(ready[0]);
  return OkStatus();
}

// The rows that the caller's struct names, checked against the layer.
Status TakeRows(const poseidon_rows* given, const plan::LayerSpec& layer, const std::string& name, Push* push) {
  POSEIDON_ASSIGN_OR_RETURN(const poseidon_rows taken, Take(given));
  if (!layer.is_table()) return InvalidArgument(name + " was not declared as a table, expected its gradient or factors");
  push->factors = Factors{.rows = taken.count};
  if (taken.count == 0) return OkStatus();
  const std::string what = "the values of " + name;
  POSEIDON_ASSIGN_OR_RETURN(const TensorView values, TakeView(taken.values, what));
  if (!AreRows(values.elements, taken.count, layer.factors->inputs) || values.dtype != layer.dtype) {
    return InvalidArgument(what + " have " + std::to_string(values.elements) + " elements of " +
                           std::string(NameOf(values.dtype)) + ", expected " + std::to_string(taken.count) + "x" +
                           std::to_string(layer.factors->inputs) + " of " + std::string(NameOf(layer.dtype)));
  }
  if (taken.indices == nullptr) return InvalidArgument("the indices of " + name + " are NULL");
  if (reinterpret_cast<std::uintptr_t>(taken.indices) % alignof(std::int64_t) != 0) {
    return InvalidArgument("the indices of " + name + " are not aligned to their i64");
  }
  push->factors->u = reinterpret_cast<const std::byte*>(taken.indices);
  push->factors->v = values.memory;
  return OkStatus();
}

// Returns a completion that calls the caller's `landed` when the mean has landed.
Completion Telling(const poseidon_push& more) {
  if (more.landed == nullptr) return {};
  return [tell = more.landed, user = more.landed_user](const Status& status) {
    poseidon_status told = POSEIDON_NEW(poseidon_status);
    Answer(status, &told);
    tell(user, &told);
  };
}

// The test product of the program's device, of a layer that has widths.
Result<std::optional<factors::ProductTest>> TakeProduct(const poseidon_layer& taken, const plan::LayerSpec& spec) {
  if (taken.product_rows == 0) return std::optional<factors::ProductTest>();
  if (!spec.factors) {
    return InvalidArgument("layer '" + spec.name + "' has a test product without outputs and inputs, expected its widths");
  }
  if (!(taken.product_seconds > 0 && std::isfinite(taken.product_seconds))) {
    return InvalidArgument("the test product of layer '" + spec.name + "' took " + std::to_string(taken.product_seconds) +
                           " s, expected a finite time above 0");
  }
  return std::optional(factors::ProductTest{.hash = taken.product_hash,
                                            .seconds = taken.product_seconds,
                                            .flops = spec.factors->product_flops(taken.product_rows)});
}

Result<plan::LayerSpec> TakeLayer(const poseidon_layer& taken) {
  if (taken.name == nullptr) return InvalidArgument("a layer's name is NULL");
  // The cast keeps the lowest byte alone, so the number is bounded as it came.
  const auto dtype = static_cast<DType>(taken.dtype);
  if (taken.dtype <= 0 || taken.dtype > POSEIDON_I64 || !HasSum(dtype)) {
    return InvalidArgument("layer '" + std::string(taken.name) + "' has dtype " + std::to_string(taken.dtype) +
                           ", expected POSEIDON_F32, POSEIDON_F64 or POSEIDON_I64");
  }
  plan::LayerSpec spec{.name = taken.name,
                       .shape = TextOr(taken.shape, ""),
                       .dtype = dtype,
                       .elements = taken.elements,
                       .forward_position = taken.forward_position};
  if (taken.outputs != 0 || taken.inputs != 0) {
    spec.factors =
        plan::FactorShape{taken.outputs, taken.inputs, taken.bias != 0, taken.table != 0, taken.product_rows != 0};
  } else if (taken.table != 0) {
    return InvalidArgument("layer '" + spec.name + "' is a table without outputs and inputs, expected its entries and their width");
  }
  return spec;
}

Status TakeMore(const poseidon_push* more, Push* push) {
  if (more == nullptr) return OkStatus();
  POSEIDON_ASSIGN_OR_RETURN(const poseidon_push extra, Take(more));
  push->absent = extra.absent != 0;
  push->weight = extra.weight;
  push->rows = extra.rows;
  push->in_parts = extra.in_parts != 0;
  push->landed = Telling(extra);
  return OkStatus();
}

Status PushLayer(poseidon_model* model, std::uint32_t id, std::uint64_t step, const poseidon_view* gradient,
                 const poseidon_factors* factors, const poseidon_push* more) {
  POSEIDON_RETURN_IF_ERROR(CheckLayer(model, id));
  const plan::LayerSpec& layer = model->model->layers()[id];
  const auto name = [&layer] { return "layer '" + layer.name + "'"; };
  if (layer.is_table()) return FailedPrecondition(name() + " was declared as a table, expected poseidon_push_rows");
  Push push{{.step = Step(step)}};
  // Without one Model::Push refuses what does not gather.
  if (gradient != nullptr || !layer.is_multiplied_by_device()) {
    POSEIDON_ASSIGN_OR_RETURN(
        const PlacedView placed,
        TakePlacedView(gradient, [&name] { return "the gradient of " + name(); }, model->owner->device));
    push.gradient = placed.view;
    push.on_device = placed.on_device;
    if (placed.ready != nullptr) push.ready = std::make_shared<CallbackEvent>(placed.ready);
  }
  if (factors != nullptr) POSEIDON_RETURN_IF_ERROR(TakeFactors(factors, *model, layer, name, &push));
  POSEIDON_RETURN_IF_ERROR(TakeMore(more, &push));
  return model->model->Push(LayerId(id), std::move(push));
}

}  // namespace

poseidon_code poseidon_model_new(poseidon_session* session, poseidon_model** model,
                                 poseidon_status* status) {
  if (model != nullptr) *model = nullptr;
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    if (model == nullptr) return InvalidArgument("the place for the model is NULL");
    POSEIDON_ASSIGN_OR_RETURN(Model* const made, session->session->NewModel());
    session->models.push_back(std::make_unique<poseidon_model>(session, made));
    *model = session->models.back().get();
    return OkStatus();
  });
}

poseidon_code poseidon_join_small(const poseidon_session* session, const poseidon_layer* const* layers,
                                  uint32_t count, uint32_t* first, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckSession(session));
    if (count != 0 && (layers == nullptr || first == nullptr)) {
      return InvalidArgument("the layers or the place for their firsts are NULL");
    }
    std::vector<plan::LayerSpec> specs;
    std::uint64_t most_bytes = plan::kMostJoinedBytes;
    for (uint32_t i = 0; i < count; ++i) {
      POSEIDON_ASSIGN_OR_RETURN(const poseidon_layer taken, Take(layers[i]));
      POSEIDON_ASSIGN_OR_RETURN(plan::LayerSpec spec, TakeLayer(taken));
      specs.push_back(std::move(spec));
      if (taken.on_device != 0) most_bytes = plan::kMostJoinedOnDeviceBytes;
    }
    POSEIDON_RETURN_IF_ERROR(plan::Validate(specs));
    const std::vector<std::size_t> firsts = plan::JoinSmall(specs, session->named_layers, most_bytes);
    std::copy(firsts.begin(), firsts.end(), first);
    return OkStatus();
  });
}

poseidon_code poseidon_declare(poseidon_model* model, const poseidon_layer* layer, uint32_t* id,
                               poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    POSEIDON_ASSIGN_OR_RETURN(const poseidon_layer taken, Take(layer));
    POSEIDON_ASSIGN_OR_RETURN(plan::LayerSpec spec, TakeLayer(taken));
    POSEIDON_ASSIGN_OR_RETURN(const std::optional<factors::ProductTest> product, TakeProduct(taken, spec));
    POSEIDON_ASSIGN_OR_RETURN(const LayerId added, model->model->Declare(std::move(spec), product));
    model->measured.emplace_back();
    if (id != nullptr) *id = added.value();
    return OkStatus();
  });
}

poseidon_code poseidon_commit(poseidon_model* model, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    const std::vector<plan::LayerSpec>& layers = model->model->layers();
    const bool factors = std::any_of(layers.begin(), layers.end(),
                                     [](const plan::LayerSpec& layer) { return layer.factors && !layer.is_table(); });
    // Not at poseidon_open: a BLAS may set the thread count of the whole process, which only products justify.
    // Until here the program may load the PyTorch whose BLAS multiplies.
    if (factors && model->owner->blas_engine) model->owner->blas_engine->Start();
    return model->model->Commit().status();
  });
}

poseidon_code poseidon_get_plan(const poseidon_model* model, poseidon_plan* plan,
                                poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    const std::optional<plan::Plan> newest = model->model->NewestPlan();
    if (!newest) return FailedPrecondition("the model has not been committed");
    const plan::Plan& known = *newest;
    poseidon_plan given{};
    given.switch_step = known.switch_step.value();
    given.final_plan = known.epoch.value() > 0 ? 1 : 0;
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
    // CheckLayer has refused a model that is not committed, so there is a plan.
    const plan::Plan newest = *model->model->NewestPlan();
    const plan::LayerPlan& known = newest.layers[layer];
    poseidon_layer_plan given{};
    given.scheme = static_cast<std::int32_t>(known.scheme);
    given.forced = known.forced ? 1 : 0;
    given.bytes_sent = known.bytes_sent;
    given.bytes_received = known.bytes_received;
    given.transfer_seconds = known.transfer_seconds;
    given.rebuild_seconds = known.rebuild_seconds;
    CopyText(known.reason, given.reason, sizeof given.reason);
    CopyText(plan::NameOf(known.scheme), given.scheme_name, sizeof given.scheme_name);
    given.takes = Takes(*model->model, layer, known.scheme);
    return Give("poseidon_layer_plan", given, plan);
  });
}

size_t poseidon_plan_text(const poseidon_model* model, char* buffer, size_t capacity) {
  // Whatever fails below, the buffer holds a text.
  CopyText("", buffer, capacity);
  if (model == nullptr) return 0;
  std::string text;
  Answering(nullptr, [&] {
    const std::optional<plan::Plan> newest = model->model->NewestPlan();
    for (std::size_t i = 0; newest && i < newest->layers.size(); ++i) {
      text += Escaped(model->model->layers()[i].name) + "=" +
              std::string(plan::NameOf(newest->layers[i].scheme)) + "\n";
    }
    return OkStatus();
  });
  CopyText(text, buffer, capacity);
  return text.size();
}

poseidon_code poseidon_get_memory(const poseidon_model* model, uint32_t layer, poseidon_memory* memory,
                                  poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckLayer(model, layer));
    if (!model->model->committed()) return FailedPrecondition("the model has not been committed");
    poseidon_memory given{};
    if (const std::optional<sync::OwnMemory> own = model->model->MemoryOf(LayerId(layer))) {
      given.brought = own->brought.data();
      given.mean = own->mean.data();
      given.bytes = own->brought.size();
    }
    return Give("poseidon_memory", given, memory);
  });
}

poseidon_code poseidon_begin_step(poseidon_model* model, uint64_t step, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    return model->model->BeginStep(Step(step)).status();
  });
}

poseidon_code poseidon_takes(const poseidon_model* model, uint32_t layer, uint64_t step, int32_t* takes,
                             poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    if (takes == nullptr) return InvalidArgument("the place for what the layer takes is NULL");
    POSEIDON_ASSIGN_OR_RETURN(const plan::Scheme known, model->model->SchemeOf(LayerId(layer), Step(step)));
    *takes = Takes(*model->model, layer, known);
    return OkStatus();
  });
}

poseidon_code poseidon_push_dense(poseidon_model* model, uint32_t layer, uint64_t step,
                                  const poseidon_view* gradient, const poseidon_push* more,
                                  poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    return PushLayer(model, layer, step, gradient, nullptr, more);
  });
}

poseidon_code poseidon_arrived(poseidon_model* model, uint32_t layer, uint64_t elements, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckLayer(model, layer));
    return model->model->Arrived(LayerId(layer), elements);
  });
}

poseidon_code poseidon_push_factors(poseidon_model* model, uint32_t layer, uint64_t step,
                                    const poseidon_factors* factors, const poseidon_view* gradient,
                                    const poseidon_push* more, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    if (factors == nullptr) return InvalidArgument("the poseidon_factors is NULL");
    return PushLayer(model, layer, step, gradient, factors, more);
  });
}

poseidon_code poseidon_push_rows(poseidon_model* model, uint32_t layer, uint64_t step, const poseidon_rows* rows,
                                 const poseidon_push* more, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckLayer(model, layer));
    const plan::LayerSpec& spec = model->model->layers()[layer];
    Push push{{.step = Step(step)}};
    POSEIDON_RETURN_IF_ERROR(TakeRows(rows, spec, "layer '" + spec.name + "'", &push));
    POSEIDON_RETURN_IF_ERROR(TakeMore(more, &push));
    return model->model->Push(LayerId(layer), std::move(push));
  });
}

poseidon_code poseidon_get_gathered(const poseidon_model* model, uint32_t layer, poseidon_gathered* gathered,
                                    poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckLayer(model, layer));
    const plan::LayerSpec& spec = model->model->layers()[layer];
    const std::string name = "layer '" + spec.name + "'";
    if (!spec.is_table() && !spec.is_multiplied_by_device()) {
      return InvalidArgument(name + " is no table, and no device makes its product");
    }
    if (!spec.is_table() && !model->model->HasGathered(LayerId(layer))) {
      return FailedPrecondition("the last push of " + name + " was not gathered, expected it where the layer takes that");
    }
    // Until then the compute executor writes the memory that is handed out below (GatheredRows::Take).
    if (!model->model->Landed(LayerId(layer))) return FailedPrecondition("the rows of " + name + " have not landed");
    const factors::GatheredRows& known = model->model->Gathered(LayerId(layer));
    poseidon_gathered given{};
    if (spec.is_table()) given.indices = known.indices();
    else given.u = known.u();
    given.values = known.v();
    given.count = known.rows();
    return Give("poseidon_gathered", given, gathered);
  });
}

poseidon_code poseidon_wait(poseidon_model* model, uint32_t layer, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckLayer(model, layer));
    return model->model->Wait(LayerId(layer));
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
    *landed = model->model->WaitAny(ids).value();
    return OkStatus();
  });
}

int32_t poseidon_landed(const poseidon_model* model, uint32_t layer) {
  // poseidon_wait would not block here: it would fail.
  if (!CheckLayer(model, layer).ok()) return 1;
  return model->model->Landed(LayerId(layer)) ? 1 : 0;
}

poseidon_code poseidon_timed(poseidon_model* model, uint32_t layer, uint64_t step, int32_t pass,
                             int64_t begin_nanoseconds, int64_t end_nanoseconds, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckLayer(model, layer));
    if (pass != POSEIDON_FORWARD && pass != POSEIDON_BACKWARD) {
      return InvalidArgument("a pass is " + std::to_string(pass) + ", expected POSEIDON_FORWARD or POSEIDON_BACKWARD");
    }
    if (end_nanoseconds < begin_nanoseconds) {
      return InvalidArgument("a pass of layer '" + model->model->layers()[layer].name + "' ends " +
                             std::to_string(begin_nanoseconds - end_nanoseconds) + " ns before it begins");
    }
    model->model->Timed(LayerId(layer), pass == POSEIDON_FORWARD ? Pass::kForward : Pass::kBackward, Step(step),
                        TimePoint{Duration(begin_nanoseconds)}, TimePoint{Duration(end_nanoseconds)});
    return OkStatus();
  });
}

poseidon_code poseidon_waited(poseidon_model* model, int64_t nanoseconds, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    if (nanoseconds < 0) {
      return InvalidArgument("an engine waited " + std::to_string(nanoseconds) + " ns, expected 0 or more");
    }
    model->model->Waited(Duration(nanoseconds));
    return OkStatus();
  });
}

poseidon_code poseidon_measured(poseidon_model* model, uint32_t layer,
                                const poseidon_measurement* measurement, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckLayer(model, layer));
    POSEIDON_ASSIGN_OR_RETURN(const poseidon_measurement taken, Take(measurement));
    if (!(taken.forward_seconds >= 0 && taken.backward_seconds >= 0 &&
          std::isfinite(taken.forward_seconds) && std::isfinite(taken.backward_seconds))) {
      return InvalidArgument("layer '" + model->model->layers()[layer].name +
                             "' was measured to take " + std::to_string(taken.forward_seconds) +
                             " and " + std::to_string(taken.backward_seconds) +
                             " s, expected finite times from 0");
    }
    // A sum with +0 makes 0 of -0, which is no quantity on the wire.
    model->measured[layer] = {taken.forward_seconds + 0.0, taken.backward_seconds + 0.0, taken.rows};
    return OkStatus();
  });
}

poseidon_code poseidon_report(poseidon_model* model, poseidon_status* status) {
  return Answering(status, [&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckModel(model));
    if (!model->model->committed()) return FailedPrecondition("the model has not been committed");
    // Report has no answer, but the job's failure is what every call returns from then on (poseidon.h).
    POSEIDON_RETURN_IF_ERROR(model->owner->session->failure());
    model->model->Report(model->measured);
    return OkStatus();
  });
}
