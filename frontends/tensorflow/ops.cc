// SPDX-License-Identifier: Apache-2.0
// The ops. TensorFlow runs them when their inputs are there, on threads of its pool, which they never block: what may wait is
// asynchronous.
//
//   PoseidonBegin(step: int64) -> begun: int64                 before the pushes of a step
//   PoseidonTakesFactors(begun) -> factors: bool               or the gradient, in this step
//   PoseidonPush(gradient: T, begun, weight, rows) -> lent: T, pushed: int64
//   PoseidonPushFactors(u: T, v: T, begun, weight) -> lent: T, pushed: int64
//   PoseidonPushRows(indices: int64, values: T, begun, weight) -> pushed: int64
//   PoseidonMean(pushed: int64) -> mean: T                     ends when the mean has landed
//   PoseidonRows(pushed: int64) -> indices: int64, values: T   the same of a table
//
// `begun` and `pushed` are the step. A push returns at once; the mean lands in `lent`, which nobody else reads: the memory of
// the gradient where TensorFlow can give that on. Of a table it lands in the session's memory, from where it is copied.
// PoseidonMean and PoseidonRows run after the push of their step, or in the next step.
//
// Attributes: model, its place in the table that Python fills (poseidon_tensorflow_set_model), layer, the core's number, and
// width, how many numbers a row of a table has.
// No op is stateful: TensorFlow chains stateful ops in the order of the program, which would undo the overlap. So their
// attributes differ (identical ops are merged), and the step, which is never constant, is an input.
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "frontends/tensorflow/kernel.h"
#include "frontends/tensorflow/model_table.h"
#include "poseidon/base/mutex.h"

