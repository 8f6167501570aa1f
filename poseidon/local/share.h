// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_LOCAL_SHARE_H_
#define POSEIDON_LOCAL_SHARE_H_

#include <memory>
#include <vector>

#include "poseidon/base/strong_id.h"
#include "poseidon/factors/rebuild.h"
#include "poseidon/local/stretches.h"
#include "poseidon/plan/scheme.h"
#include "poseidon/sync/contribution.h"

namespace poseidon::local {

// What each leader of a host exchanges of one layer, by place: bytes of its flat gradient, ascending. A layer whose factors
// are sent is one leader's, whole.
using Parts = std::vector<std::vector<ByteRange>>;

// One worker's contribution to its host's, in host memory. Lent, unchanged, until the mean is in `gradient`, or in `gathered`
// where that is given; the part that this worker leads may be written before. It has factors where the scheme takes them and
// it is not absent.
struct Share : sync::Contribution {
  LayerId layer;
  plan::Scheme scheme = plan::Scheme::kKeyValue;
  factors::GatheredRows* gathered = nullptr;  // sync::SyncRequest::gathered, of a layer that is no table
  std::shared_ptr<const Parts> parts;
  bool mean_stays = false;  // in the host's memory, in place of `gradient`
};

}  // namespace poseidon::local

#endif  // POSEIDON_LOCAL_SHARE_H_
