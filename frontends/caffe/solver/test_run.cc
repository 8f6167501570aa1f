// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/test_run.h"

#include <algorithm>
#include <vector>

#include "poseidon/base/check.h"

namespace poseidon::caffe {
namespace {

double ElementAt(const at::Tensor& tensor, std::int64_t i) {
  return tensor.scalar_type() == at::kDouble ? tensor.const_data_ptr<double>()[i]
                                             : double{tensor.const_data_ptr<float>()[i]};
}

}  // namespace

std::vector<OutputValue> OutputsOf(const Net& net) {
  std::vector<OutputValue> values;
  for (const NetOutput& output : net.outputs()) {
    const at::Tensor numbers = output.blob->data.contiguous();
    for (std::int64_t i = 0; i < numbers.numel(); ++i) {
      values.push_back({.name = output.name,
                        .value = ElementAt(numbers, i),
                        .loss_weight = static_cast<double>(output.loss_weight)});
    }
  }
  return values;
}

Result<TestMeans> RunTest(Net* net, std::uint64_t first_batch, int batches, DataShare share,
                          Collectives* collectives) {
  POSEIDON_CHECK(share.world == 1 || collectives != nullptr,
                 "a test on several workers needs their collectives");
  // One row per batch: its outputs, then its loss; zeros where another worker computes it.
  TestMeans means{.outputs = OutputsOf(*net), .loss = 0};
  const std::size_t width = means.outputs.size() + 1;
  std::vector<double> table(width * static_cast<std::size_t>(batches));
  for (int i = share.rank; i < batches; i += share.world) {
    const std::uint64_t batch = first_batch + static_cast<std::uint64_t>(i);
    net->BeginPass({.step = batch, .pass = 0, .batch = batch});
    POSEIDON_ASSIGN_OR_RETURN(const double loss, net->Forward());
    const std::vector<OutputValue> outputs = OutputsOf(*net);
    if (outputs.size() + 1 != width) {
      return InvalidArgument("the test net's outputs hold " + std::to_string(outputs.size()) + " numbers after batch " +
                             std::to_string(i) + ", expected " + std::to_string(width - 1) +
                             " in every batch: their mean has no meaning else");
    }
    double* row = table.data() + width * static_cast<std::size_t>(i);
    for (const OutputValue& output : outputs) *row++ = output.value;
    *row = loss;
  }
  if (share.world > 1) POSEIDON_RETURN_IF_ERROR(collectives->SumDoubles(table));

  std::vector<double> sums(width);
  for (std::size_t at = 0; at < table.size(); ++at) sums[at % width] += table[at];
  for (std::size_t i = 0; i + 1 < width; ++i) means.outputs[i].value = sums[i] / batches;
  means.loss = sums[width - 1] / batches;
  return means;
}

}  // namespace poseidon::caffe
