// SPDX-License-Identifier: Apache-2.0
// The nets of models/ are built in both phases, without weights that are random and without data, and compared with what is
// published: the number of parameters, the tensors of the profile of the same name, the names and shapes of public weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "frontends/caffe/layers/registry.h"
#include "frontends/caffe/net/net.h"
#include "frontends/caffe/proto/upgrade.h"
#include "tools/profile/profile.h"
#include "tools/profile/published.h"

namespace poseidon::caffe {
namespace {

enum class PublicFile { kNone, kThere };

struct Model {
  std::string folder;
  std::int64_t parameters;      // that are trained
  std::string profile;          // of benchmarks/profiles; empty: there is none
  PublicFile weights = PublicFile::kNone;
  std::int64_t beside = 0;      // parameters that the profile has not
};

std::ostream& operator<<(std::ostream& out, const Model& model) { return out << model.folder; }

const Model kModels[] = {
    {"lenet", 431080, ""},
    {"cifar10_quick", 145578, "cifar10-quick"},
    {"cifar10_full", 89578, ""},
    {"alexnet", 60965224, "alexnet", PublicFile::kThere},
    {"caffenet", 60965224, "alexnet", PublicFile::kThere},
    {"googlenet", 13378280, "googlenet-aux", PublicFile::kThere},
    {"vgg16", 138357544, "vgg16", PublicFile::kThere},
    {"vgg19", 143667240, "vgg19", PublicFile::kThere},
    {"vgg19_22k", 229052817, "vgg19-22k"},
    {"inception_v3", 27161264, "inception-v3"},
    // The bias of the first convolution, which the weights of its authors have and torchvision's have not.
    {"resnet50", 25557032 + 64, "resnet-50", PublicFile::kThere, 64},
    {"resnet152", 60192808, "resnet-152", PublicFile::kThere},
};

NetParameter Read(const std::string& folder, const std::string& file) {
  Result<NetParameter> net = ReadNet(std::string(POSEIDON_MODELS) + "/" + folder + "/" + file, RefusalsOf);
  EXPECT_TRUE(net.ok()) << net.status().message();
  return net.ok() ? *std::move(net) : NetParameter();
}

// Zero weights, and inputs of one image where the net reads a database: `size` rows and columns of `channels`.
void MakeLight(std::int64_t channels, std::int64_t size, NetParameter* net) {
  for (LayerParameter& layer : *net->mutable_layer()) {
    layer.mutable_convolution_param()->clear_weight_filler();
    layer.mutable_inner_product_param()->clear_weight_filler();
    if (layer.type() == "Input") layer.mutable_input_param()->mutable_shape(0)->set_dim(0, 1);
    if (layer.type() != "Data") continue;
    layer.set_type("Input");
    layer.clear_data_param();
    layer.clear_transform_param();
    BlobShape* image = layer.mutable_input_param()->add_shape();
    for (const std::int64_t dimension : {std::int64_t{1}, channels, size, size}) image->add_dim(dimension);
    layer.mutable_input_param()->add_shape()->add_dim(1);
  }
}

std::unique_ptr<Net> Build(const NetParameter& param, Phase phase, const Net* parameters_from) {
  NetState state;
  state.set_phase(phase);
  NetOptions options;
  options.parameters_from = parameters_from;
  Result<std::unique_ptr<Net>> net = Net::Create(param, state, MakeLayer, options);
  EXPECT_TRUE(net.ok()) << net.status().message();
  return net.ok() ? *std::move(net) : nullptr;
}

// What is trained: elements of each tensor.
std::multiset<std::int64_t> Tensors(const Net& net) {
  std::multiset<std::int64_t> tensors;
  for (const LearnableParam& param : net.learnable_params()) {
    if (!param.statistics) tensors.insert(param.blob.data.numel());
  }
  return tensors;
}

std::multiset<std::int64_t> TensorsOfProfile(const std::string& name) {
  std::multiset<std::int64_t> tensors;
  for (const profile::Published& published : profile::PublishedProfiles()) {
    if (published.name != name) continue;
    const Result<profile::Profile> profile = profile::ParseProfile(published.text, name);
    EXPECT_TRUE(profile.ok()) << profile.status().message();
    for (const profile::Layer& layer : profile->layers) {
      for (const profile::Tensor& tensor : layer.tensors) {
        std::int64_t elements = 1;
        for (const std::uint64_t dimension : tensor.shape) elements *= static_cast<std::int64_t>(dimension);
        tensors.insert(elements);
      }
    }
  }
  return tensors;
}

// "conv1 96x3x11x11 96", for each layer with weights.
std::map<std::string, std::string> Weights(const Net& net) {
  std::map<std::string, std::string> weights;
  for (const std::unique_ptr<Layer>& layer : net.layers()) {
    std::string line;
    for (const Blob& blob : layer->blobs()) {
      std::string shape;
      for (const std::int64_t dimension : blob.data.sizes()) shape += (shape.empty() ? "" : "x") + std::to_string(dimension);
      line += " " + shape;
    }
    if (!line.empty()) weights[layer->name()] = line.substr(1);
  }
  return weights;
}

// NAME, or NAME1, NAME2 ... of "NAME{1..7}".
std::vector<std::string> Expanded(const std::string& name) {
  const std::size_t open = name.find("{1..");
  if (open == std::string::npos) return {name};
  const std::size_t close = name.find('}', open);
  std::vector<std::string> names;
  for (int i = 1; i <= std::stoi(name.substr(open + 4, close - open - 4)); ++i) {
    names.push_back(name.substr(0, open) + std::to_string(i) + name.substr(close + 1));
  }
  return names;
}

// What public_weights.txt has of a net; empty where no weights of it are public.
std::map<std::string, std::string> PublicWeights(const std::string& folder) {
  std::ifstream file(POSEIDON_PUBLIC_WEIGHTS);
  EXPECT_TRUE(file);
  std::map<std::string, std::string> weights;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string net, layers, shapes;
    words >> net >> layers;
    std::getline(words >> std::ws, shapes);
    if (net != folder) continue;
    for (const std::string& layer : Expanded(layers)) weights[layer] = shapes;
  }
  return weights;
}

class Models : public testing::TestWithParam<Model> {};

TEST_P(Models, AreThePublishedNets) {
  const Model& model = GetParam();
  NetParameter deploy = Read(model.folder, "deploy.prototxt");
  ASSERT_GT(deploy.layer_size(), 0);
  const BlobShape image = deploy.layer(0).input_param().shape(0);
  NetParameter train_val = Read(model.folder, "train_val.prototxt");
  MakeLight(image.dim(1), image.dim(2), &train_val);
  MakeLight(image.dim(1), image.dim(2), &deploy);

  const std::unique_ptr<Net> train = Build(train_val, TRAIN, nullptr);
  ASSERT_TRUE(train);
  const std::multiset<std::int64_t> tensors = Tensors(*train);
  std::int64_t parameters = 0;
  for (const std::int64_t elements : tensors) parameters += elements;
  EXPECT_EQ(parameters, model.parameters);
  if (!model.profile.empty()) {
    std::multiset<std::int64_t> expected = TensorsOfProfile(model.profile);
    if (model.beside > 0) expected.insert(model.beside);
    EXPECT_EQ(tensors, expected);
  }

  const std::unique_ptr<Net> test = Build(train_val, TEST, train.get());
  ASSERT_TRUE(test);
  EXPECT_EQ(Weights(*test), Weights(*train));
  EXPECT_TRUE(std::any_of(test->outputs().begin(), test->outputs().end(), [](const NetOutput& output) {
    return output.name == "accuracy" || output.name == "loss3/top-1";
  }));

  // The net that is deployed takes all its weights from the one that was trained.
  const std::unique_ptr<Net> deployed = Build(deploy, TEST, train.get());
  ASSERT_TRUE(deployed);
  const std::map<std::string, std::string> trained = Weights(*train), weights = Weights(*deployed);
  for (const auto& [layer, shapes] : weights) {
    ASSERT_TRUE(trained.contains(layer)) << layer;
    EXPECT_EQ(shapes, trained.at(layer)) << layer;
  }
  if (model.weights == PublicFile::kThere) {
    EXPECT_EQ(weights, PublicWeights(model.folder));
  }
  ASSERT_EQ(deployed->outputs().size(), 1U);
  EXPECT_EQ(deployed->outputs()[0].name, "prob");
}

INSTANTIATE_TEST_SUITE_P(All, Models, testing::ValuesIn(kModels),
                         [](const testing::TestParamInfo<Model>& one) { return one.param.folder; });

}  // namespace
}  // namespace poseidon::caffe
