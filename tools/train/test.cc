// SPDX-License-Identifier: Apache-2.0
// `poseidon test`: scores a model, as `caffe test` does.
#include <ATen/Parallel.h>

#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "frontends/caffe/net/debug_lines.h"
#include "frontends/caffe/net/net.h"
#include "frontends/caffe/proto/upgrade.h"
#include "frontends/caffe/solver/nets.h"
#include "frontends/caffe/solver/test_run.h"
#include "tools/console/fail.h"
#include "tools/train/commands.h"
#include "tools/train/net_flags.h"

namespace poseidon::tools {

void AddTest(CLI::App& app) {
  auto flags = std::make_shared<NetFlags>();
  CLI::App* c = app.add_subcommand("test", "Score a Caffe model");
  c->footer("  poseidon test --model net.prototxt --weights model.caffemodel --iterations 100");
  AddNetFlags(*c, *flags);
  c->get_option("--weights")->required();
  c->callback([flags] {
    flags->phase = "TEST";
    const std::unique_ptr<caffe::Net> net = BuildNet(*flags);
    LoadWeights(*flags, net.get());
    std::cout << (flags->gpu.empty() ? "Use CPU" : "Use GPU with device ID " + flags->gpu) << ".\nRunning for " << flags->iterations << " iterations.\n";
    caffe::TestRun run{.batches = flags->iterations};
    run.on_batch = [](int batch, const std::vector<caffe::OutputValue>& outputs) {
      for (const caffe::OutputValue& value : outputs) {
        std::cout << "Batch " << batch << ", " << value.name << " = " << value.value << "\n";
      }
    };
    if (net->debug_info()) {
      run.hooks.after_forward = [&net](int layer) {
        caffe::DebugForward(*net, layer, [](const std::string& line) { std::cerr << line << "\n"; });
        return OkStatus();
      };
    }
    Result<caffe::TestMeans> means = caffe::RunTest(net.get(), run);
    if (!means.ok()) Fail(means.status().message());
    std::cout << "Loss: " << means->loss << "\n";
    for (const caffe::OutputValue& value : means->outputs) {
      std::cout << value.name << " = " << value.value;
      if (value.loss_weight != 0) {
        std::cout << " (* " << value.loss_weight << " = " << value.loss_weight * value.value
                  << " loss)";
      }
      std::cout << "\n";
    }
    std::cout << std::flush;
  });
}

}  // namespace poseidon::tools
