// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_BOX_SAMPLER_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_BOX_SAMPLER_H_

#include <vector>

#include "frontends/caffe/data/box.h"
#include "frontends/caffe/data/random_words.h"
#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// Fails where a batch_sampler of SSD cannot be drawn from.
Status CheckBatchSampler(const BatchSampler& sampler);

// Draws windows of an image, as `sampler` says: up to max_trials of them, until max_sample meet its constraint. Those are added to
// *windows. An object meets a constraint where it meets each of its numbers, and a window where one of its objects does.
void DrawWindows(const BatchSampler& sampler, const std::vector<LabelledBox>& objects, RandomSequence* random, std::vector<Box<float>>* windows);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_BOX_SAMPLER_H_
