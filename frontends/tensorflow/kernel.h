// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_TENSORFLOW_KERNEL_H_
#define POSEIDON_FRONTENDS_TENSORFLOW_KERNEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "frontends/tensorflow/tensorflow_c_api.h"

// The part of TensorFlow's C interface that every kernel needs, with C++'s lifetimes.
namespace poseidon::tensorflow {

// Those of the TensorFlow in this process, which is there before an op is registered.
inline const Functions& Tf() {
  static const Functions* const loaded = LoadedTensorFlow();
  return *loaded;
}

// TensorFlow hands over a std::function on its caller's stack (tensorflow/c/kernels.cc), which an op that ends later has to
// copy. Python refuses a TensorFlow whose headers say that it is something else.
class Done {
 public:
  explicit Done(TF_AsyncOpKernelDoneCallback* callback) : function_(*reinterpret_cast<std::function<void()>*>(callback)) {}
  void Call() { Tf().TF_RunAsyncOpKernelDoneCallback(reinterpret_cast<TF_AsyncOpKernelDoneCallback*>(&function_)); }

 private:
  std::function<void()> function_;
};

class StatusOfCall {
 public:
  StatusOfCall() : status_(Tf().TF_NewStatus()) {}
  ~StatusOfCall() { Tf().TF_DeleteStatus(status_); }
  StatusOfCall(const StatusOfCall&) = delete;
  StatusOfCall& operator=(const StatusOfCall&) = delete;
  TF_Status* get() const { return status_; }
  bool ok() const { return Tf().TF_GetCode(status_) == TF_OK; }

 private:
  TF_Status* status_;
};

struct TensorDeleter {
  void operator()(TF_Tensor* tensor) const { Tf().TF_DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, TensorDeleter>;

// Null, and a status that says why, where it cannot be had.
inline Tensor InputOf(TF_OpKernelContext* context, int number, const StatusOfCall& status) {
  TF_Tensor* tensor = nullptr;
  Tf().TF_GetInput(context, number, &tensor, status.get());
  return Tensor(status.ok() ? tensor : nullptr);
}

// The int64 at a place among the inputs.
inline std::int64_t NumberOf(TF_OpKernelContext* context, int number, const StatusOfCall& status) {
  const Tensor tensor = InputOf(context, number, status);
  return tensor == nullptr ? 0 : *static_cast<const std::int64_t*>(Tf().TF_TensorData(tensor.get()));
}

// ABORTED, which sessions and functions pass on as it is; UNAVAILABLE becomes INTERNAL in graphs.
inline void Fail(TF_OpKernelContext* context, const std::string& sentence) {
  const StatusOfCall status;
  Tf().TF_SetStatus(status.get(), TF_ABORTED, sentence.c_str());
  Tf().TF_OpKernelContext_Failure(context, status.get());
}

}  // namespace poseidon::tensorflow

#endif  // POSEIDON_FRONTENDS_TENSORFLOW_KERNEL_H_
