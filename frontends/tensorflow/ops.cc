// SPDX-License-Identifier: Apache-2.0
// The ops PoseidonBegin and PoseidonReduce. TensorFlow runs them when their inputs are there, on threads of its pool,
// which they never block: both are asynchronous.
//
//   PoseidonBegin(step: int64) -> begun: int64      before the pushes of a step
//   PoseidonReduce(gradient: T, step: int64) -> mean: T
//
// Attributes: model, its place in the table that Python fills (poseidon_tensorflow_set_model), and layer, the core's number.
// Neither op is stateful: TensorFlow chains stateful ops in the order of the program, which would undo the overlap. So their
// attributes differ (identical ops are merged), and the step, which is never constant, is an input.
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "frontends/tensorflow/tensorflow_c_api.h"
#include "poseidon/c/poseidon.h"

namespace poseidon::tensorflow {
namespace {

const Functions* tf = nullptr;  // set before any op is registered

// The functions of libposeidon.so that ops call. This library does not link it: TensorFlow opens it among its own symbols,
// and two copies of the core would be two jobs.
struct Core {
  decltype(&poseidon_begin_step) begin_step = nullptr;
  decltype(&poseidon_push_dense) push_dense = nullptr;
};

// What Python has told us. Never destroyed: ops may be under way when the process ends.
struct Table {
  std::shared_mutex mutex;  // shared while an op is in a call of the core, which has returned before a model is taken out
  Core core;
  std::vector<poseidon_model*> models;  // by place; null once the job has been left
};
Table& TheTable() {
  static Table* const table = new Table;
  return *table;
}

struct Destination {
  Core core;
  poseidon_model* model = nullptr;
};
// With the table's mutex held, as long as the model is used.
Destination Find(std::int64_t place) {
  const Table& table = TheTable();
  const bool known = place >= 0 && place < static_cast<std::int64_t>(table.models.size());
  return {table.core, known ? table.models[static_cast<std::size_t>(place)] : nullptr};
}

// TensorFlow hands over a std::function on its caller's stack (tensorflow/c/kernels.cc), which an op that ends later has to
// copy. Python refuses a TensorFlow whose headers say that it is something else.
class Done {
 public:
  explicit Done(TF_AsyncOpKernelDoneCallback* callback)
      : function_(*reinterpret_cast<std::function<void()>*>(callback)) {}
  void Call() { tf->TF_RunAsyncOpKernelDoneCallback(reinterpret_cast<TF_AsyncOpKernelDoneCallback*>(&function_)); }

 private:
  std::function<void()> function_;
};

class StatusOfCall {
 public:
  StatusOfCall() : status_(tf->TF_NewStatus()) {}
  ~StatusOfCall() { tf->TF_DeleteStatus(status_); }
  StatusOfCall(const StatusOfCall&) = delete;
  StatusOfCall& operator=(const StatusOfCall&) = delete;
  TF_Status* get() const { return status_; }
  bool ok() const { return tf->TF_GetCode(status_) == TF_OK; }

 private:
  TF_Status* status_;
};

struct TensorDeleter {
  void operator()(TF_Tensor* tensor) const { tf->TF_DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, TensorDeleter>;

Tensor InputOf(TF_OpKernelContext* context, int number, TF_Status* status) {
  TF_Tensor* tensor = nullptr;
  tf->TF_GetInput(context, number, &tensor, status);
  return Tensor(tensor);
}

// ABORTED, which sessions and functions pass on as it is; UNAVAILABLE becomes INTERNAL in graphs.
void Fail(TF_OpKernelContext* context, const std::string& sentence) {
  const StatusOfCall status;
  tf->TF_SetStatus(status.get(), TF_ABORTED, sentence.c_str());
  tf->TF_OpKernelContext_Failure(context, status.get());
}

constexpr const char* kLeft = "the job has been left, expected no training after it";

struct Place {
  std::int64_t model = 0;
  std::int64_t layer = 0;
};

void* MakePlace(TF_OpKernelConstruction* construction) {
  auto place = std::make_unique<Place>();
  const StatusOfCall status;
  tf->TF_OpKernelConstruction_GetAttrInt64(construction, "model", &place->model, status.get());
  if (status.ok()) tf->TF_OpKernelConstruction_GetAttrInt64(construction, "layer", &place->layer, status.get());
  if (!status.ok()) tf->TF_OpKernelConstruction_Failure(construction, status.get());
  return place.release();
}
void DeletePlace(void* place) { delete static_cast<Place*>(place); }

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
      std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    there_.notify_one();
  }

