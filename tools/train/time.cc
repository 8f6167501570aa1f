// SPDX-License-Identifier: Apache-2.0
// `poseidon time`: forward and backward time of a net, layer by layer, as `caffe time` does.
#include <ATen/Parallel.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "frontends/caffe/net/net.h"
#include "frontends/caffe/solver/work_clock.h"
#include "poseidon/plan/layer_clock.h"
#include "tools/console/fail.h"
#include "tools/train/commands.h"
#include "tools/train/net_flags.h"
#include "tools/train/processor_share.h"

namespace poseidon::tools {
namespace {

struct Timed {
  std::vector<double> forward, backward;  // milliseconds, by layer
  double forward_total = 0, backward_total = 0;
};

double Milliseconds(Duration d) { return 1e3 * ToSeconds(d); }

// Both passes, timed by layer through the hooks and as a whole: on a device layers by its events, as the host only launches, and passes
// by the host, which waits for it behind each.
class Passes {
 public:
  Passes(caffe::Net& net, Timed* timed)
      : net_(net), timed_(timed), work_(net.options().placement, [this](const caffe::LayerWork& work) { Add(work); }) {
    hooks_.before_forward = hooks_.before_backward = [this](int) {
      work_.Begin();
      return OkStatus();
    };
    hooks_.after_forward = [this](int layer) {
      work_.End(caffe::Work::kForward, layer, 0);
      return OkStatus();
    };
    hooks_.after_backward = [this](int layer) {
      work_.End(caffe::Work::kBackward, layer, 0);
      return OkStatus();
    };
  }

  void Run(std::uint64_t step) {
    net_.BeginPass({.step = step, .pass = 0, .batch = step});
    const TimePoint forward = plan::SteadyNow();
    const Result<double> loss = net_.Forward(hooks_);
    if (!loss.ok()) Fail(loss.status().message());
    work_.Mark();
    timed_->forward_total += Milliseconds(plan::SteadyNow() - forward);
    work_.Tell();
    const TimePoint backward = plan::SteadyNow();
    net_.ClearParamDiffs();
    if (const Status s = net_.Backward(hooks_); !s.ok()) Fail(s.message());
    work_.Mark();
    timed_->backward_total += Milliseconds(plan::SteadyNow() - backward);
    work_.Tell();
  }

 private:
  void Add(const caffe::LayerWork& work) {
    std::vector<double>& of = work.work == caffe::Work::kForward ? timed_->forward : timed_->backward;
    of[static_cast<std::size_t>(work.layer)] += Milliseconds(work.end - work.begin);
  }

  caffe::Net& net_;
  Timed* const timed_;
  caffe::WorkClock work_;
  caffe::NetHooks hooks_;
};

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
    Passes(*net, &warm).Run(0);
    const ProcessorShare share;
    Passes passes(*net, &timed);
    for (int i = 1; i <= flags->iterations; ++i) passes.Run(static_cast<std::uint64_t>(i));
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
