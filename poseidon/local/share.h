// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_LOCAL_SHARE_H_
#define POSEIDON_LOCAL_SHARE_H_

#include <cstdint>

#include "poseidon/base/strong_id.h"
#include "poseidon/plan/scheme.h"
#include "poseidon/tensor/view.h"

namespace poseidon::local {

// One worker's contribution to one step of one layer. Lent, unchanged, until the mean is in `gradient`;
// a leader's gradient may be written before.
struct Share {
  LayerId layer;
  Step step;
  plan::Scheme scheme = plan::Scheme::kKeyValue;
  TensorView gradient;  // host memory: what is brought where the scheme takes gradients, and where the mean
                        // lands under every scheme
  Factors factors;      // what is brought where the scheme takes factors; rows may be 0
  bool absent = false;  // brings nothing
  std::uint32_t weight = 0;  // in the mean; 0: unweighted
};

}  // namespace poseidon::local

#endif  // POSEIDON_LOCAL_SHARE_H_