namespace poseidon::tensorflow {
namespace {

constexpr const char* kLeft = "the job has been left, expected no training after it";

// Which layer of which model an op is for; of PoseidonBegin, whether what it begins is timed; of PoseidonRows, the width.
struct Place {
  std::int64_t model = 0;
  std::int64_t layer = 0;
  std::int64_t timed = 0;
  std::int64_t width = 0;
  std::uint32_t number() const { return static_cast<std::uint32_t>(layer); }
};

void* MakePlace(TF_OpKernelConstruction* construction) {
  auto place = std::make_unique<Place>();
  const StatusOfCall status;
  for (const auto& [name, value] :
       {std::pair{"model", &place->model}, std::pair{"layer", &place->layer}, std::pair{"timed", &place->timed},
        std::pair{"width", &place->width}}) {
    if (status.ok()) Tf().TF_OpKernelConstruction_GetAttrInt64(construction, name, value, status.get());
  }
  if (!status.ok()) Tf().TF_OpKernelConstruction_Failure(construction, status.get());
  return place.release();
}
void DeletePlace(void* place) { delete static_cast<Place*>(place); }

// Ends an op: with what TensorFlow said, or a sentence of ours, where it has failed.
void End(TF_OpKernelContext* context, Done done, const StatusOfCall& status, const std::string& failure) {
  if (!status.ok()) {
    Tf().TF_OpKernelContext_Failure(context, status.get());
  } else if (!failure.empty()) {
    Fail(context, failure);
  }
  done.Call();
}

// Allocates output `number`; in the memory of input `given` where that is not -1 and nobody else reads it. *forwarded says
// whether it is so.
Tensor Allocate(TF_OpKernelContext* context, int number, int given, const std::vector<std::int64_t>& shape, bool* forwarded,
                const StatusOfCall& status) {
  int from = -1;
  TF_Tensor* const output = Tf().TF_ForwardInputOrAllocateOutput(context, &given, given < 0 ? 0 : 1, number, shape.data(),
                                                                 static_cast<int>(shape.size()), &from, status.get());
  *forwarded = from >= 0;
  return Tensor(status.ok() ? output : nullptr);
}

void SetNumber(TF_OpKernelContext* context, int number, std::int64_t value, const StatusOfCall& status) {
  bool forwarded = false;
  const Tensor output = Allocate(context, number, -1, {}, &forwarded, status);
  if (output != nullptr) *static_cast<std::int64_t*>(Tf().TF_TensorData(output.get())) = value;
}

// ---- PoseidonBegin

// The thread on which steps begin: one may block until everybody has a new plan.
class Beginner {
 public:
  static Beginner& The() {
    static Beginner* const one = new Beginner;  // never destroyed: its thread waits for ever
    return *one;
  }
  void Do(std::function<void()> task) {
    {
      MutexLock lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    there_.NotifyOne();
  }

 private:
  Beginner() {
    std::thread([this] { Run(); }).detach();
  }
  [[noreturn]] void Run() {
    while (true) {
      MutexLock lock(mutex_);
      while (tasks_.empty()) there_.Wait(lock);
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.Unlock();
      task();
    }
  }

  Mutex mutex_;
  ConditionVariable there_;
  std::deque<std::function<void()>> tasks_ POSEIDON_GUARDED_BY(mutex_);
};

// Tells the core what the step before took, and begins this one; an empty string, or why not.
std::string BeginStep(const Place& place, std::uint64_t step) {
  const ModelTable::Use model(place.model);
  if (!model) return kLeft;
  const StepClock::Ended ended = model->clock.End();
  for (const StepClock::Pass& pass : ended.passes) {
    model.core().timed(model->handle, pass.layer, ended.step, pass.forward ? POSEIDON_FORWARD : POSEIDON_BACKWARD,
                       place.timed != 0 ? pass.begin : 0, place.timed != 0 ? pass.end : 0, nullptr);
  }
  if (ended.waited > 0) model.core().waited(model->handle, ended.waited, nullptr);
  auto status = POSEIDON_NEW(poseidon_status);
  if (model.core().begin_step(model->handle, step, &status) != POSEIDON_OK) return status.message;
  model->clock.Begin(step, model.core().now(model->session));
  return "";
}

void Begin(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
  const Place place = *static_cast<Place*>(kernel);
  Beginner::The().Do([place, context, done = Done(callback)] {
    const StatusOfCall status;
    const std::int64_t step = NumberOf(context, 0, status);
    const std::string failure = status.ok() ? BeginStep(place, static_cast<std::uint64_t>(step)) : "";
    if (failure.empty() && status.ok()) SetNumber(context, 0, step, status);
    End(context, done, status, failure);
  });
}

// ---- PoseidonTakesFactors

void TakesFactors(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
  const Place place = *static_cast<Place*>(kernel);
  const StatusOfCall status;
  const std::int64_t step = NumberOf(context, 0, status);
  bool forwarded = false;
  const Tensor factors = status.ok() ? Allocate(context, 0, -1, {}, &forwarded, status) : nullptr;
  std::string failure;
  if (factors != nullptr) {
    const ModelTable::Use model(place.model);
    std::int32_t takes = POSEIDON_GRADIENT;
    auto told = POSEIDON_NEW(poseidon_status);
    if (!model) {
      failure = kLeft;
    } else if (model.core().takes(model->handle, place.number(), static_cast<std::uint64_t>(step), &takes, &told) !=
               POSEIDON_OK) {
      failure = told.message;
    }
    *static_cast<bool*>(Tf().TF_TensorData(factors.get())) = takes == POSEIDON_FACTORS;
  }
  End(context, Done(callback), status, failure);
}

// ---- PoseidonPush, PoseidonPushFactors, PoseidonPushRows

std::vector<std::int64_t> ShapeOf(const TF_Tensor* tensor) {
  std::vector<std::int64_t> shape;
  for (int i = 0; i < Tf().TF_NumDims(tensor); ++i) shape.push_back(Tf().TF_Dim(tensor, i));
  return shape;
}

poseidon_view ViewOf(const TF_Tensor* tensor) {
  const bool wide = Tf().TF_TensorType(tensor) == TF_DOUBLE;
  auto view = POSEIDON_NEW(poseidon_view);
  view.memory = Tf().TF_TensorData(tensor);
  view.elements = Tf().TF_TensorByteSize(tensor) / (wide ? sizeof(double) : sizeof(float));
  view.dtype = wide ? POSEIDON_F64 : POSEIDON_F32;
  return view;
}

// The gradient's own memory where nobody else reads it, else a copy. A gradient that we hold is never given.
Tensor LentFor(TF_OpKernelContext* context, const StatusOfCall& status) {
  Tensor gradient = InputOf(context, 0, status);
  if (gradient == nullptr) return nullptr;
  const std::vector<std::int64_t> shape = ShapeOf(gradient.get());
  gradient.reset();
  bool forwarded = false;
  Tensor lent = Allocate(context, 0, 0, shape, &forwarded, status);
  if (lent == nullptr || forwarded) return lent;
  gradient = InputOf(context, 0, status);
  if (gradient == nullptr) return nullptr;
  std::memcpy(Tf().TF_TensorData(lent.get()), Tf().TF_TensorData(gradient.get()), Tf().TF_TensorByteSize(gradient.get()));
  return lent;
}

// What every function of the core that pushes is given, beside what it pushes.
struct PushCall {
  const Core& core;
  poseidon_model* model;
  std::uint32_t layer;
  std::uint64_t step;
  const poseidon_push* push;
  poseidon_status* status;
};
using CorePush = std::function<poseidon_code(const PushCall&)>;

// The arguments that every push has beside what it hands over.
struct Pushed {
  Place place;
  std::int64_t step = 0;
  poseidon_push landing = POSEIDON_NEW(poseidon_push);
};

// A push since `begin`, for a trace where there is one: TensorFlow's profiler does not see ops that end later.
void Record(const ModelTable::Use& model, const Place& place, std::int64_t step, std::int64_t begin) {
  auto span = POSEIDON_NEW(poseidon_span);
  span.lane = POSEIDON_LANE_COMPUTE;
  span.layer = static_cast<std::int32_t>(place.layer);
  span.step = static_cast<std::uint64_t>(step);
  span.begin_nanoseconds = begin;
  span.end_nanoseconds = model.core().now(model->session);
  span.label = "push op";
  span.model = model->number;
  model.core().record(model->session, &span, nullptr);
}

// Sends a layer's `lent` on its way by a function of the core; an empty string, or why not.
std::string Send(const Pushed& one, Flight::Lent lent, const CorePush& push) {
  const Place& place = one.place;
  const auto step = static_cast<std::uint64_t>(one.step);
  Flight* const flight = ModelTable::The().FlightOf(place.model, place.layer);
  const ModelTable::Use model(place.model);
  if (flight == nullptr || !model) return kLeft;
  const std::int64_t begin = model.core().now(model->session);
  model->clock.GradientIsThere(place.number(), begin);
  std::string failure;
  flight->Begin(
      step, std::move(lent), one.landing,
      [&](poseidon_push* with_landing, poseidon_status* told) {
        return push({model.core(), model->handle, place.number(), step, with_landing, told});
      },
      &failure);
  Record(model, place, one.step, begin);
  return failure;
}

std::string SendGradient(const Pushed& one, Flight::Lent lent) {
  const poseidon_view gradient = ViewOf(lent.gradient.get());
  return Send(one, std::move(lent), [&](const PushCall& call) {
    return call.core.push_dense(call.model, call.layer, call.step, &gradient, call.push, call.status);
  });
}

std::string SendFactors(const Pushed& one, Flight::Lent lent) {
  const std::int64_t rows = Tf().TF_Dim(lent.u.get(), 0);
  if (rows != Tf().TF_Dim(lent.v.get(), 0)) return "factors have different numbers of rows, expected the same";
  const poseidon_view u = ViewOf(lent.u.get());
  const poseidon_view v = ViewOf(lent.v.get());
  const poseidon_view gradient = ViewOf(lent.gradient.get());
  auto factors = POSEIDON_NEW(poseidon_factors);
  factors.u = &u;
  factors.v = &v;
  factors.rows = static_cast<std::uint32_t>(rows);
  return Send(one, std::move(lent), [&](const PushCall& call) {
    return call.core.push_factors(call.model, call.layer, call.step, &factors, &gradient, call.push, call.status);
  });
}

// `lent` has the indices in u, and the values in v.
std::string SendRows(const Pushed& one, Flight::Lent lent) {
  const poseidon_view values = ViewOf(lent.v.get());
  auto rows = POSEIDON_NEW(poseidon_rows);
  rows.indices = static_cast<const std::int64_t*>(Tf().TF_TensorData(lent.u.get()));
  rows.values = &values;
  rows.count = static_cast<std::uint32_t>(Tf().TF_Dim(lent.u.get(), 0));
  return Send(one, std::move(lent), [&](const PushCall& call) {
    return call.core.push_rows(call.model, call.layer, call.step, &rows, call.push, call.status);
  });
}

// Of an op whose input `begun` is the step, with the weight behind it, and whose output `pushed` is the step again.
Pushed PushedBy(const void* kernel, TF_OpKernelContext* context, int begun, int pushed, const StatusOfCall& status) {
  Pushed one{.place = *static_cast<const Place*>(kernel), .step = NumberOf(context, begun, status)};
  one.landing.weight = static_cast<std::uint32_t>(NumberOf(context, begun + 1, status));
  if (status.ok()) SetNumber(context, pushed, one.step, status);
  return one;
}

void Push(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
  const StatusOfCall status;
  Pushed one = PushedBy(kernel, context, 1, 1, status);
  one.landing.rows = static_cast<std::uint32_t>(NumberOf(context, 3, status));
  Flight::Lent lent{.gradient = status.ok() ? LentFor(context, status) : nullptr, .u = nullptr, .v = nullptr};
  const std::string failure = status.ok() ? SendGradient(one, std::move(lent)) : "";
  End(context, Done(callback), status, failure);
}

void PushFactors(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
  const StatusOfCall status;
  const Pushed one = PushedBy(kernel, context, 2, 1, status);
  Flight::Lent lent{.gradient = nullptr, .u = InputOf(context, 0, status), .v = InputOf(context, 1, status)};
  if (status.ok()) {
    bool forwarded = false;
    lent.gradient = Allocate(context, 0, -1, {Tf().TF_Dim(lent.u.get(), 1), Tf().TF_Dim(lent.v.get(), 1)}, &forwarded, status);
  }
  const std::string failure = status.ok() ? SendFactors(one, std::move(lent)) : "";
  End(context, Done(callback), status, failure);
}

void PushRows(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
  const StatusOfCall status;
  const Pushed one = PushedBy(kernel, context, 2, 0, status);
  Flight::Lent lent{.gradient = nullptr, .u = InputOf(context, 0, status), .v = InputOf(context, 1, status)};
  const std::string failure = status.ok() ? SendRows(one, std::move(lent)) : "";
  End(context, Done(callback), status, failure);
}

// ---- PoseidonMean, PoseidonRows

void Take(const Place& place, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback, Flight::Give give) {
  const StatusOfCall status;
  const std::int64_t step = NumberOf(context, 0, status);
  Flight* const flight = ModelTable::The().FlightOf(place.model, place.layer);
  if (!status.ok() || flight == nullptr) return End(context, Done(callback), status, kLeft);
  flight->Take(static_cast<std::uint64_t>(step), context, Done(callback), std::move(give));
}

void Mean(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
  Take(*static_cast<Place*>(kernel), context, callback,
       [](TF_OpKernelContext* taker, const Tensor& mean, const StatusOfCall& status) {
         Tf().TF_SetOutput(taker, 0, mean.get(), status.get());
         return std::string();
       });
}

// The session's memory is valid until the layer's next push, which comes after what is made of these outputs.
std::string GiveRows(const Place& place, TF_OpKernelContext* context, const StatusOfCall& status) {
  const ModelTable::Use model(place.model);
  if (!model) return kLeft;
  auto gathered = POSEIDON_NEW(poseidon_gathered);
  auto told = POSEIDON_NEW(poseidon_status);
  if (model.core().get_gathered(model->handle, place.number(), &gathered, &told) != POSEIDON_OK) return told.message;
  const auto count = static_cast<std::int64_t>(gathered.count);
  bool forwarded = false;
  const Tensor indices = Allocate(context, 0, -1, {count}, &forwarded, status);
  const Tensor values = status.ok() ? Allocate(context, 1, -1, {count, place.width}, &forwarded, status) : nullptr;
  if (!status.ok() || count == 0) return "";
  std::memcpy(Tf().TF_TensorData(indices.get()), gathered.indices, Tf().TF_TensorByteSize(indices.get()));
  std::memcpy(Tf().TF_TensorData(values.get()), gathered.values, Tf().TF_TensorByteSize(values.get()));
  return "";
}

void Rows(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
  const Place place = *static_cast<Place*>(kernel);
  Take(place, context, callback, [place](TF_OpKernelContext* taker, const Tensor&, const StatusOfCall& status) {
    return GiveRows(place, taker, status);
  });
}

// ---- registration

void UnknownShape(TF_ShapeInferenceContext* context, TF_Status* status) {
  Tf().TF_ShapeInferenceContextSetUnknownShape(context, status);
}

struct Op {
  const char* name;
  void (*compute)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);
  bool typed;  // has an attribute T
  std::vector<std::pair<const char*, const char*>> inputs;  // name and type
  std::vector<std::pair<const char*, const char*>> outputs;
};

void Define(const Op& op) {
  const StatusOfCall status;
  TF_OpDefinitionBuilder* const builder = Tf().TF_NewOpDefinitionBuilder(op.name);
  if (op.typed) Tf().TF_OpDefinitionBuilderAddAttr(builder, "T: {float, double}");
  for (const char* attribute : {"model: int", "layer: int = 0", "timed: int = 0", "width: int = 0"}) {
    Tf().TF_OpDefinitionBuilderAddAttr(builder, attribute);
  }
  for (const auto& [name, type] : op.inputs) {
    Tf().TF_OpDefinitionBuilderAddInput(builder, (std::string(name) + ": " + type).c_str());
  }
  for (const auto& [name, type] : op.outputs) {
    Tf().TF_OpDefinitionBuilderAddOutput(builder, (std::string(name) + ": " + type).c_str());
  }
  Tf().TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, UnknownShape);
  Tf().TF_RegisterOpDefinition(builder, status.get());
}

void RegisterKernel(const Op& op, const char* device, TF_DataType type) {
  const StatusOfCall status;
  TF_KernelBuilder* const kernel = Tf().TF_NewAsyncKernelBuilder(op.name, device, MakePlace, op.compute, DeletePlace);
  if (op.typed) Tf().TF_KernelBuilder_TypeConstraint(kernel, "T", type, status.get());
  // On a GPU all arguments are in host memory: TensorFlow copies what is not. On a CPU this would keep TensorFlow from giving a
  // gradient's memory on.
  if (std::strcmp(device, "GPU") == 0) {
    for (const auto* arguments : {&op.inputs, &op.outputs}) {
      for (const auto& [name, unused] : *arguments) Tf().TF_KernelBuilder_HostMemory(kernel, name);
    }
  }
  Tf().TF_RegisterKernelBuilder(op.name, kernel, status.get());
}

// tf.load_op_library opens this library, which registers its ops then.
[[maybe_unused]] const bool kRegistered = [] {
  if (LoadedTensorFlow() == nullptr) return false;
  const std::vector<Op> ops = {
      {"PoseidonBegin", Begin, false, {{"step", "int64"}}, {{"begun", "int64"}}},
      {"PoseidonTakesFactors", TakesFactors, false, {{"begun", "int64"}}, {{"factors", "bool"}}},
      {"PoseidonPush",
       Push,
       true,
       {{"gradient", "T"}, {"begun", "int64"}, {"weight", "int64"}, {"rows", "int64"}},
       {{"lent", "T"}, {"pushed", "int64"}}},
      {"PoseidonPushFactors",
       PushFactors,
       true,
       {{"u", "T"}, {"v", "T"}, {"begun", "int64"}, {"weight", "int64"}},
       {{"lent", "T"}, {"pushed", "int64"}}},
      {"PoseidonPushRows",
       PushRows,
       true,
       {{"indices", "int64"}, {"values", "T"}, {"begun", "int64"}, {"weight", "int64"}},
       {{"pushed", "int64"}}},
      {"PoseidonRows", Rows, true, {{"pushed", "int64"}}, {{"indices", "int64"}, {"values", "T"}}},
      {"PoseidonMean", Mean, true, {{"pushed", "int64"}}, {{"mean", "T"}}},
  };
  for (const Op& op : ops) {
    Define(op);
    for (const char* device : {"CPU", "GPU"}) {
      RegisterKernel(op, device, TF_FLOAT);
      if (op.typed) RegisterKernel(op, device, TF_DOUBLE);
    }
  }
  return true;
}();

}  // namespace
}  // namespace poseidon::tensorflow

