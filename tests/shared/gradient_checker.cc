// SPDX-License-Identifier: Apache-2.0
#include "tests/shared/gradient_checker.h"

#include <ATen/ops/empty_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "frontends/caffe/layers/registry.h"
#include "frontends/caffe/net/random.h"
#include "frontends/caffe/proto/read.h"
#include "frontends/caffe/proto/upgrade.h"
#include "poseidon/base/check.h"

namespace poseidon::caffe {
namespace {

Result<std::unique_ptr<Net>> Build(const std::string& text, Phase phase,
                                   const NetOptions& options) {
  NetParameter param;
  POSEIDON_RETURN_IF_ERROR(ParseText(text, "net", &param));
  POSEIDON_RETURN_IF_ERROR(UpgradeNet("net", &param));
  NetState state = param.state();
  state.set_phase(phase);
  return Net::Create(param, state, MakeLayer, options);
}

// The function whose gradient Backward computes.
class Objective {
 public:
  struct Input {
    Blob* blob;
    at::Tensor numbers;  // what the blob is given before every pass
  };

  explicit Objective(Net* net) : net_(net) {
    Forward();
    std::uint64_t seed = 1000;
    for (const NetOutput& output : net->outputs()) {
      at::Tensor weights;
      if (output.loss_weight == 0) {
        weights = at::empty_like(output.blob->data);
        FillTestNumbers(weights, ++seed);
      }
      weights_.push_back(weights);
    }
  }

  double Value() {
    double value = Forward();
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      if (!weights_[i].defined()) continue;
      value += net_->outputs()[i].blob->data.mul(weights_[i]).sum().item<double>();
    }
    return value;
  }

  // Backward after a Forward, adding to what is there or not.
  void Gradients(bool add) {
    Forward();
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      if (weights_[i].defined()) net_->outputs()[i].blob->diff = weights_[i].clone();
    }
    if (!add) net_->ClearParamDiffs();
    const Status status = net_->Backward();
    POSEIDON_CHECK(status.ok(), status.message().c_str());
  }

  std::vector<Input>& inputs() { return inputs_; }

 private:
  // In-place layers may change an input: it is put back first.
  double Forward() {
    if (inputs_.empty()) {
      for (Blob* input : net_->tops(0)) inputs_.push_back({input, input->data});
    }
    for (auto& [blob, numbers] : inputs_) blob->data = numbers.clone();
    const auto loss = net_->Forward();
    POSEIDON_CHECK(loss.ok(), loss.status().message().c_str());
    return *loss;
  }

  Net* net_;
  std::vector<Input> inputs_;
  std::vector<at::Tensor> weights_;
};

void CompareWithDifferences(const std::string& what, const at::Tensor& point,
                            const at::Tensor& gradient, Objective* objective,
                            const GradientCheck& check) {
  ASSERT_TRUE(gradient.defined()) << what;
  double* x = point.data_ptr<double>();
  const at::Tensor kept = gradient.contiguous();
  const double* g = kept.const_data_ptr<double>();
  for (std::int64_t i = 0; i < point.numel(); ++i) {
    const double middle = x[i];
    x[i] = middle + check.step;
    const double above = objective->Value();
    x[i] = middle - check.step;
    const double below = objective->Value();
    x[i] = middle;
    const double difference = (above - below) / (2 * check.step);
    const double scale = std::max({1.0, std::fabs(g[i]), std::fabs(difference)});
    ASSERT_NEAR(g[i], difference, check.tolerance * scale) << what << " at " << i;
  }
}

}  // namespace

std::unique_ptr<Net> MakeNet(const std::string& text, Phase phase, const NetOptions& options) {
  auto net = Build(text, phase, options);
  POSEIDON_CHECK(net.ok(), net.status().message().c_str());
  return std::move(net).value();
}

std::string WhyNoNet(const std::string& text, Phase phase, const NetOptions& options) {
  const auto net = Build(text, phase, options);
  return net.ok() ? "there is such a net" : net.status().message();
}

std::string InputsOf(const std::string& inputs) {
  std::istringstream words(inputs);
  std::string tops;
  std::string shapes;
  for (std::string name, dims; words >> name >> dims;) {
    tops += "top: '" + name + "' ";
    shapes += "shape { dim: ";
    for (const char d : dims) shapes += d == 'x' ? std::string(" dim: ") : std::string(1, d);
    shapes += " } ";
  }
  return "layer { name: 'in' type: 'Input' " + tops + "input_param { " + shapes + "} }\n";
}

void FillTestNumbers(const at::Tensor& tensor, std::uint64_t seed, const InputRange& range) {
  const RandomStream stream(seed, RandomPurpose::kFiller, "test", 0);
  at::Tensor numbers = tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kDouble);
  double* out = numbers.data_ptr<double>();
  for (std::int64_t i = 0; i < numbers.numel(); ++i) {
    const double unit = UnitInterval(stream.Draw(0, static_cast<std::uint64_t>(i))[0]);
    out[i] = range.low + (range.high - range.low) * unit;
    if (range.whole) out[i] = std::floor(out[i]);
  }
  if (tensor.scalar_type() != at::kDouble) tensor.copy_(numbers);
}

void CheckGradients(const std::string& text, const GradientCheck& check) {
  NetOptions options;
  options.dtype = DType::kF64;
  const std::unique_ptr<Net> net = MakeNet("force_backward: true\n" + text, check.phase, options);
  ASSERT_EQ(net->layer(0).type(), "Input");
  const auto& names = net->layer(0).param().top();
  std::uint64_t seed = 0;
  for (int i = 0; i < names.size(); ++i) {
    const auto range = check.ranges.find(names.Get(i));
    FillTestNumbers(net->tops(0)[static_cast<std::size_t>(i)]->data, ++seed,
                    range == check.ranges.end() ? InputRange() : range->second);
  }
  Objective objective(net.get());
  objective.Gradients(/*add=*/false);

  // Gradients are kept before the differences run more passes.
  std::vector<at::Tensor> input_gradients;
  for (const auto& input : objective.inputs()) {
    input_gradients.push_back(input.blob->diff.defined() ? input.blob->diff.clone()
                                                         : at::Tensor());
  }
  std::vector<at::Tensor> param_gradients;
  for (const LearnableParam& param : net->learnable_params()) {
    param_gradients.push_back(param.blob.diff.clone());
  }
  for (std::size_t i = 0; i < objective.inputs().size(); ++i) {
    const std::string& name = names.Get(static_cast<int>(i));
    if (std::find(check.without_gradient.begin(), check.without_gradient.end(), name) !=
        check.without_gradient.end()) {
      continue;
    }
    CompareWithDifferences("gradient of blob " + name, objective.inputs()[i].numbers,
                           input_gradients[i], &objective, check);
  }
  for (std::size_t i = 0; i < param_gradients.size(); ++i) {
    const LearnableParam& param = net->learnable_params()[i];
    if (param.statistics) continue;
    CompareWithDifferences(net->layer(param.layer).name() + "[" + std::to_string(param.index) + "]",
                           param.blob.data, param_gradients[i], &objective, check);
  }
  objective.Gradients(/*add=*/false);
  objective.Gradients(/*add=*/true);
  for (std::size_t i = 0; i < param_gradients.size(); ++i) {
    const at::Tensor twice = param_gradients[i].mul(2);
    const double off =
        net->learnable_params()[i].blob.diff.sub(twice).abs().max().item<double>();
    EXPECT_LE(off, 1e-12 * std::max(1.0, twice.abs().max().item<double>()))
        << "a second pass does not add to the first";
  }
}

}  // namespace poseidon::caffe
