// SPDX-License-Identifier: Apache-2.0
// What an exported model is compared with: for every folder of the command line that holds a net.prototxt, random weights
// (weights.caffemodel), random inputs and what our own TEST phase makes of them, as raw f32, with index.json to say which
// file is which blob and of what shape. Inputs whose names begin with "index", "positive" or "tied" get whole numbers of
// 0 to 4, numbers above 0, and whole numbers of 0 to 2; those with "flags" get 0 or 1.
#include <ATen/core/Tensor.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "frontends/caffe/layers/registry.h"
#include "frontends/caffe/net/net.h"
#include "frontends/caffe/proto/upgrade.h"
#include "frontends/caffe/solver/snapshot.h"

namespace poseidon::caffe {
namespace {

using Random = std::mt19937;

void Fill(const at::Tensor& tensor, double low, double high, Random& random) {
  std::uniform_real_distribution<double> numbers(low, high);
  float* const data = tensor.data_ptr<float>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) data[i] = static_cast<float>(numbers(random));
}

void FillWhole(const at::Tensor& tensor, int most, Random& random) {
  std::uniform_int_distribution<int> numbers(0, most);
  float* const data = tensor.data_ptr<float>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) data[i] = static_cast<float>(numbers(random));
}

// Weights keep numbers about as large as they come in; statistics are such as training leaves.
void FillWeights(const Layer& layer, Random& random) {
  for (std::size_t i = 0; i < layer.blobs().size(); ++i) {
    const at::Tensor& blob = layer.blobs()[i].data;
    if (layer.type() == "BatchNorm") {
      i == 2 ? Fill(blob, 1.5, 2.5, random) : i == 1 ? Fill(blob, 1, 3, random) : Fill(blob, -1, 1, random);
    } else if (layer.type() == "BN" && i == 3) {
      Fill(blob, 1, 3, random);
    } else if (layer.type() == "Scale" && i == 0) {
      Fill(blob, 0.5, 1.5, random);
    } else if (blob.dim() < 2) {
      Fill(blob, -0.5, 0.5, random);
    } else {
      const double bound = std::sqrt(3.0 * static_cast<double>(blob.size(0)) / static_cast<double>(blob.numel()));
      Fill(blob, -bound, bound, random);
    }
  }
}

nlohmann::json Write(const std::string& folder, const std::string& file, const Blob& blob) {
  std::ofstream(folder + "/" + file, std::ios::binary)
      .write(static_cast<const char*>(blob.data.const_data_ptr()), static_cast<std::streamsize>(blob.data.nbytes()));
  return {{"file", file}, {"shape", blob.shape()}};
}

Status Compute(const std::string& folder) {
  POSEIDON_ASSIGN_OR_RETURN(const NetParameter param, ReadNet(folder + "/net.prototxt"));
  NetState state;
  state.set_phase(TEST);
  POSEIDON_ASSIGN_OR_RETURN(const std::unique_ptr<Net> net, Net::Create(param, state, MakeLayer, NetOptions{}));
  Random random(1);
  nlohmann::json index;
  for (int i = 0; i < net->layer_count(); ++i) {
    FillWeights(net->layer(i), random);
    if (net->layer(i).type() != "Input") continue;
    for (std::size_t j = 0; j < net->tops(i).size(); ++j) {
      const std::string& name = net->top_name(i, j);
      const Blob& blob = *net->tops(i)[j];
      if (name.starts_with("index")) {
        FillWhole(blob.data, 4, random);
      } else if (name.starts_with("tied")) {
        FillWhole(blob.data, 2, random);
      } else if (name.starts_with("flags")) {
        FillWhole(blob.data, 1, random);
      } else {
        Fill(blob.data, name.starts_with("positive") ? 0.5 : -2, 2, random);
      }
      index["inputs"][name] = Write(folder, "input" + std::to_string(index["inputs"].size()), blob);
    }
  }
  POSEIDON_RETURN_IF_ERROR(WriteModel(*net, folder + "/weights.caffemodel"));
  POSEIDON_RETURN_IF_ERROR(net->Forward().status());
  for (const NetOutput& output : net->outputs()) {
    index["outputs"][output.name] = Write(folder, "output" + std::to_string(index["outputs"].size()), *output.blob);
  }
  std::ofstream(folder + "/index.json") << index.dump(1);
  return OkStatus();
}

}  // namespace
}  // namespace poseidon::caffe

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (const poseidon::Status status = poseidon::caffe::Compute(argv[i]); !status.ok()) {
      std::cerr << argv[i] << ": " << status.message() << std::endl;
      return 1;
    }
  }
  return 0;
}