// For Python, by ctypes.
extern "C" {

// 1 where the ops are registered, 0 where this process has no TensorFlow that we know.
POSEIDON_API int poseidon_tensorflow_ready() { return poseidon::tensorflow::kRegistered ? 1 : 0; }

// The names of the functions of the core's library that ops call, ended by null, and then those functions, in this order.
POSEIDON_API const char* const* poseidon_tensorflow_core_names() {
#define POSEIDON_TENSORFLOW_NAME(name) #name,
  static const char* const names[] = {POSEIDON_TENSORFLOW_CORE(POSEIDON_TENSORFLOW_NAME) nullptr};
#undef POSEIDON_TENSORFLOW_NAME
  return names;
}
POSEIDON_API void poseidon_tensorflow_set_core(void* const* functions) {
  poseidon::tensorflow::Core core;
  int at = 0;
#define POSEIDON_TENSORFLOW_SET(name) core.name = reinterpret_cast<decltype(core.name)>(functions[at++]);
  POSEIDON_TENSORFLOW_CORE(POSEIDON_TENSORFLOW_SET)
#undef POSEIDON_TENSORFLOW_SET
  poseidon::tensorflow::ModelTable::The().SetCore(core);
}

// Enters a model of `layers` layers at a place of the table; a null handle takes it out again, before its session is closed.
// `number` is the model's among those of its session.
POSEIDON_API void poseidon_tensorflow_set_model(int64_t place, void* session, void* handle, uint32_t number,
                                               uint32_t layers) {
  poseidon::tensorflow::ModelTable::The().Set(place, static_cast<poseidon_session*>(session),
                                              static_cast<poseidon_model*>(handle), number, layers);
}

}  // extern "C"
