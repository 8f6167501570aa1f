// SPDX-License-Identifier: Apache-2.0
// Measures what subnormal numbers cost a net, and shows that they cost nothing once they are flushed to zero.
//
//   subnormals_bench [ROUNDS]
//
// Two convolutions behind a Sigmoid that is saturated (its outputs, and with them all gradients below it, are about
// 5e-39), and the same net with a Sigmoid in its middle. Times are medians over rounds in which both modes and both
// nets take turns, each on a thread of its own with a pool of its own.
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "frontends/caffe/layers/registry.h"
#include "frontends/caffe/net/net.h"
#include "frontends/caffe/net/subnormals.h"
#include "frontends/caffe/proto/read.h"

namespace poseidon::caffe {
namespace {

constexpr char kNet[] = R"(
  force_backward: true
  layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 32 dim: 16 dim: 28 dim: 28 } } }
  layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
    convolution_param { num_output: 32 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
  layer { name: "conv2" type: "Convolution" bottom: "conv1" top: "conv2"
    convolution_param { num_output: 32 kernel_size: 3 pad: 1 weight_filler { type: "xavier" }
      bias_filler { type: "constant" value: BIAS } } }
  layer { name: "act" type: "Sigmoid" bottom: "conv2" top: "act" }
  layer { name: "sum" type: "Reduction" bottom: "act" top: "sum" loss_weight: 1 })";

struct Measured {
  double milliseconds = 0;
  bool has_subnormals = false;  // among the gradients of the upper convolution's outputs
};

[[noreturn]] void Fail(const std::string& sentence) {
  std::fprintf(stderr, "subnormals_bench: %s\n", sentence.c_str());
  std::exit(1);
}

Measured Backward(bool saturated) {
  std::string text = kNet;
  text.replace(text.find("BIAS"), 4, saturated ? "-88.2" : "0");
  NetParameter parameters;
  if (const Status status = ParseText(text, "net", &parameters); !status.ok()) Fail(status.message());
  NetState state;
  state.set_phase(TRAIN);
  Result<std::unique_ptr<Net>> made = Net::Create(parameters, state, MakeLayer, {});
  if (!made.ok()) Fail(made.status().message());
  Net& net = **made;
  net.blob("data")->data.fill_(0.01);
  Measured measured;
  for (int pass = 0; pass < 2; ++pass) {  // the first one pays for memory and plans
    net.ClearParamDiffs();
    if (const Result<double> loss = net.Forward(); !loss.ok()) Fail(loss.status().message());
    const auto begin = std::chrono::steady_clock::now();
    if (const Status status = net.Backward(); !status.ok()) Fail(status.message());
    measured.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }
  const at::Tensor diff = net.blob("conv2")->diff.contiguous();
  const float* numbers = diff.const_data_ptr<float>();
  measured.has_subnormals = std::any_of(numbers, numbers + diff.numel(), [](float number) {
    return std::fpclassify(number) == FP_SUBNORMAL;
  });
  return measured;
}

Measured OnAThreadOfItsOwn(bool flushes, bool saturated) {
  Measured measured;
  std::thread([&] {
    if (flushes) FlushSubnormals();
    at::set_num_threads(static_cast<int>(std::thread::hardware_concurrency()));
    measured = Backward(saturated);
  }).join();
  return measured;
}

double Median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

int Run(int rounds) {
  if (!OnAThreadOfItsOwn(false, true).has_subnormals) Fail("the saturated net has no subnormal gradients");
  if (OnAThreadOfItsOwn(true, true).has_subnormals) Fail("subnormal gradients are not flushed to zero");
  std::array<std::vector<double>, 4> times;  // by saturated, flushes
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < times.size(); ++i) {
      times[i].push_back(OnAThreadOfItsOwn((i & 1) != 0, (i & 2) != 0).milliseconds);
    }
  }
  std::array<double, 4> median{};
  std::transform(times.begin(), times.end(), median.begin(), Median);
  std::printf("backward of two convolutions, %u threads, median of %d, milliseconds\n%-28s %10s %10s\n"
              "%-28s %10.2f %10.2f\n%-28s %10.2f %10.2f\n%-28s %10.2f %10.2f\n",
              std::thread::hardware_concurrency(), rounds, "", "computed", "flushed", "behind an active Sigmoid",
              median[0], median[1], "behind a saturated Sigmoid", median[2], median[3], "saturated / active",
              median[2] / median[0], median[3] / median[1]);
  return 0;
}

}  // namespace
}  // namespace poseidon::caffe

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  return poseidon::caffe::Run(rounds > 0 ? rounds : 7);
}
