// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/proto/upgrade_v0.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace poseidon::caffe {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

struct OldType {
  std::string_view name;
  V1LayerParameter::LayerType type;
};
constexpr OldType kTypes[] = {
    {"accuracy", V1LayerParameter::ACCURACY},
    {"bnll", V1LayerParameter::BNLL},
    {"concat", V1LayerParameter::CONCAT},
    {"conv", V1LayerParameter::CONVOLUTION},
    {"data", V1LayerParameter::DATA},
    {"dropout", V1LayerParameter::DROPOUT},
    {"euclidean_loss", V1LayerParameter::EUCLIDEAN_LOSS},
    {"flatten", V1LayerParameter::FLATTEN},
    {"hdf5_data", V1LayerParameter::HDF5_DATA},
    {"hdf5_output", V1LayerParameter::HDF5_OUTPUT},
    {"im2col", V1LayerParameter::IM2COL},
    {"images", V1LayerParameter::IMAGE_DATA},
    {"infogain_loss", V1LayerParameter::INFOGAIN_LOSS},
    {"innerproduct", V1LayerParameter::INNER_PRODUCT},
    {"lrn", V1LayerParameter::LRN},
    {"multinomial_logistic_loss", V1LayerParameter::MULTINOMIAL_LOGISTIC_LOSS},
    {"pool", V1LayerParameter::POOLING},
    {"relu", V1LayerParameter::RELU},
    {"sigmoid", V1LayerParameter::SIGMOID},
    {"softmax", V1LayerParameter::SOFTMAX},
    {"softmax_loss", V1LayerParameter::SOFTMAX_LOSS},
    {"split", V1LayerParameter::SPLIT},
    {"tanh", V1LayerParameter::TANH},
    {"window_data", V1LayerParameter::WINDOW_DATA},
};

// Where an option of the first form is in the second.
struct Move {
  std::string_view option;
  std::string_view type;     // of the layers that have it; empty: any
  const char* message;       // of the second form
  const char* field;         // in the message; null: the option is the message
};
constexpr Move kMoves[] = {
    {"num_output", "conv", "convolution_param", "num_output"},
    {"num_output", "innerproduct", "inner_product_param", "num_output"},
    {"biasterm", "conv", "convolution_param", "bias_term"},
    {"biasterm", "innerproduct", "inner_product_param", "bias_term"},
    {"weight_filler", "conv", "convolution_param", "weight_filler"},
    {"weight_filler", "innerproduct", "inner_product_param", "weight_filler"},
    {"bias_filler", "conv", "convolution_param", "bias_filler"},
    {"bias_filler", "innerproduct", "inner_product_param", "bias_filler"},
    {"pad", "conv", "convolution_param", "pad"},
    {"pad", "pool", "pooling_param", "pad"},
    {"kernelsize", "conv", "convolution_param", "kernel_size"},
    {"kernelsize", "pool", "pooling_param", "kernel_size"},
    {"group", "conv", "convolution_param", "group"},
    {"stride", "conv", "convolution_param", "stride"},
    {"stride", "pool", "pooling_param", "stride"},
    {"pool", "pool", "pooling_param", "pool"},
    {"dropout_ratio", "dropout", "dropout_param", "dropout_ratio"},
    {"local_size", "lrn", "lrn_param", "local_size"},
    {"alpha", "lrn", "lrn_param", "alpha"},
    {"beta", "lrn", "lrn_param", "beta"},
    {"k", "lrn", "lrn_param", "k"},
    {"source", "data", "data_param", "source"},
    {"source", "hdf5_data", "hdf5_data_param", "source"},
    {"source", "images", "image_data_param", "source"},
    {"source", "window_data", "window_data_param", "source"},
    {"source", "infogain_loss", "infogain_loss_param", "source"},
    {"batchsize", "data", "data_param", "batch_size"},
    {"batchsize", "hdf5_data", "hdf5_data_param", "batch_size"},
    {"batchsize", "images", "image_data_param", "batch_size"},
    {"batchsize", "window_data", "window_data_param", "batch_size"},
    {"rand_skip", "data", "data_param", "rand_skip"},
    {"rand_skip", "images", "image_data_param", "rand_skip"},
    {"scale", "", "transform_param", "scale"},
    {"meanfile", "", "transform_param", "mean_file"},
    {"cropsize", "", "transform_param", "crop_size"},
    {"mirror", "", "transform_param", "mirror"},
    {"shuffle_images", "images", "image_data_param", "shuffle"},
    {"new_height", "images", "image_data_param", "new_height"},
    {"new_width", "images", "image_data_param", "new_width"},
    {"concat_dim", "concat", "concat_param", "concat_dim"},
    {"det_fg_threshold", "window_data", "window_data_param", "fg_threshold"},
    {"det_bg_threshold", "window_data", "window_data_param", "bg_threshold"},
    {"det_fg_fraction", "window_data", "window_data_param", "fg_fraction"},
    {"det_context_pad", "window_data", "window_data_param", "context_pad"},
    {"det_crop_mode", "window_data", "window_data_param", "crop_mode"},
    {"hdf5_output_param", "hdf5_output", "hdf5_output_param", nullptr},
};

