// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_PROTO_UPGRADE_V0_H_
#define POSEIDON_FRONTENDS_CAFFE_PROTO_UPGRADE_V0_H_

#include <string>

#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// Turns Caffe's first form, `layers { layer { name type ... } bottom top }`, into its second in place: `layers` with
// enum types and a message of options for each type. A layer of type "padding" goes; the convolution or pooling that
// reads it takes its pad and its bottom. A net in another form is left alone.
//
// Fails, naming `name` and the layer: forms that are mixed, an unknown type, an option that its type does not have
// (which Caffe reports and drops), and padding that something else reads.
Status UpgradeV0(const std::string& name, NetParameter* net);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_PROTO_UPGRADE_V0_H_
