// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_DISTORT_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_DISTORT_H_

#include "frontends/caffe/data/image.h"
#include "frontends/caffe/data/random_words.h"
#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// Fails where the numbers of an SSD's distort_param are none to draw from.
Status CheckDistortion(const DistortionParameter& distortion);

// Changes brightness, contrast, saturation, hue and the order of the channels of an image of blue, green and red, each at random, in one of
// SSD's two orders. Colours are those of OpenCV's conversions on 8 bits.
void Distort(const DistortionParameter& distortion, RandomSequence* random, Image* image);

// The steps of it, for tests. A pixel becomes scale * pixel + shift.
void ScaleAndShift(float scale, float shift, Image* image);
// The same of the saturation, then of the hue (0 to 179; what would be less is 0).
void ScaleAndShiftColours(float saturation, float hue, Image* image);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_DISTORT_H_
