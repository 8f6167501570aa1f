// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/net_outputs.h"

#include <algorithm>
#include <map>
#include <utility>

#include "frontends/caffe/train/numbers.h"

namespace poseidon::caffe {
namespace {

std::vector<std::string> NamesOf(const std::vector<OutputValue>& outputs) {
  std::vector<std::string> names;
  std::map<std::string, int> seen;
  for (const OutputValue& output : outputs) {
    const int before = seen[output.name]++;
    names.push_back(before == 0 ? output.name : output.name + "#" + std::to_string(before));
  }
  return names;
}

std::string RowLine(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) line += cell + ",";
  return line + "\n";
}

}  // namespace

NetOutputs::Row NetOutputs::RowOf(std::uint64_t iteration, double loss, const std::vector<OutputValue>& outputs) const {
  Row row{.iteration = iteration,
          .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(),
          .numbers = {loss}};
  for (const OutputValue& output : outputs) row.numbers.push_back(output.value);
  return row;
}

void NetOutputs::OnIteration(const IterationReport& report) {
  if (!report.display) return;
  if (train_.names.empty()) train_.names = NamesOf(report.outputs);
  train_.rows.push_back(RowOf(report.iteration, report.loss, report.outputs));
}

void NetOutputs::OnTest(const TestReport& report) {
  const auto net = static_cast<std::size_t>(report.net);
  tests_.resize(std::max(tests_.size(), net + 1));
  if (tests_[net].names.empty()) tests_[net].names = NamesOf(report.outputs);
  tests_[net].rows.push_back(RowOf(report.iteration, report.has_loss ? report.loss : 0, report.outputs));
}

Status NetOutputs::AverageTraining(int workers, Collectives* collectives) {
  std::vector<double> numbers;
  for (const Row& row : train_.rows) numbers.insert(numbers.end(), row.numbers.begin(), row.numbers.end());
  // Sums are of equally many numbers; all workers see alike whether they have those: P times the sum of squares is the square
  // of the sum for equal counts alone.
  const auto count = static_cast<double>(numbers.size());
  std::vector<double> counts = {count, count * count};
  POSEIDON_RETURN_IF_ERROR(collectives->SumDoubles(counts));
  if (workers * counts[1] != counts[0] * counts[0]) {
    return InvalidArgument("the training net's outputs hold different counts of numbers on the workers: their means, which the file "
                           "of net outputs would show, have no meaning");
  }
  if (numbers.empty()) return OkStatus();
  POSEIDON_RETURN_IF_ERROR(collectives->SumDoubles(numbers));
  auto sum = numbers.begin();
  for (Row& row : train_.rows) {
    for (double& number : row.numbers) number = *sum++ / workers;
  }
  return OkStatus();
}

Result<std::string> NetOutputs::Text(int workers, Collectives* collectives) {
  // Tests are means over all workers already.
  if (workers > 1) POSEIDON_RETURN_IF_ERROR(AverageTraining(workers, collectives));
  std::string text;
  const auto add = [&text](const Block& block) {
    if (block.rows.empty()) return;
    std::vector<std::string> cells = {"Iteration", "time", "loss"};
    cells.insert(cells.end(), block.names.begin(), block.names.end());
    text += RowLine(cells);
    for (const Row& row : block.rows) {
      cells = {std::to_string(row.iteration), NumberText("%g", row.seconds)};
      for (const double number : row.numbers) cells.push_back(NumberText("%g", number));
      text += RowLine(cells);
    }
    text += "\n";
  };
  add(train_);
  for (const Block& test : tests_) add(test);
  return text;
}

}  // namespace poseidon::caffe
