// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_NET_INSERT_SPLITS_H_
#define POSEIDON_FRONTENDS_CAFFE_NET_INSERT_SPLITS_H_

#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// Gives every blob one reader: behind each layer whose top is read more than once (a loss weight on
// it counts as a reader) comes a Split layer with one top per reader, named as Caffe names them, so
// that saved models agree. Afterwards backward passes overwrite, they never add. A bottom that no
// earlier layer makes is an error that names layer and blob.
Result<NetParameter> InsertSplits(const NetParameter& net);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_NET_INSERT_SPLITS_H_
