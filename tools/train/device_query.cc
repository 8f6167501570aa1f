// SPDX-License-Identifier: Apache-2.0
// `poseidon device_query`: what this machine computes with.
#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "frontends/caffe/train/cuda_driver.h"
#include "frontends/caffe/train/job_options.h"
#include "poseidon/base/listed.h"
#include "tools/console/fail.h"
#include "tools/train/commands.h"
#include "tools/train/net_flags.h"

namespace poseidon::tools {
namespace {

// As Caffe does.
void ShowGpus(const std::string& text) {
  OrFailUsage(caffe::GpusNamed(text, 0).status());
  const caffe::CudaDriver driver = OrFail(caffe::CudaDriver::Load());
  const std::vector<int> gpus = OrFail(caffe::GpusNamed(text, driver.devices()));
  std::cout << "Querying GPUs " << text << "\n";
  for (const int gpu : gpus) std::cout << OrFail(driver.Describe(gpu));
  std::cout << std::flush;
}

// Their names, or why there are none.
std::string GpusHere() {
  const Result<caffe::CudaDriver> driver = caffe::CudaDriver::Load();
  if (!driver.ok()) return "none: " + driver.status().message();
  std::string names;
  for (int i = 0; i < driver->devices(); ++i) {
    const Result<std::string> name = driver->NameOf(i);
    AddListed(name.ok() ? *name : name.status().message(), &names);
  }
  return names;
}

}  // namespace

void AddDeviceQuery(CLI::App& app) {
  auto gpu = std::make_shared<std::string>();
  CLI::App* c = app.add_subcommand("device_query", "Show the devices of this machine");
  AddGpuFlag(*c, *gpu);
  c->callback([gpu] {
    if (!gpu->empty()) return ShowGpus(*gpu);
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
              << "\ncompute library: " << at::get_mkl_version() << "\ngpus:            " << GpusHere() << std::endl;
  });
}

}  // namespace poseidon::tools
