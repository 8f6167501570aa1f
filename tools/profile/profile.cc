// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/profile.h"

#include <cmath>
#include <fstream>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

namespace poseidon::profile {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxRows = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kMaxDimensions = 16;

// Takes fields of one JSON object; the first that is missing or wrong is kept as the failure, and
// what is taken after it does not matter.
class Fields {
 public:
  Fields(const json& object, std::string where, Status* failure)
      : object_(object), where_(std::move(where)), failure_(failure) {
    if (!object.is_object()) Refuse("is not an object, expected {...}");
  }

  std::string Text(const char* name) {
    const json* value = Find(name, "a text");
    if (value == nullptr) return {};
    if (value->is_string()) return value->get<std::string>();
    return Wrong(name, *value, "a text"), std::string();
  }
  bool Truth(const char* name) {
    const json* value = Find(name, "true or false");
    if (value == nullptr) return false;
    if (value->is_boolean()) return value->get<bool>();
    return Wrong(name, *value, "true or false"), false;
  }
  std::uint64_t Integer(const char* name, std::uint64_t most) {
    const std::string expected = "an integer from 1 to " + std::to_string(most);
    const json* value = Find(name, expected);
    if (value == nullptr) return 0;
    if (value->is_number_unsigned() && *value >= 1u && *value <= most) {
      return value->get<std::uint64_t>();
    }
    return Wrong(name, *value, expected), 0;
  }
  double Quantity(const char* name) {
    constexpr const char* kExpected = "a finite number, 0 or more";
    const json* value = Find(name, kExpected);
    if (value == nullptr) return 0;
    const double number = value->is_number() ? value->get<double>() : -1;
    if (std::isfinite(number) && number >= 0) return number;
    return Wrong(name, *value, kExpected), 0;
  }
  const json& List(const char* name) {
    static const json empty = json::array();
    const json* value = Find(name, "a list");
    if (value == nullptr) return empty;
    if (value->is_array() && !value->empty()) return *value;
    return Wrong(name, *value, "a list with at least one entry"), empty;
  }
  const json* Optional(const char* name) const {
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  // Says what is wrong with this object as a whole.
  void Refuse(const std::string& what) {
    if (failure_->ok()) *failure_ = InvalidArgument(where_ + ": " + what);
  }
  void Wrong(const char* name, const json& value, const std::string& expected) {
    std::string shown = value.dump(-1, ' ', false, json::error_handler_t::replace);
    if (shown.size() > 60) shown = shown.substr(0, 60) + "...";
    Refuse("field " + std::string(name) + " is " + shown + ", expected " + expected);
  }
  const std::string& where() const { return where_; }
  bool ok() const { return failure_->ok(); }

 private:
  const json* Find(const char* name, const std::string& expected) {
    if (!failure_->ok()) return nullptr;
    const json* value = Optional(name);
    if (value == nullptr)
      Refuse("field " + std::string(name) + " is missing, expected " + expected);
    return value;
  }

  const json& object_;
  const std::string where_;
  Status* failure_;
};

Tensor TakeTensor(const json& object, const std::string& where, Status* failure) {
  Fields fields(object, where, failure);
  Tensor tensor{.name = fields.Text("name"), .shape = {}};
  std::uint64_t elements = 1;
  for (const json& dimension : fields.List("shape")) {
    const bool right = dimension.is_number_unsigned() && dimension >= 1u &&
                       dimension <= plan::kMaxElements / elements &&
                       tensor.shape.size() < kMaxDimensions;
    if (!right) {
      fields.Wrong("shape", object["shape"],
                   "up to 16 dimensions of at least 1 and " + std::to_string(plan::kMaxElements) +
                       " elements in all");
      break;
    }
    tensor.shape.push_back(dimension.get<std::uint64_t>());
    elements *= tensor.shape.back();
  }
  return tensor;
}

std::uint64_t ElementsOf(const Tensor& tensor) {
  std::uint64_t elements = 1;
  for (const std::uint64_t dimension : tensor.shape) elements *= dimension;
  return elements;
}

Layer TakeLayer(const json& object, std::size_t index, const std::string& origin, Status* failure) {
  Layer layer;
  layer.spec.name =
      Fields(object, origin + ", layers[" + std::to_string(index) + "]", failure).Text("name");
  Fields fields(object, origin + ", layer '" + layer.spec.name + "'", failure);
  layer.spec.shape = fields.Text("shape");
  layer.spec.elements = fields.Integer("elements", plan::kMaxElements);
  layer.spec.forward_position = static_cast<std::uint32_t>(index);
  if (const json* dtype = fields.Optional("dtype")) {
    const std::string expected = std::string(NameOf(DType::kF32)) + " or " + std::string(NameOf(DType::kF64));
    if (*dtype == std::string(NameOf(DType::kF64))) {
      layer.spec.dtype = DType::kF64;
    } else if (*dtype != std::string(NameOf(DType::kF32))) {
      fields.Wrong("dtype", *dtype, expected);
    }
  }
  layer.forward_seconds = fields.Quantity("forward_seconds");
  layer.backward_seconds = fields.Quantity("backward_seconds");
  if (fields.Optional("forward_flops") != nullptr) {
    layer.forward_flops = fields.Quantity("forward_flops");
  }
  std::uint64_t elements = 0;
  const json& tensors = fields.List("tensors");
  for (std::size_t i = 0; i < tensors.size() && fields.ok(); ++i) {
    layer.tensors.push_back(
        TakeTensor(tensors[i], fields.where() + ", tensors[" + std::to_string(i) + "]", failure));
    elements += ElementsOf(layer.tensors.back());
  }
  if (fields.ok() && elements != layer.spec.elements) {
    fields.Refuse("its tensors have " + std::to_string(elements) + " elements, expected the " +
                  std::to_string(layer.spec.elements) + " of field elements");
  }
  if (const json* factors = fields.Optional("factors")) {
    Fields shape(*factors, fields.where() + ", factors", failure);
    plan::FactorShape taken;
    taken.outputs = shape.Integer("outputs", plan::kMaxElements);
    taken.inputs = shape.Integer("inputs", plan::kMaxElements);
    taken.bias = shape.Truth("bias");
    if (shape.Optional("table") != nullptr) taken.table = shape.Truth("table");
    if (shape.Optional("by_device") != nullptr) taken.by_device = shape.Truth("by_device");
    layer.spec.factors = taken;
    layer.rows = static_cast<std::uint32_t>(fields.Integer("rows", kMaxRows));
  }
  return layer;
}

Profile TakeProfile(const json& document, const std::string& origin, Status* failure) {
  Fields fields(document, origin, failure);
  if (fields.Integer("format", 1) != 1) return {};
  Profile profile;
  profile.name = fields.Text("name");
  profile.source = fields.Text("source");
  profile.batch = static_cast<std::uint32_t>(fields.Integer("batch", kMaxRows));
  for (const auto& [name, target] :
       {std::pair("product_flops", &profile.product_flops),
        std::pair("cpu_seconds_per_wire_byte", &profile.cpu_seconds_per_wire_byte),
        std::pair("cores_per_worker", &profile.cores_per_worker)}) {
    if (fields.Optional(name) != nullptr) *target = fields.Quantity(name);
  }
  if (fields.Optional("compute_threads") != nullptr) {
    profile.compute_threads = static_cast<std::uint32_t>(fields.Integer("compute_threads", 4096));
  }
  const json& layers = fields.List("layers");
  if (layers.size() > plan::kMaxLayers) {
    fields.Refuse("field layers has " + std::to_string(layers.size()) +
                  " entries, expected at most " + std::to_string(plan::kMaxLayers));
  }
  for (std::size_t i = 0; i < layers.size() && fields.ok(); ++i) {
    profile.layers.push_back(TakeLayer(layers[i], i, origin, failure));
  }
  return profile;
}

json JsonOf(const Layer& layer) {
  json tensors = json::array();
  for (const Tensor& tensor : layer.tensors) {
    tensors.push_back({{"name", tensor.name}, {"shape", tensor.shape}});
  }
  json entry = {{"name", layer.spec.name},
                {"shape", layer.spec.shape},
                {"elements", layer.spec.elements},
                {"forward_seconds", layer.forward_seconds},
                {"backward_seconds", layer.backward_seconds},
                {"tensors", std::move(tensors)}};
  if (layer.forward_flops > 0) entry["forward_flops"] = layer.forward_flops;
  if (layer.spec.dtype != DType::kF32) entry["dtype"] = NameOf(layer.spec.dtype);
  if (const auto& factors = layer.spec.factors) {
    entry["factors"] = {
        {"outputs", factors->outputs}, {"inputs", factors->inputs}, {"bias", factors->bias}};
    if (factors->table) entry["factors"]["table"] = true;
    if (factors->by_device) entry["factors"]["by_device"] = true;
    entry["rows"] = layer.rows;
  }
  return entry;
}

std::string Line(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

std::uint64_t Profile::elements() const {
  std::uint64_t sum = 0;
  for (const Layer& layer : layers) sum += layer.spec.elements;
  return sum;
}

std::size_t Profile::tensor_count() const {
  std::size_t sum = 0;
  for (const Layer& layer : layers) sum += layer.tensors.size();
  return sum;
}

double Profile::step_seconds() const {
  double sum = 0;
  for (const Layer& layer : layers) sum += layer.forward_seconds + layer.backward_seconds;
  return sum;
}

Result<Profile> ParseProfile(const std::string& text, const std::string& origin) {
  const std::string where = "profile " + origin;
  const json document = json::parse(text, nullptr, false);
  if (document.is_discarded()) return InvalidArgument(where + " is not JSON");
  Status failure;
  Profile profile = TakeProfile(document, where, &failure);
  if (!failure.ok()) return failure;
  if (const Status valid = plan::Validate(LayersOf(profile)); !valid.ok()) {
    return valid.WithPrefix(where);
  }
  return profile;
}

Result<Profile> ReadProfile(const std::string& path) {
  std::ostringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    return ParseProfile(text.str(), "on standard input");
  }
  std::ifstream file(path, std::ios::binary);
  if (file) text << file.rdbuf();
  if (!file || text.bad()) return NotFound("profile " + path + " cannot be read");
  return ParseProfile(text.str(), path);
}

std::string TextOf(const Profile& profile) {
  std::string text = "{\n \"format\": 1,\n";
  const auto add = [&text](const char* name, const json& value) {
    text += " \"" + std::string(name) + "\": " + Line(value) + ",\n";
  };
  add("name", profile.name);
  add("batch", profile.batch);
  add("source", profile.source);
  if (profile.product_flops > 0) add("product_flops", profile.product_flops);
  if (profile.cpu_seconds_per_wire_byte > 0) {
    add("cpu_seconds_per_wire_byte", profile.cpu_seconds_per_wire_byte);
  }
  add("cores_per_worker", profile.cores_per_worker);
  add("compute_threads", profile.compute_threads);
  text += " \"layers\": [\n";
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    text += "  " + Line(JsonOf(profile.layers[i])) + (i + 1 < profile.layers.size() ? ",\n" : "\n");
  }
  return text + " ]\n}\n";
}

std::vector<plan::LayerSpec> LayersOf(const Profile& profile) {
  std::vector<plan::LayerSpec> layers;
  for (const Layer& layer : profile.layers) layers.push_back(layer.spec);
  return layers;
}

std::vector<plan::LayerMeasurement> MeasurementsOf(const Profile& profile, std::uint32_t workers) {
  std::vector<plan::LayerMeasurement> measured;
  for (const Layer& layer : profile.layers) {
    measured.push_back(
        {.forward_seconds = layer.forward_seconds, .backward_seconds = layer.backward_seconds});
    if (layer.rows > 0) measured.back().rows.assign(workers, layer.rows);
  }
  return measured;
}

plan::ClusterSpec ClusterOf(const Profile& profile) {
  plan::ClusterSpec cluster;
  cluster.rebuild_flops = profile.product_flops;
  cluster.cpu_seconds_per_wire_byte = profile.cpu_seconds_per_wire_byte;
  cluster.cores_per_worker = profile.cores_per_worker;
  cluster.compute_threads = profile.compute_threads;
  return cluster;
}

}  // namespace poseidon::profile
