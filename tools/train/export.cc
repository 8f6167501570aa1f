// SPDX-License-Identifier: Apache-2.0
// `poseidon export`: a net with its weights in the formats of others, and back.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frontends/caffe/export/net_tensors.h"
#include "frontends/caffe/export/onnx_export.h"
#include "frontends/caffe/export/onnx_layer.h"
#include "frontends/caffe/layers/registry.h"
#include "frontends/caffe/net/net.h"
#include "frontends/caffe/net/subnormals.h"
#include "frontends/caffe/proto/upgrade.h"
#include "frontends/caffe/solver/nets.h"
#include "frontends/caffe/solver/snapshot.h"
#include "poseidon/base/listed.h"
#include "tools/console/fail.h"
#include "tools/console/shared_flags.h"
#include "tools/console/values.h"
#include "tools/train/commands.h"
#include "tools/train/net_flags.h"

namespace poseidon::tools {
namespace {

struct Flags {
  std::string model, weights, out;
  std::int64_t batch = 0;
  std::vector<std::string> shapes, outputs;
  bool external_data = false;
  int level = 0;
  std::string stage;
};

enum class Format { kOnnx, kSafetensors, kCaffe, kUnknown };

Format FormatOf(const std::string& path) {
  if (path.ends_with(".onnx")) return Format::kOnnx;
  if (path.ends_with(".safetensors")) return Format::kSafetensors;
  if (path.ends_with(".caffemodel") || path.ends_with(".h5")) return Format::kCaffe;
  return Format::kUnknown;
}

// One whole number above 0; 0 where the text is none.
std::int64_t Extent(const std::string& text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  return read.ec == std::errc() && read.ptr == end && value > 0 && value < std::int64_t{1} << 31 ? value : 0;
}

// "data=1,3,227,227"
void ReadShape(const std::string& text, caffe::DeployOptions* options) {
  const std::size_t equals = std::min(text.rfind('='), text.size());
  std::vector<std::int64_t> shape;
  for (const std::string& extent : CommaParts(text.substr(std::min(equals + 1, text.size())))) shape.push_back(Extent(extent));
  if (shape.empty() || std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    FailUsage("--shape " + text + ": expected NAME=N,C,H,W, whole numbers above 0");
  }
  options->shapes[text.substr(0, equals)] = std::move(shape);
}

caffe::DeployNet ReadDeployNet(const Flags& flags, Format format) {
  Result<caffe::NetParameter> parameters = caffe::ReadNet(flags.model, caffe::RefusalsOf);
  if (!parameters.ok()) Fail(parameters.status().message());
  caffe::FindFilesBeside(std::filesystem::path(flags.model).parent_path().string(), &*parameters);
  caffe::DeployOptions options;
  options.state.set_phase(caffe::TEST);
  options.state.set_level(flags.level);
  for (const std::string& stage : CommaParts(flags.stage)) options.state.add_stage(stage);
  options.batch = flags.batch;
  options.outputs = flags.outputs;
  for (const std::string& shape : flags.shapes) ReadShape(shape, &options);
  if (format == Format::kOnnx) options.why_not = caffe::WhyNotOnnx;
  Result<caffe::DeployNet> deploy = caffe::MakeDeployNet(*parameters, options);
  if (!deploy.ok()) Fail(flags.model + ": " + deploy.status().message());
  return *std::move(deploy);
}

std::unique_ptr<caffe::Net> BuildDeployNet(const Flags& flags, const caffe::DeployNet& deploy) {
  caffe::NetState state;
  state.set_phase(caffe::TEST);
  Result<std::unique_ptr<caffe::Net>> net = caffe::Net::Create(deploy.net, state, caffe::MakeLayer, caffe::NetOptions{});
  if (!net.ok()) Fail(flags.model + ": " + net.status().message());
  return *std::move(net);
}

Result<caffe::WeightsReport> CopyWeightsOf(const std::string& path, caffe::Net* net) {
  if (FormatOf(path) != Format::kSafetensors) return caffe::LoadWeights(path, {net});
  POSEIDON_ASSIGN_OR_RETURN(const caffe::NetParameter model, caffe::ReadNetTensors(*net, path));
  return caffe::CopyWeights(model, path, {net}, caffe::SameNames::kInOrder);  // named apart: each has its own
}

// Copies the weights, and returns what is to be said of layers without partner.
std::string LoadWeightsOf(const Flags& flags, caffe::Net* net) {
  const Result<caffe::WeightsReport> report = CopyWeightsOf(flags.weights, net);
  if (!report.ok()) Fail(report.status().message());
  return InWords(*report);
}

std::string TextOf(const poseidon::onnx::ValueInfoProto& value) {
  std::string text;
  for (const auto& dim : value.type().tensor_type().shape().dim()) {
    text += (text.empty() ? "" : "x") + (dim.has_dim_value() ? std::to_string(dim.dim_value()) : dim.has_dim_param() ? "N" : "?");
  }
  return value.name() + (text.empty() ? "" : " " + text);
}

void ExportOnnx(const Flags& flags, const caffe::DeployNet& deploy, const caffe::Net& net) {
  Result<onnx::ModelProto> model = caffe::ToOnnx(net, deploy, flags.batch == 0, POSEIDON_VERSION);
  if (!model.ok()) Fail(flags.model + ": " + model.status().message());
  std::string inputs;
  std::string outputs;
  for (const auto& input : model->graph().input()) AddListed(TextOf(input), &inputs);
  for (const auto& output : model->graph().output()) AddListed(TextOf(output), &outputs);
  const Status written = caffe::WriteOnnx(*std::move(model), flags.out, flags.external_data);
  if (!written.ok()) Fail(written.message());
  std::cout << flags.out << ": from " << inputs << " to " << outputs << std::endl;
}

void Export(const Flags& flags) {
  const Format format = FormatOf(flags.out);
  if (format == Format::kUnknown) {
    FailUsage(flags.out + ": expected a file that ends in .onnx, .safetensors, .caffemodel or .caffemodel.h5");
  }
  caffe::FlushSubnormals();
  const caffe::DeployNet deploy = ReadDeployNet(flags, format);
  const std::unique_ptr<caffe::Net> net = BuildDeployNet(flags, deploy);
  const std::string words = LoadWeightsOf(flags, net.get());
  if (format == Format::kOnnx) {
    ExportOnnx(flags, deploy, *net);
  } else {
    const Status written = format == Format::kSafetensors ? caffe::WriteNetTensors(*net, flags.out) : caffe::WriteModel(*net, flags.out);
    if (!written.ok()) Fail(written.message());
    std::cout << flags.out << ": " << net->learnable_params().size() << " learned blobs" << std::endl;
  }
  if (!words.empty()) std::cerr << "poseidon: " << words << std::endl;
}

}  // namespace

void AddExport(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand("export", "Write a Caffe model as ONNX or safetensors, or read it back");
  c->footer("  poseidon export deploy.prototxt model.caffemodel model.onnx\n"
            "  poseidon export deploy.prototxt model.caffemodel model.safetensors\n"
            "  poseidon export deploy.prototxt model.safetensors model.caffemodel");
  c->add_option("model", flags->model, "Net, as Caffe has it; of its TEST phase the losses are left out")
      ->type_name("PROTOTXT")
      ->required()
      ->check(InputFile());
  c->add_option("weights", flags->weights, ".caffemodel, .caffemodel.h5 or .safetensors")
      ->type_name("FILE")
      ->required()
      ->check(SnapshotFiles());
  c->add_option("out", flags->out, ".onnx, .safetensors, .caffemodel or .caffemodel.h5")
      ->type_name("FILE")
      ->required()
      ->check(OutputFile());
  c->add_option("--batch", flags->batch, "Images that the ONNX model takes at once; without it any number, where the net allows it")
      ->type_name("N")
      ->check(WholeNumber(1, 1 << 20))
      ->default_str("");
  c->add_option("--shape", flags->shapes,
                "Shape of an input, where the net has another, or a database that is not there; more than once for several")
      ->type_name("NAME=N,C,H,W")
      ->expected(1)
      ->take_all();
  c->add_option("--output", flags->outputs, "Blob to compute, and no other; more than once for several")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  c->add_flag("--external-data", flags->external_data, "Put the weights into OUT.data, as is done above 2 GiB");
  AddStateFlags(*c, flags->level, flags->stage);
  c->callback([flags] { Export(*flags); });
}

}  // namespace poseidon::tools
