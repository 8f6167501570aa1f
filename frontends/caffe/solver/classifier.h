// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_CLASSIFIER_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_CLASSIFIER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "frontends/caffe/data/image.h"
#include "frontends/caffe/net/net.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// A net with one input and one output, by which images are scored. Lifetime: within the net's. Thread: one at a time.
class Classifier {
 public:
  // Fails unless the net has one blob of four axes that an Input layer makes, and one output, or one named `prob`.
  static Result<Classifier> Make(Net* net);

  // Of one row of the input.
  const ImageShape& input() const { return shape_; }

  // How many rows the net's own input has, at least 1: a size for batches.
  std::size_t batch() const { return batch_; }

  // Runs `rows`, as Score does, and returns the scores of one row after another.
  Result<std::vector<float>> ScoreEach(const std::vector<float>& rows);

  // Runs `rows`, which holds rows of the input's shape one after another, through the net as one batch, and returns the mean of
  // the scores over them.
  Result<std::vector<float>> Score(const std::vector<float>& rows);

 private:
  Classifier(Net* net, Blob* input, std::string output, const ImageShape& shape, std::size_t batch)
      : net_(net), input_(input), output_(std::move(output)), shape_(shape), batch_(batch) {}

  Net* net_;
  Blob* input_;
  std::string output_;
  ImageShape shape_;
  std::size_t batch_;
};

// The places of the `count` largest scores, the largest first; of equal ones the first first, NaN last.
std::vector<std::size_t> TopPlaces(const std::vector<float>& scores, std::size_t count);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_CLASSIFIER_H_
