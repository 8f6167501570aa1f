// SPDX-License-Identifier: Apache-2.0
// measure_net.h for a build without the trainer, which cannot measure a net.
#include "tools/measure_net.h"

namespace poseidon::tools {

Result<profile::Profile> MeasureNet(const MeasureOptions& options) {
  return Unimplemented("measuring " + options.model +
                       " needs the trainer, which pip install 'poseidon-train[caffe]' brings; or give a profile that was "
                       "measured elsewhere");
}

}  // namespace poseidon::tools
