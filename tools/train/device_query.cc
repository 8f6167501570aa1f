// SPDX-License-Identifier: Apache-2.0
// `poseidon device_query`: what this machine computes with.
#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "tools/train/commands.h"
#include "tools/train/net_flags.h"

namespace poseidon::tools {

void AddDeviceQuery(CLI::App& app) {
  auto gpu = std::make_shared<std::string>();
  CLI::App* c = app.add_subcommand("device_query", "Show the devices of this machine");
  AddGpuFlag(*c, *gpu);
  c->callback([gpu] {
    RefuseGpu(*gpu);
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
