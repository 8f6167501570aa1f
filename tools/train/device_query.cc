// SPDX-License-Identifier: Apache-2.0
// `poseidon device_query`: what this machine computes with.
#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "tools/console/fail.h"
#include "tools/train/commands.h"


namespace poseidon::tools {

void AddDeviceQuery(CLI::App& app) {
  auto gpu = std::make_shared<std::string>();
  CLI::App* c = app.add_subcommand("device_query", "Show the devices of this machine");
  c->add_option("--gpu", *gpu, "GPU ids (this build computes on the CPU)");
  c->callback([gpu] {
    if (!gpu->empty()) Fail("--gpu " + *gpu + ": this build computes on the CPU; leave the flag out");
    std::string model = "unknown processor";
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("model name")) {
        model = line.substr(line.find(':') + 2);
        break;
      }
    }
    std::cout << "device:          cpu\nprocessor:       " << model
              << "\ncores:           " << std::thread::hardware_concurrency()
              << "\nvector units:    " << at::get_cpu_capability()
              << "\ncompute library: " << at::get_mkl_version() << std::endl;
  });
}

}  // namespace poseidon::tools
