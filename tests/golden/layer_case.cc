// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "frontends/caffe/engine/engine.h"
#include "frontends/caffe/layers/registry.h"
#include "frontends/caffe/net/net.h"
#include "frontends/caffe/proto/upgrade.h"
#include "poseidon/base/listed.h"
#include "tests/golden/kinds.h"

namespace poseidon::caffe {
namespace {

using nlohmann::json;

std::string ParamName(const json& entry) {
  return entry["layer"].get<std::string>() + "[" + std::to_string(entry["index"].get<int>()) + "]";
}

// The learned blob an entry names, or null.
const Blob* FindParam(const Net& net, const json& entry) {
  const int layer = net.LayerIndex(entry["layer"].get<std::string>());
  const auto index = entry["index"].get<std::size_t>();
  if (layer < 0 || index >= net.layer(layer).blobs().size()) return nullptr;
  return &net.layer(layer).blobs()[index];
}

class LayerCase {
 public:
  LayerCase(const GoldenCase& golden, const Placement& placement)
      : golden_(golden), placement_(placement), comparison_(golden.json["tolerance"]["rel"].get<double>()) {}

  Result<CaseOutcome> Run() {
    POSEIDON_ASSIGN_OR_RETURN(
        const NetParameter param,
        ReadNet(golden_.Path(golden_.json["net"].get<std::string>())));
    NetState state;
    state.set_phase(golden_.json["phase"] == "TRAIN" ? TRAIN : TEST);
    NetOptions options;
    options.placement = placement_;
    auto created = Net::Create(param, state, MakeLayer, options);
    if (!created.ok()) return Refusal(created.status());
    net_ = std::move(created).value();
    for (const json& entry : golden_.json["params"]) {
      const Blob* blob = FindParam(*net_, entry);
      if (blob == nullptr) return InvalidArgument("the net has no parameter " + ParamName(entry));
      POSEIDON_RETURN_IF_ERROR(Load(entry, &blob->data));
    }
    POSEIDON_RETURN_IF_ERROR(Pass(net_.get(), golden_.json, ""));
    for (const json& more : golden_.json.value("more_passes", json::array())) {
      POSEIDON_RETURN_IF_ERROR(
          Pass(net_.get(), more, "pass " + std::to_string(more["pass"].get<int>()) + " "));
    }
    if (golden_.json.contains("test_pass")) POSEIDON_RETURN_IF_ERROR(TestPass(param));
    return comparison_.Outcome();
  }

 private:
  // Caffe computes something even where a pooling window holds nothing; here that is an error, and
  // the case is passed by refusing it.
  static Result<CaseOutcome> Refusal(const Status& status) {
    if (status.message().find("so it holds nothing") == std::string::npos) return status;
    return CaseOutcome{Verdict::kPass, "refused as expected: " + status.message()};
  }

  // Fills *tensor with the array of the entry. A blob may have taken another shape since.
  Status Load(const json& entry, const at::Tensor* tensor) const {
    POSEIDON_ASSIGN_OR_RETURN(const at::Tensor numbers,
                              ReadTensor(golden_.Path(entry["file"].get<std::string>())));
    if (tensor->sizes() != numbers.sizes()) {
      return InvalidArgument(entry["file"].get<std::string>() + " has shape " +
                             ShapeText(numbers.sizes()) + ", the net's is " +
                             ShapeText(tensor->sizes()));
    }
    tensor->copy_(numbers);
    return OkStatus();
  }

  Status Inputs(Net* net, const json& pass) const {
    for (const json& entry : pass["inputs"]) {
      const Blob* blob = net->blob(entry["blob"].get<std::string>());
      if (blob == nullptr) return InvalidArgument("the net has no blob of " + entry.dump());
      POSEIDON_RETURN_IF_ERROR(Load(entry, &blob->data));
    }
    return OkStatus();
  }

  Status Compare(const std::string& what, const at::Tensor& got, const json& entry) {
    POSEIDON_ASSIGN_OR_RETURN(const at::Tensor want,
                              ReadTensor(golden_.Path(entry["file"].get<std::string>())));
    comparison_.Compare(what, got, want, entry["abs"].get<double>());
    return OkStatus();
  }