// Copies a single option; where the second form has a list, it becomes its only entry. 32-bit numbers changed their
// sign now and then (new_height).
void CopyOption(const Message& from, const FieldDescriptor* option, Message* to, const FieldDescriptor* field) {
  const Reflection* source = from.GetReflection();
  const Reflection* target = to->GetReflection();
  switch (option->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32: {
      const std::uint32_t value = source->GetUInt32(from, option);
      if (field->is_repeated()) return target->AddUInt32(to, field, value);
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) return target->SetUInt32(to, field, value);
      return target->SetInt32(to, field, static_cast<std::int32_t>(value));
    }
    case FieldDescriptor::CPPTYPE_INT32:
      return target->SetUInt32(to, field, static_cast<std::uint32_t>(source->GetInt32(from, option)));
    case FieldDescriptor::CPPTYPE_FLOAT: return target->SetFloat(to, field, source->GetFloat(from, option));
    case FieldDescriptor::CPPTYPE_BOOL: return target->SetBool(to, field, source->GetBool(from, option));
    case FieldDescriptor::CPPTYPE_ENUM: return target->SetEnumValue(to, field, source->GetEnumValue(from, option));
    case FieldDescriptor::CPPTYPE_STRING: return target->SetString(to, field, source->GetString(from, option));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return target->MutableMessage(to, field)->CopyFrom(source->GetMessage(from, option));
    default: return;  // the first form has no other kinds
  }
}

Status MoveOption(const V0LayerParameter& old, const FieldDescriptor* option, V1LayerParameter* layer) {
  const auto* const move = std::find_if(std::begin(kMoves), std::end(kMoves), [&](const Move& known) {
    return known.option == option->name() && (known.type.empty() || known.type == old.type());
  });
  if (move == std::end(kMoves)) {
    return InvalidArgument("has " + option->name() + ", which layers of that type do not take");
  }
  const FieldDescriptor* options = layer->GetDescriptor()->FindFieldByName(move->message);
  if (move->field == nullptr) {
    CopyOption(old, option, layer, options);
    return OkStatus();
  }
  Message* to = layer->GetReflection()->MutableMessage(layer, options);
  CopyOption(old, option, to, to->GetDescriptor()->FindFieldByName(move->field));
  return OkStatus();
}

std::string InWords(const V0LayerParameter& old) { return "layer '" + old.name() + "' (" + old.type() + ")"; }

