// SPDX-License-Identifier: Apache-2.0
// `poseidon time`: forward and backward time of a net, layer by layer, as `caffe time` does.
#include <ATen/Parallel.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "frontends/caffe/net/net.h"
#include "tools/console/fail.h"
#include "tools/train/commands.h"
#include "tools/train/net_flags.h"
#include "tools/train/processor_share.h"

namespace poseidon::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct Timed {
  std::vector<double> forward, backward;
  double forward_total = 0, backward_total = 0;
};

double Milliseconds(Clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

// Both passes, timed as a whole and by layer through the hooks.
void OnePass(caffe::Net& net, std::uint64_t step, Timed* timed) {
  std::vector<Clock::time_point> begin(static_cast<std::size_t>(net.layer_count()));
  caffe::NetHooks hooks;
  const auto start = [&begin](int layer) {
    begin[static_cast<std::size_t>(layer)] = Clock::now();
    return OkStatus();
  };
  hooks.before_forward = hooks.before_backward = start;
  hooks.after_forward = [&](int layer) {
    const auto i = static_cast<std::size_t>(layer);
    timed->forward[i] += Milliseconds(Clock::now() - begin[i]);
    return OkStatus();
  };
  hooks.after_backward = [&](int layer) {
    const auto i = static_cast<std::size_t>(layer);
    timed->backward[i] += Milliseconds(Clock::now() - begin[i]);
    return OkStatus();
  };
  net.BeginPass({.step = step, .pass = 0, .batch = step});
  const auto forward = Clock::now();
  const Result<double> loss = net.Forward(hooks);
  if (!loss.ok()) Fail(loss.status().message());
  const auto backward = Clock::now();
  net.ClearParamDiffs();
  if (const Status s = net.Backward(hooks); !s.ok()) Fail(s.message());
  const auto end = Clock::now();
  timed->forward_total += Milliseconds(backward - forward);
  timed->backward_total += Milliseconds(end - backward);
}

}  // namespace

void AddTime(CLI::App& app) {
  auto flags = std::make_shared<NetFlags>();
  CLI::App* c = app.add_subcommand("time", "Time a Caffe net layer by layer");
  c->footer("  poseidon time --model net.prototxt --threads 4");
  AddNetFlags(*c, *flags);
  c->callback([flags] {
    const std::unique_ptr<caffe::Net> net = BuildNet(*flags);
    if (!flags->weights.empty()) LoadWeights(*flags, net.get());
    const auto layers = static_cast<std::size_t>(net->layer_count());
    Timed timed{std::vector<double>(layers), std::vector<double>(layers), 0, 0};
    Timed warm = timed;
    OnePass(*net, 0, &warm);
    const ProcessorShare share;
    for (int i = 1; i <= flags->iterations; ++i) OnePass(*net, static_cast<std::uint64_t>(i), &timed);
    std::printf("average over %d iterations, milliseconds\n%-28s %12s %12s\n", flags->iterations,
                "layer", "forward", "backward");
    for (std::size_t i = 0; i < layers; ++i) {
      std::printf("%-28s %12.4f %12.4f\n", net->layer(static_cast<int>(i)).name().c_str(),
                  timed.forward[i] / flags->iterations, timed.backward[i] / flags->iterations);
    }
    std::printf("forward pass: %.3f ms\nbackward pass: %.3f ms\nforward-backward: %.3f ms\n",
                timed.forward_total / flags->iterations, timed.backward_total / flags->iterations,
                (timed.forward_total + timed.backward_total) / flags->iterations);
    if (const std::string warning = BusyMachineWarning(share.now(), at::get_num_threads()); !warning.empty()) {
      std::fprintf(stderr, "poseidon: %s\n", warning.c_str());
    }
  });
}

}  // namespace poseidon::tools