  Status CompareBlobs(const Net& net, const json& pass, const char* list, bool diffs,
                      const std::string& prefix) {
    for (const json& entry : pass.value(list, json::array())) {
      const std::string name = entry["blob"].get<std::string>();
      const Blob* blob = net.blob(name);
      if (blob == nullptr) {
        comparison_.Fail("the net has no blob " + name);
        continue;
      }
      POSEIDON_RETURN_IF_ERROR(Compare(prefix + (diffs ? "gradient of blob " : "blob ") + name,
                                       diffs ? blob->diff : blob->data, entry));
    }
    return OkStatus();
  }

  Status CompareParams(const Net& net, const json& pass, const char* list, bool diffs,
                       const std::string& prefix) {
    for (const json& entry : pass.value(list, json::array())) {
      const Blob* blob = FindParam(net, entry);
      if (blob == nullptr) {
        comparison_.Fail("the net has no parameter " + ParamName(entry));
        continue;
      }
      POSEIDON_RETURN_IF_ERROR(Compare(prefix + (diffs ? "gradient of " : "") + ParamName(entry),
                                       diffs ? blob->diff : blob->data, entry));
    }
    return OkStatus();
  }

  Status Forward(Net* net, const json& pass, const std::string& prefix) {
    POSEIDON_RETURN_IF_ERROR(Inputs(net, pass));
    POSEIDON_ASSIGN_OR_RETURN(const double loss, net->Forward());
    if (pass.contains("loss") && pass["loss"].is_number()) {
      comparison_.CompareNumber(prefix + "loss", loss, pass["loss"].get<double>(),
                                golden_.json["tolerance"]["abs"].get<double>());
    }
    return CompareBlobs(*net, pass, "outputs", /*diffs=*/false, prefix);
  }

  Status Pass(Net* net, const json& pass, const std::string& prefix) {
    POSEIDON_RETURN_IF_ERROR(Forward(net, pass, prefix));
    const json nothing = json::array();
    const bool backward = !pass.value("bottom_diffs", nothing).empty() ||
                          !pass.value("param_diffs", nothing).empty();
    if (backward) {
      for (const json& entry : pass.value("top_diffs", nothing)) {
        Blob* blob = net->blob(entry["blob"].get<std::string>());
        if (blob == nullptr) return InvalidArgument("the net has no blob of " + entry.dump());
        POSEIDON_RETURN_IF_ERROR(Load(entry, &DiffOf(blob)));
      }
      net->ClearParamDiffs();
      POSEIDON_RETURN_IF_ERROR(net->Backward());
      POSEIDON_RETURN_IF_ERROR(CompareBlobs(*net, pass, "bottom_diffs", /*diffs=*/true, prefix));
      POSEIDON_RETURN_IF_ERROR(CompareParams(*net, pass, "param_diffs", /*diffs=*/true, prefix));
    }
    return CompareParams(*net, pass, "params_after", /*diffs=*/false, prefix);
  }

  Status TestPass(const NetParameter& param) {
    NetState state;
    state.set_phase(TEST);
    NetOptions options;
    options.placement = placement_;
    options.parameters_from = net_.get();
    POSEIDON_ASSIGN_OR_RETURN(std::unique_ptr<Net> test, Net::Create(param, state, MakeLayer, options));
    return Forward(test.get(), golden_.json["test_pass"], "test ");
  }

  const GoldenCase& golden_;
  const Placement placement_;
  std::unique_ptr<Net> net_;
  Comparison comparison_;
};

}  // namespace

Result<CaseOutcome> RunLayerCase(const GoldenCase& golden, const Placement& placement) {
  return LayerCase(golden, placement).Run();
}

std::string MissingLayerTypes(const GoldenCase& golden) {
  const std::vector<std::string> types = LayerTypes();
  const auto param = ReadNet(golden.Path(golden.json.value("net", "net.prototxt")));
  std::set<std::string> missing;
  if (param.ok()) {
    for (const LayerParameter& layer : param->layer()) {
      if (!std::binary_search(types.begin(), types.end(), layer.type())) {
        missing.insert("layer type " + layer.type());
      }
    }
  }
  std::string text;
  for (const std::string& type : missing) AddListed(type, &text);
  return text;
}

}  // namespace poseidon::caffe
