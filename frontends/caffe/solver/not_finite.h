// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_NOT_FINITE_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_NOT_FINITE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "frontends/caffe/net/net.h"

namespace poseidon::caffe {

// Where numbers of a training run ceased to be finite.
struct NotFinite {
  std::uint64_t iteration = 0;
  int worker = 0;
  double loss = 0;       // NaN or infinite; finite where only weights are found broken
  int loss_layer = -1;   // whose weighted output is not finite
  int layer = -1;        // the first, in the net's order, with a number that is not finite; -1: none was found
  bool weights = false;  // it is among the layer's weights, else in its output

  // As numbers that several workers can bring together by adding; all zero: nothing is wrong.
  static constexpr std::size_t kNumbers = 6;
  std::array<double, kNumbers> ToNumbers() const;
  static std::optional<NotFinite> FromNumbers(std::span<const double> numbers, int worker);
};

// Which of two is the cause: within an iteration a loss breaks before the weights do.
bool IsBefore(const NotFinite& one, const NotFinite& other);

// Finds what is not finite after a forward pass that gave `loss`, itself not finite. Reads all weights and blobs of
// the net: as long as a pass, at worst.
NotFinite FindNotFinite(const Net& net, std::uint64_t iteration, double loss);

// The first layer whose learned blobs hold a number that is not finite; -1: there is none.
int LayerWithBrokenWeights(const Net& net);

// "the loss is nan at iteration 12 on worker 1 (output 'loss' of layer 'loss'); ...".
std::string InWords(const NotFinite& found, const Net& net, int workers);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_NOT_FINITE_H_