 private:
  Beginner() {
    std::thread([this] { Run(); }).detach();
  }
  [[noreturn]] void Run() {
    while (true) {
      std::unique_lock lock(mutex_);
      there_.wait(lock, [this] { return !tasks_.empty(); });
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable there_;
  std::deque<std::function<void()>> tasks_;
};

void Begin(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
  const Place place = *static_cast<Place*>(kernel);
  Beginner::The().Do([place, context, done = std::make_shared<Done>(callback)] {
    const StatusOfCall status;
    const Tensor step = InputOf(context, 0, status.get());
    std::shared_lock lock(TheTable().mutex);
    const Destination to = Find(place.model);
    auto failure = POSEIDON_NEW(poseidon_status);
    if (!status.ok()) {
      tf->TF_OpKernelContext_Failure(context, status.get());
    } else if (to.model == nullptr) {
      Fail(context, kLeft);
    } else if (to.core.begin_step(to.model, *static_cast<const std::uint64_t*>(tf->TF_TensorData(step.get())), &failure) !=
               POSEIDON_OK) {
      Fail(context, failure.message);
    } else {
      tf->TF_SetOutput(context, 0, step.get(), status.get());
    }
    lock.unlock();
    done->Call();
  });
}

// ---- PoseidonReduce

// One gradient on its way. The mean lands in the output's memory.
struct Flight {
  Flight(TF_OpKernelContext* context_of_op, TF_AsyncOpKernelDoneCallback* callback) : context(context_of_op), done(callback) {}
  TF_OpKernelContext* context;
  Done done;
  Tensor output;
};

void Land(void* user, const poseidon_status* status) {
  const std::unique_ptr<Flight> flight(static_cast<Flight*>(user));
  if (status->code != POSEIDON_OK) Fail(flight->context, status->message);
  flight->output.reset();
  flight->done.Call();
}

// The output: the gradient's own memory where nobody else reads it, else a copy. A gradient that we hold is never given.
Tensor OutputFor(TF_OpKernelContext* context, TF_Status* status) {
  Tensor gradient = InputOf(context, 0, status);
  if (tf->TF_GetCode(status) != TF_OK) return nullptr;
  std::vector<std::int64_t> shape;
  for (int i = 0; i < tf->TF_NumDims(gradient.get()); ++i) shape.push_back(tf->TF_Dim(gradient.get(), i));
  gradient.reset();
  const int candidate = 0;
  int forwarded = -1;
  Tensor output(tf->TF_ForwardInputOrAllocateOutput(context, &candidate, 1, 0, shape.data(), static_cast<int>(shape.size()),
                                                    &forwarded, status));
  if (tf->TF_GetCode(status) != TF_OK || forwarded == 0) return output;
  gradient = InputOf(context, 0, status);
  if (tf->TF_GetCode(status) != TF_OK) return nullptr;
  std::memcpy(tf->TF_TensorData(output.get()), tf->TF_TensorData(gradient.get()), tf->TF_TensorByteSize(gradient.get()));
  return output;
}

void Reduce(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
  const Place place = *static_cast<Place*>(kernel);
  auto flight = std::make_unique<Flight>(context, callback);
  const StatusOfCall status;
  const Tensor step = InputOf(context, 1, status.get());
  if (status.ok()) flight->output = OutputFor(context, status.get());
  if (!status.ok()) {
    tf->TF_OpKernelContext_Failure(context, status.get());
    return flight->done.Call();
  }
  std::shared_lock lock(TheTable().mutex);
  const Destination to = Find(place.model);
  if (to.model == nullptr) {
    lock.unlock();
    Fail(context, kLeft);
    return flight->done.Call();
  }
  const TF_Tensor* const output = flight->output.get();
  const bool wide = tf->TF_TensorType(output) == TF_DOUBLE;
  auto view = POSEIDON_NEW(poseidon_view);
  view.memory = tf->TF_TensorData(output);
  view.elements = tf->TF_TensorByteSize(output) / (wide ? sizeof(double) : sizeof(float));
  view.dtype = wide ? POSEIDON_F64 : POSEIDON_F32;
  auto push = POSEIDON_NEW(poseidon_push);
  push.landed = Land;
  push.landed_user = flight.get();
  auto failure = POSEIDON_NEW(poseidon_status);
  const std::uint64_t number = *static_cast<const std::uint64_t*>(tf->TF_TensorData(step.get()));
  Flight* const pushed = flight.release();  // Land may come before the push returns
  const poseidon_code code =
      to.core.push_dense(to.model, static_cast<std::uint32_t>(place.layer), number, &view, &push, &failure);
  lock.unlock();
  if (code != POSEIDON_OK) Land(pushed, &failure);
}

// ---- registration

void UnknownShape(TF_ShapeInferenceContext* context, TF_Status* status) {
  tf->TF_ShapeInferenceContextSetUnknownShape(context, status);
}

using Compute = void (*)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);

void RegisterOp(const char* name, std::vector<const char*> attributes, std::vector<const char*> inputs, const char* output) {
  const StatusOfCall status;
  TF_OpDefinitionBuilder* const op = tf->TF_NewOpDefinitionBuilder(name);
  for (const char* attribute : attributes) tf->TF_OpDefinitionBuilderAddAttr(op, attribute);
  for (const char* input : inputs) tf->TF_OpDefinitionBuilderAddInput(op, input);
  tf->TF_OpDefinitionBuilderAddOutput(op, output);
  tf->TF_OpDefinitionBuilderSetShapeInferenceFunction(op, UnknownShape);
  tf->TF_RegisterOpDefinition(op, status.get());
}

// On a GPU all arguments are in host memory: TensorFlow copies what is not.
void RegisterKernels(const char* op, Compute compute, std::vector<TF_DataType> types, std::vector<const char*> arguments) {
  for (const char* device : {"CPU", "GPU"}) {
    for (const TF_DataType type : types) {
      const StatusOfCall status;
      TF_KernelBuilder* const kernel = tf->TF_NewAsyncKernelBuilder(op, device, MakePlace, compute, DeletePlace);
      if (type != TF_INT64) tf->TF_KernelBuilder_TypeConstraint(kernel, "T", type, status.get());
      // On a CPU this would keep TensorFlow from giving a gradient's memory on.
      if (std::strcmp(device, "GPU") == 0) {
        for (const char* argument : arguments) tf->TF_KernelBuilder_HostMemory(kernel, argument);
      }
      tf->TF_RegisterKernelBuilder(op, kernel, status.get());
    }
  }
}

// tf.load_op_library opens this library, which registers its ops then.
[[maybe_unused]] const bool kRegistered = [] {
  tf = LoadedTensorFlow();
  if (tf == nullptr) return false;
  RegisterOp("PoseidonBegin", {"model: int", "layer: int = 0"}, {"step: int64"}, "begun: int64");
  RegisterKernels("PoseidonBegin", Begin, {TF_INT64}, {"step", "begun"});
  RegisterOp("PoseidonReduce", {"T: {float, double}", "model: int", "layer: int"}, {"gradient: T", "step: int64"}, "mean: T");
  RegisterKernels("PoseidonReduce", Reduce, {TF_FLOAT, TF_DOUBLE}, {"gradient", "step", "mean"});
  return true;
}();

}  // namespace
}  // namespace poseidon::tensorflow

// For Python, by ctypes.
extern "C" {

// 1 where the ops are registered, 0 where this process has no TensorFlow that we know.
POSEIDON_API int poseidon_tensorflow_ready() { return poseidon::tensorflow::kRegistered ? 1 : 0; }

// The functions of the core's library that ops call. Before the first op runs.
POSEIDON_API void poseidon_tensorflow_set_core(void* begin_step, void* push_dense) {
  poseidon::tensorflow::Table& table = poseidon::tensorflow::TheTable();
  std::lock_guard lock(table.mutex);
  table.core.begin_step = reinterpret_cast<decltype(&poseidon_begin_step)>(begin_step);
  table.core.push_dense = reinterpret_cast<decltype(&poseidon_push_dense)>(push_dense);
}

// Enters a model at a place of the table; null takes it out again, before its session is closed.
POSEIDON_API void poseidon_tensorflow_set_model(int64_t place, void* model) {
  poseidon::tensorflow::Table& table = poseidon::tensorflow::TheTable();
  std::lock_guard lock(table.mutex);
  if (place >= static_cast<int64_t>(table.models.size())) table.models.resize(static_cast<std::size_t>(place) + 1);
  table.models[static_cast<std::size_t>(place)] = static_cast<poseidon_model*>(model);
}

}  // extern "C"
