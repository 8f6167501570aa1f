// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TESTS_SHARED_NET_TRIAL_H_
#define POSEIDON_TESTS_SHARED_NET_TRIAL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/shared/gradient_checker.h"

namespace poseidon::caffe {

// A layer named l from `bottoms` to out.
inline std::string LayerOf(const std::string& type, const std::string& bottoms, const std::string& options) {
  std::istringstream words(bottoms);
  std::string text = "layer { name: 'l' type: '" + type + "' ";
  for (std::string name; words >> name;) text += "bottom: '" + name + "' ";
  return text + "top: 'out' " + options + " }\n";
}

// A net in f64 whose inputs are given numbers.
class Trial {
 public:
  explicit Trial(const std::string& text, Phase phase = TRAIN) {
    NetOptions options;
    options.dtype = DType::kF64;
    net_ = MakeNet("force_backward: true\n" + text, phase, options);
  }
  Trial& Give(const std::string& blob, const std::vector<double>& numbers) {
    Put(net_->blob(blob)->data, numbers);
    return *this;
  }
  Trial& GiveParam(std::size_t index, const std::vector<double>& numbers) {
    Put(ParamData(index), numbers);
    return *this;
  }
  std::string Error() { return net_->Forward().status().message(); }
  std::vector<double> Run(const std::string& blob = "out") {
    const auto loss = net_->Forward();
    EXPECT_TRUE(loss.ok()) << loss.status().message();
    return Numbers(net_->blob(blob)->data);
  }
  void Backward() { ASSERT_TRUE(net_->Backward().ok()); }
  Net& net() { return *net_; }
  std::vector<double> Param(std::size_t index) { return Numbers(ParamData(index)); }
  static std::vector<double> Numbers(const at::Tensor& tensor) {
    const at::Tensor flat = tensor.contiguous();
    return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
  }

 private:
  at::Tensor ParamData(std::size_t index) { return net_->learnable_params()[index].blob.data; }
  static void Put(const at::Tensor& tensor, const std::vector<double>& numbers) {
    ASSERT_EQ(tensor.numel(), static_cast<std::int64_t>(numbers.size()));
    std::copy(numbers.begin(), numbers.end(), tensor.mutable_data_ptr<double>());
  }

  std::unique_ptr<Net> net_;
};

inline void ExpectNear(const std::vector<double>& got, const std::vector<double>& expected, double tolerance = 1e-8) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << "at " << i;
}

inline std::vector<double> UpTo(int count) {
  std::vector<double> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(i);
  return numbers;
}

// The gradient of a net's loss, of inputs alone, against central differences.
inline void ExpectGradients(Trial& trial, const std::vector<std::string>& blobs) {
  trial.Run();
  trial.Backward();
  for (const std::string& blob : blobs) {
    std::vector<double> numbers = Trial::Numbers(trial.net().blob(blob)->data);
    const std::vector<double> gradient = Trial::Numbers(trial.net().blob(blob)->diff);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto loss = [&](double number) {
        std::vector<double> others = numbers;
        others[i] = number;
        trial.Give(blob, others);
        return *trial.net().Forward();
      };
      EXPECT_NEAR(gradient[i], (loss(numbers[i] + 1e-6) - loss(numbers[i] - 1e-6)) / 2e-6, 2e-7) << blob << " at " << i;
    }
    trial.Give(blob, numbers);
  }
}

}  // namespace poseidon::caffe

#endif  // POSEIDON_TESTS_SHARED_NET_TRIAL_H_
