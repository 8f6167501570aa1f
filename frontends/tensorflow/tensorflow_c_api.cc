// SPDX-License-Identifier: Apache-2.0
#include "frontends/tensorflow/tensorflow_c_api.h"

#include <dlfcn.h>

namespace poseidon::tensorflow {
namespace {

const Functions* Find() {
  void* const framework = dlopen("libtensorflow_framework.so.2", RTLD_NOLOAD | RTLD_NOW);
  if (framework == nullptr) return nullptr;
  auto* const found = new Functions;  // for as long as TensorFlow calls us
#define POSEIDON_TENSORFLOW_FIND(name, result, arguments)                                  \
  found->name = reinterpret_cast<result(*) arguments>(dlsym(framework, #name));            \
  if (found->name == nullptr) return nullptr;
  POSEIDON_TENSORFLOW_FUNCTIONS(POSEIDON_TENSORFLOW_FIND)
#undef POSEIDON_TENSORFLOW_FIND
  return found;
}

}  // namespace

const Functions* LoadedTensorFlow() {
  static const Functions* const found = Find();
  return found;
}

}  // namespace poseidon::tensorflow
