// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/test_run.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "frontends/caffe/net/placement.h"
#include "poseidon/base/check.h"

namespace poseidon::caffe {
namespace {

// Of each worker, between two sums over the workers.
constexpr int kBatchesAtOnce = 16;

double ElementAt(const at::Tensor& tensor, std::int64_t i) {
  return tensor.scalar_type() == at::kDouble ? tensor.const_data_ptr<double>()[i]
                                             : double{tensor.const_data_ptr<float>()[i]};
}

// Batches between two exchanges.
int BlockOf(const TestRun& run) { return run.share.world == 1 ? 1 : kBatchesAtOnce * run.share.world; }

// Runs those of the `count` batches from `begin` on that are this worker's, and calls take(i, loss) behind each, i from 0.
template <typename Take>
Status ForOwnBatches(Net* net, const TestRun& run, int begin, int count, const Take& take) {
  POSEIDON_CHECK(run.share.world == 1 || run.collectives != nullptr, "a test on several workers needs their collectives");
  for (int i = 0; i < count; ++i) {
    const std::uint64_t batch = run.first_batch + static_cast<std::uint64_t>(begin + i);
    if (!IsTestBatchOf(run.share, batch)) continue;
    net->BeginPass({.step = batch, .pass = 0, .batch = batch});
    POSEIDON_ASSIGN_OR_RETURN(const double loss, net->Forward(run.hooks));
    POSEIDON_RETURN_IF_ERROR(take(i, loss));
  }
  return OkStatus();
}

}  // namespace

std::vector<OutputValue> OutputsOf(const Net& net) {
  std::vector<OutputValue> values;
  for (const NetOutput& output : net.outputs()) {
    const at::Tensor numbers = OnHost(output.blob->data);
    for (std::int64_t i = 0; i < numbers.numel(); ++i) {
      values.push_back({.name = output.name,
                        .value = ElementAt(numbers, i),
                        .loss_weight = static_cast<double>(output.loss_weight)});
    }
  }
  return values;
}

Result<TestMeans> RunTest(Net* net, const TestRun& run) {
  TestMeans means{.outputs = OutputsOf(*net), .loss = 0};
  const std::size_t width = means.outputs.size() + 1;
  std::vector<double> sums(width);
  // One row per batch of a block: its outputs, then its loss; zeros where another worker computes it. Behind them
  // how many workers want to stop.
  std::vector<double> table;
  for (int begin = 0; begin < run.batches && !means.stopped;) {
    const int count = std::min(BlockOf(run), run.batches - begin);
    table.assign(width * static_cast<std::size_t>(count) + 1, 0);
    POSEIDON_RETURN_IF_ERROR(ForOwnBatches(net, run, begin, count, [&](int i, double loss) {
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
      return OkStatus();
    }));
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

Result<TestPrecision> RunDetectionTest(Net* net, const TestRun& run, ApVersion version) {
  constexpr std::size_t kColumns = AveragePrecision::kColumns;
  TestPrecision result;
  const std::size_t outputs = net->outputs().size();
  std::vector<AveragePrecision> precisions(outputs);
  for (int begin = 0; begin < run.batches && !result.stopped;) {
    const int count = std::min(BlockOf(run), run.batches - begin);
    std::vector<std::vector<double>> own(outputs * static_cast<std::size_t>(count));  // numbers of each batch and output
    // How many there are; behind them how many workers want to stop.
    std::vector<double> sizes(own.size() + 1);
    POSEIDON_RETURN_IF_ERROR(ForOwnBatches(net, run, begin, count, [&](int i, double /*loss*/) {
      for (std::size_t o = 0; o < outputs; ++o) {
        const NetOutput& output = net->outputs()[o];
        const at::IntArrayRef shape = output.blob->data.sizes();
        if (shape.empty() || shape.back() != static_cast<std::int64_t>(kColumns)) {
          return InvalidArgument("output '" + output.name + "' has shape " + ShapeText(shape) +
                                 ", expected rows of 5 numbers for eval_type: \"detection\", as DetectionEvaluate makes them");
        }
        const at::Tensor numbers = OnHost(output.blob->data.to(at::kDouble));
        const std::size_t at = outputs * static_cast<std::size_t>(i) + o;
        own[at].assign(numbers.const_data_ptr<double>(), numbers.const_data_ptr<double>() + numbers.numel());
        sizes[at] = static_cast<double>(own[at].size());
      }
      return OkStatus();
    }));
    if (run.stop_wanted && run.stop_wanted()) sizes.back() = 1;
    if (run.share.world > 1) POSEIDON_RETURN_IF_ERROR(run.collectives->SumDoubles(sizes));
    std::vector<double> all;
    for (std::size_t at = 0; at < own.size(); ++at) {
      const std::size_t offset = all.size();
      all.resize(offset + static_cast<std::size_t>(sizes[at]));
      std::copy(own[at].begin(), own[at].end(), all.begin() + static_cast<std::ptrdiff_t>(offset));
    }
    if (run.share.world > 1) POSEIDON_RETURN_IF_ERROR(run.collectives->SumDoubles(all));
    const double* row = all.data();
    for (std::size_t at = 0; at < own.size(); ++at) {
      for (const double* const end = row + static_cast<std::ptrdiff_t>(sizes[at]); row != end; row += kColumns) {
        precisions[at % outputs].Add(std::span<const double, kColumns>(row, kColumns));
      }
    }
    begin += count;
    result.stopped = sizes.back() > 0 && begin < run.batches;
  }
  for (std::size_t o = 0; o < outputs; ++o) {
    result.classes.push_back(precisions[o].OfClasses(version));
    result.outputs.push_back({.name = net->outputs()[o].name, .value = AveragePrecision::Mean(result.classes.back())});
  }
  return result;
}

}  // namespace poseidon::caffe
