// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_LAYERS_LABELS_H_
#define POSEIDON_FRONTENDS_CAFFE_LAYERS_LABELS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "frontends/caffe/net/layer.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// Scores over classes seen as [outer, classes, inner], whichever axis has the classes.
struct ClassView {
  std::int64_t axis = 1;
  std::int64_t outer = 1;
  std::int64_t classes = 1;
  std::int64_t inner = 1;
};

// The view of `scores` along `axis`; fails when `labels` does not hold one label per row.
Result<ClassView> ViewClasses(const Blob& scores, const Blob& labels, std::int64_t axis);

// The view of scores over the rows of `weight` [classes, numbers] for rows of numbers, which `rows` has from `axis` on; fails when the
// numbers are not as many, or `labels` does not hold one label per row.
Result<ClassView> ViewRows(const Blob& rows, const Blob& labels, std::int64_t axis, const at::Tensor& weight);

// Labels, kept as floating point like everything in Caffe, as indices [outer, 1, inner]. Where the
// label is `ignored` the index is 0 and `valid` (same shape, of the net's dtype) is 0; elsewhere
// `valid` is 1. `valid` is undefined when nothing is ignored.
struct Labels {
  at::Tensor index;
  at::Tensor valid;
  std::int64_t valid_count = 0;
};

// Fails, naming the label, when one is outside [0, classes), and says in *bad_row, where that is not null, which row it is of.
Result<Labels> ReadLabels(const at::Tensor& labels, const ClassView& view, std::optional<int> ignored,
                          std::optional<std::int64_t>* bad_row);

// Returns the divisor that `loss` asks for of a loss summed over its labels, never below 1. `fallback` as below.
double Normalizer(const LossParameter& loss, LossParameter::NormalizationMode fallback, const ClassView& view,
                  std::int64_t valid_count);

// The mode that `loss` asks for: `normalization`, else the older `normalize`, else `fallback`.
LossParameter::NormalizationMode NormalizationOf(const LossParameter& loss,
                                                 LossParameter::NormalizationMode fallback);

// Whether a loss with these options is a mean over the samples that are not ignored, and over no others.
bool IsMaskedMean(const LossParameter& loss, LossParameter::NormalizationMode fallback);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_LAYERS_LABELS_H_
