// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TESTS_SHARED_GRADIENT_CHECKER_H_
#define POSEIDON_TESTS_SHARED_GRADIENT_CHECKER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "frontends/caffe/net/net.h"

namespace poseidon::caffe {

// A net from prototxt text; a mistake fails the running test and aborts it.
std::unique_ptr<Net> MakeNet(const std::string& text, Phase phase = TRAIN,
                             const NetOptions& options = {});
// Why there is no such net.
std::string WhyNoNet(const std::string& text, Phase phase = TRAIN, const NetOptions& options = {});

// A layer of type Input, from "data 2x3x4 label 2".
std::string InputsOf(const std::string& inputs);

// Numbers an input is filled with: uniform in [low, high), or whole numbers of that range.
struct InputRange {
  double low = -1;
  double high = 1;
  bool whole = false;
};

// Overwrites `tensor` with numbers that depend on `seed` and `range` only.
void FillTestNumbers(const at::Tensor& tensor, std::uint64_t seed, const InputRange& range = {});

struct GradientCheck {
  std::map<std::string, InputRange> ranges;       // of input blobs; others take the default
  std::vector<std::string> without_gradient;      // inputs not to be checked: labels, indices
  double step = 1e-5;                             // of the central difference
  double tolerance = 2e-7;                        // relative to max(1, |gradient|)
  Phase phase = TRAIN;
};

// Compares Backward with central differences in f64. The net in `text` reads the tops of a layer of
// type Input; the function of which the gradient is taken is the loss plus every other output times
// fixed random weights. Checked are all inputs and all learned blobs that are trained, at every
// element, and that a second pass adds its gradients to those of the first.
void CheckGradients(const std::string& text, const GradientCheck& check = {});

}  // namespace poseidon::caffe

#endif  // POSEIDON_TESTS_SHARED_GRADIENT_CHECKER_H_
