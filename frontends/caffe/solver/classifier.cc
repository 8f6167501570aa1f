// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/classifier.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "frontends/caffe/net/placement.h"
#include "poseidon/base/check.h"
#include "poseidon/base/listed.h"

namespace poseidon::caffe {
namespace {

Result<Blob*> InputOf(const Net& net) {
  Blob* found = nullptr;
  std::string names;
  int inputs = 0;
  for (int i = 0; i < net.layer_count(); ++i) {
    if (net.layer(i).type() != "Input") continue;
    for (std::size_t top = 0; top < net.tops(i).size(); ++top) {
      found = net.tops(i)[top];
      ++inputs;
      AddListed("'" + net.top_name(i, top) + "'", &names);
    }
  }
  if (names.empty()) return InvalidArgument("the net has no Input layer, expected a net for deployment, whose input is the image");
  if (inputs > 1) return InvalidArgument("the net has inputs " + names + ", expected one");
  if (found->shape().size() == 4) return found;
  return InvalidArgument("the net's input " + names + " has " + std::to_string(found->shape().size()) +
                         " axes, expected 4: number, channels, height, width");
}

Result<std::string> OutputOf(const Net& net) {
  std::string names;
  for (const NetOutput& output : net.outputs()) {
    if (net.outputs().size() == 1 || output.name == "prob") return output.name;
    AddListed("'" + output.name + "'", &names);
  }
  return InvalidArgument("the net has " + (names.empty() ? "no outputs" : "outputs " + names) + ", expected one, or one named 'prob'");
}

}  // namespace

Result<Classifier> Classifier::Make(Net* net) {
  POSEIDON_ASSIGN_OR_RETURN(Blob* const input, InputOf(*net));
  POSEIDON_ASSIGN_OR_RETURN(std::string output, OutputOf(*net));
  const Shape shape = input->shape();
  if (shape[1] * shape[2] * shape[3] == 0) return InvalidArgument("the net's input is empty, expected channels, height and width");
  return Classifier(net, input, std::move(output), {shape[1], shape[2], shape[3]},
                    static_cast<std::size_t>(std::max<std::int64_t>(1, shape[0])));
}

Result<std::vector<float>> Classifier::ScoreEach(const std::vector<float>& rows) {
  const std::int64_t count = static_cast<std::int64_t>(rows.size()) / shape_.count();
  POSEIDON_CHECK(count > 0 && count * shape_.count() == static_cast<std::int64_t>(rows.size()), "rows of another size than the net's input");
  input_->data = at::empty({count, shape_.channels, shape_.height, shape_.width}, input_->data.options());
  WriteOnHost(input_->data, [&](const at::Tensor& host) { std::copy(rows.begin(), rows.end(), host.mutable_data_ptr<float>()); });
  net_->BeginPass({});
  POSEIDON_RETURN_IF_ERROR(net_->Forward().status());
  const at::Tensor output = OnHost(net_->blob(output_)->data);
  if (output.dim() == 0 || output.size(0) != count || output.numel() == 0) {
    return InvalidArgument("output '" + output_ + "' has " + std::to_string(output.dim() == 0 ? 0 : output.size(0)) + " rows, expected scores for " +
                           std::to_string(count) + " images");
  }
  const float* const scores = output.const_data_ptr<float>();
  return std::vector<float>(scores, scores + output.numel());
}

Result<std::vector<float>> Classifier::Score(const std::vector<float>& rows) {
  POSEIDON_ASSIGN_OR_RETURN(const std::vector<float> each, ScoreEach(rows));
  const std::size_t count = rows.size() / static_cast<std::size_t>(shape_.count());
  std::vector<double> sums(each.size() / count);
  for (std::size_t i = 0; i < each.size(); ++i) sums[i % sums.size()] += double{each[i]};
  std::vector<float> scores;
  for (const double sum : sums) scores.push_back(static_cast<float>(sum / static_cast<double>(count)));
  return scores;
}

std::vector<std::size_t> TopPlaces(const std::vector<float>& scores, std::size_t count) {
  std::vector<std::size_t> places(scores.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  const auto larger = [&](std::size_t a, std::size_t b) {
    if (std::isnan(scores[a]) || std::isnan(scores[b])) return std::isnan(scores[b]) && !std::isnan(scores[a]);
    return scores[a] > scores[b];
  };
  std::stable_sort(places.begin(), places.end(), larger);
  places.resize(std::min(count, places.size()));
  return places;
}

}  // namespace poseidon::caffe
