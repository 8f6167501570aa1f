// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/subnormals.h"

#include <ATen/Context.h>

namespace poseidon::caffe {

void FlushSubnormals() { static_cast<void>(at::globalContext().setFlushDenormal(true)); }

}  // namespace poseidon::caffe