Status ToV1(const V1LayerParameter& connection, V1LayerParameter* layer) {
  const V0LayerParameter& old = connection.layer();
  const auto* const known =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const OldType& type) { return type.name == old.type(); });
  if (known == std::end(kTypes)) {
    return InvalidArgument("layer '" + old.name() + "' has type '" + old.type() +
                           "', which Caffe's first format does not have");
  }
  layer->set_type(known->type);
  *layer->mutable_bottom() = connection.bottom();
  *layer->mutable_top() = connection.top();
  if (old.has_name()) layer->set_name(old.name());
  *layer->mutable_blobs() = old.blobs();
  *layer->mutable_blobs_lr() = old.blobs_lr();
  *layer->mutable_weight_decay() = old.weight_decay();
  std::vector<const FieldDescriptor*> options;
  old.GetReflection()->ListFields(old, &options);
  for (const FieldDescriptor* option : options) {
    if (option->is_repeated() || option->name() == "name" || option->name() == "type") continue;
    if (const Status moved = MoveOption(old, option, layer); !moved.ok()) return moved.WithPrefix(InWords(old));
  }
  return OkStatus();
}

// Every layer is in the first form and has nothing of the second beside its blobs' names.
Status CheckForm(const NetParameter& net) {
  for (const V1LayerParameter& layer : net.layers()) {
    if (!layer.has_layer()) {
      return InvalidArgument("layer '" + layer.name() +
                             "' is not in Caffe's first format (layers { layer { ... } }), other layers are");
    }
    std::vector<const FieldDescriptor*> fields;
    layer.GetReflection()->ListFields(layer, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->name() == "layer" || field->name() == "bottom" || field->name() == "top") continue;
      return InvalidArgument(InWords(layer.layer()) + " has " + field->name() +
                             " beside 'layer', where Caffe's first format has only bottom and top");
    }
  }
  return OkStatus();
}

bool IsPadding(const V1LayerParameter& layer) { return layer.layer().type() == "padding"; }

// Gives `reader` the pad and the bottom of the padding that it reads.
Status MergePadding(const V1LayerParameter& padding, int bottom, V1LayerParameter* reader) {
  const V0LayerParameter& old = reader->layer();
  if (old.type() != "conv" && old.type() != "pool") {
    return InvalidArgument(InWords(old) + " reads padding layer '" + padding.layer().name() +
                           "', expected a conv or a pool");
  }
  if (reader->bottom_size() != 1 || padding.bottom_size() != 1 || padding.top_size() != 1) {
    return InvalidArgument(InWords(old) + " reads padding layer '" + padding.layer().name() +
                           "', expected one bottom for each of the two and one top");
  }
  reader->mutable_layer()->set_pad(padding.layer().pad());
  reader->set_bottom(bottom, padding.bottom(0));
  return OkStatus();
}

Status MergePaddings(NetParameter* net) {
  std::map<std::string, int> makers;  // of each blob, the last layer that made it
  for (int i = 0; i < net->layers_size(); ++i) {
    V1LayerParameter* layer = net->mutable_layers(i);
    for (int j = 0; j < layer->bottom_size(); ++j) {
      const auto maker = makers.find(layer->bottom(j));
      if (maker == makers.end() || !IsPadding(net->layers(maker->second))) continue;
      POSEIDON_RETURN_IF_ERROR(MergePadding(net->layers(maker->second), j, layer));
    }
    for (const std::string& top : layer->top()) makers[top] = i;
  }
  auto* layers = net->mutable_layers();
  layers->erase(std::remove_if(layers->begin(), layers->end(), IsPadding), layers->end());
  return OkStatus();
}

Status Upgrade(NetParameter* net) {
  POSEIDON_RETURN_IF_ERROR(CheckForm(*net));
  POSEIDON_RETURN_IF_ERROR(MergePaddings(net));
  for (V1LayerParameter& connection : *net->mutable_layers()) {
    V1LayerParameter layer;
    POSEIDON_RETURN_IF_ERROR(ToV1(connection, &layer));
    connection = std::move(layer);
  }
  return OkStatus();
}

}  // namespace

Status UpgradeV0(const std::string& name, NetParameter* net) {
  const auto& layers = net->layers();
  if (std::none_of(layers.begin(), layers.end(), [](const auto& layer) { return layer.has_layer(); })) return OkStatus();
  const Status upgraded = Upgrade(net);
  return upgraded.ok() ? upgraded : upgraded.WithPrefix(name);
}

}  // namespace poseidon::caffe
