// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_TENSORFLOW_TENSORFLOW_C_API_H_
#define POSEIDON_FRONTENDS_TENSORFLOW_TENSORFLOW_C_API_H_

#include <cstddef>
#include <cstdint>

// The part of TensorFlow's C interface for kernels that we use (tensorflow/c/{ops,kernels,tf_tensor,tf_status}.h, 2.16 to
// 2.21), declared by ourselves and found at run time: so one library, built without TensorFlow, serves all of them.
namespace poseidon::tensorflow {

// NOLINTBEGIN(readability-identifier-naming): TensorFlow's names.
struct TF_Status;
struct TF_Tensor;
struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_AsyncOpKernelDoneCallback;

enum TF_Code : int { TF_OK = 0, TF_INVALID_ARGUMENT = 3, TF_ABORTED = 10 };
enum TF_DataType : int { TF_FLOAT = 1, TF_DOUBLE = 2, TF_INT64 = 9 };

// The functions, each under its own name.
#define POSEIDON_TENSORFLOW_FUNCTIONS(X)                                                                                  \
  X(TF_NewStatus, TF_Status*, ())                                                                                         \
  X(TF_DeleteStatus, void, (TF_Status*))                                                                                  \
  X(TF_SetStatus, void, (TF_Status*, TF_Code, const char*))                                                               \
  X(TF_GetCode, TF_Code, (const TF_Status*))                                                                              \
  X(TF_NewOpDefinitionBuilder, TF_OpDefinitionBuilder*, (const char*))                                                    \
  X(TF_OpDefinitionBuilderAddAttr, void, (TF_OpDefinitionBuilder*, const char*))                                          \
  X(TF_OpDefinitionBuilderAddInput, void, (TF_OpDefinitionBuilder*, const char*))                                         \
  X(TF_OpDefinitionBuilderAddOutput, void, (TF_OpDefinitionBuilder*, const char*))                                        \
  X(TF_OpDefinitionBuilderSetShapeInferenceFunction, void,                                                                \
    (TF_OpDefinitionBuilder*, void (*)(TF_ShapeInferenceContext*, TF_Status*)))                                           \
  X(TF_ShapeInferenceContextSetUnknownShape, void, (TF_ShapeInferenceContext*, TF_Status*))                               \
  X(TF_RegisterOpDefinition, void, (TF_OpDefinitionBuilder*, TF_Status*))                                                 \
  X(TF_NewAsyncKernelBuilder, TF_KernelBuilder*,                                                                          \
    (const char*, const char*, void* (*)(TF_OpKernelConstruction*),                                                       \
     void (*)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*), void (*)(void*)))                               \
  X(TF_KernelBuilder_TypeConstraint, void, (TF_KernelBuilder*, const char*, TF_DataType, TF_Status*))                     \
  X(TF_KernelBuilder_HostMemory, void, (TF_KernelBuilder*, const char*))                                                  \
  X(TF_RegisterKernelBuilder, void, (const char*, TF_KernelBuilder*, TF_Status*))                                         \
  X(TF_OpKernelConstruction_GetAttrInt64, void, (TF_OpKernelConstruction*, const char*, std::int64_t*, TF_Status*))       \
  X(TF_OpKernelConstruction_Failure, void, (TF_OpKernelConstruction*, TF_Status*))                                        \
  X(TF_RunAsyncOpKernelDoneCallback, void, (TF_AsyncOpKernelDoneCallback*))                                               \
  X(TF_GetInput, void, (TF_OpKernelContext*, int, TF_Tensor**, TF_Status*))                                               \
  X(TF_SetOutput, void, (TF_OpKernelContext*, int, const TF_Tensor*, TF_Status*))                                         \
  X(TF_ForwardInputOrAllocateOutput, TF_Tensor*,                                                                          \
    (TF_OpKernelContext*, const int*, int, int, const std::int64_t*, int, int*, TF_Status*))                              \
  X(TF_OpKernelContext_Failure, void, (TF_OpKernelContext*, TF_Status*))                                                  \
  X(TF_DeleteTensor, void, (TF_Tensor*))                                                                                  \
  X(TF_TensorData, void*, (const TF_Tensor*))                                                                             \
  X(TF_TensorByteSize, std::size_t, (const TF_Tensor*))                                                                   \
  X(TF_TensorType, TF_DataType, (const TF_Tensor*))                                                                       \
  X(TF_NumDims, int, (const TF_Tensor*))                                                                                  \
  X(TF_Dim, std::int64_t, (const TF_Tensor*, int))

struct Functions {
#define POSEIDON_TENSORFLOW_MEMBER(name, result, arguments) result(*name) arguments = nullptr;
  POSEIDON_TENSORFLOW_FUNCTIONS(POSEIDON_TENSORFLOW_MEMBER)
#undef POSEIDON_TENSORFLOW_MEMBER
};
// NOLINTEND(readability-identifier-naming)

// Those of the TensorFlow in this process; nullptr where there is none, or one that lacks a function. Found once.
const Functions* LoadedTensorFlow();

}  // namespace poseidon::tensorflow

#endif  // POSEIDON_FRONTENDS_TENSORFLOW_TENSORFLOW_C_API_H_
