// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/test_run.h"

#include <algorithm>
#include <vector>

#include "poseidon/base/check.h"

namespace poseidon::caffe {
namespace {

// Of each worker, between two sums over the workers.
constexpr int kBatchesAtOnce = 16;

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

Result<TestMeans> RunTest(Net* net, const TestRun& run) {
  POSEIDON_CHECK(run.share.world == 1 || run.collectives != nullptr,
                 "a test on several workers needs their collectives");
  TestMeans means{.outputs = OutputsOf(*net), .loss = 0};
  const std::size_t width = means.outputs.size() + 1;
  std::vector<double> sums(width);
  const int block = run.share.world == 1 ? 1 : kBatchesAtOnce * run.share.world;
  // One row per batch of a block: its outputs, then its loss; zeros where another worker computes it. Behind them
  // how many workers want to stop.
  std::vector<double> table;
  for (int begin = 0; begin < run.batches && !means.stopped;) {
    const int count = std::min(block, run.batches - begin);
    table.assign(width * static_cast<std::size_t>(count) + 1, 0);
    for (int i = 0; i < count; ++i) {
      const std::uint64_t batch = run.first_batch + static_cast<std::uint64_t>(begin + i);
      if (!IsTestBatchOf(run.share, batch)) continue;
      net->BeginPass({.step = batch, .pass = 0, .batch = batch});
      POSEIDON_ASSIGN_OR_RETURN(const double loss, net->Forward(run.hooks));
      const std::vector<OutputValue> outputs = OutputsOf(*net);
      if (outputs.size() + 1 != width) {
        return InvalidArgument("the test net's outputs hold " + std::to_string(outputs.size()) +
                               " numbers after batch " + std::to_string(begin + i) + ", expected " +
                               std::to_string(width - 1) + " in every batch: their mean has no meaning else");
      }
      double* row = table.data() + width * static_cast<std::size_t>(i);
      for (const OutputValue& output : outputs) *row++ = output.value;
      *row = loss;
      if (run.on_batch) run.on_batch(begin + i, outputs);
    }
    if (run.stop_wanted && run.stop_wanted()) table.back() = 1;
    if (run.share.world > 1) POSEIDON_RETURN_IF_ERROR(run.collectives->SumDoubles(table));
    for (std::size_t at = 0; at + 1 < table.size(); ++at) sums[at % width] += table[at];
    begin += count;
    means.stopped = table.back() > 0 && begin < run.batches;
  }
  for (std::size_t i = 0; i + 1 < width; ++i) means.outputs[i].value = sums[i] / run.batches;
  means.loss = sums[width - 1] / run.batches;
  return means;
}

}  // namespace poseidon::caffe
