// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/proto/upgrade.h"

#include <algorithm>
#include <optional>

#include "frontends/caffe/proto/device_list.h"
#include "frontends/caffe/proto/read.h"
#include "frontends/caffe/proto/upgrade_v0.h"

namespace poseidon::caffe {
namespace {

// The transform options lived in the layers that read images before they got their own message.
template <typename Options>
void MoveTransform(Options* options, TransformationParameter* transform) {
  if (options->has_scale()) transform->set_scale(options->scale());
  if (options->has_mean_file()) transform->set_mean_file(options->mean_file());
  if (options->has_crop_size()) transform->set_crop_size(options->crop_size());
  if (options->has_mirror()) transform->set_mirror(options->mirror());
  options->clear_scale();
  options->clear_mean_file();
  options->clear_crop_size();
  options->clear_mirror();
}

template <typename Options>
bool HasTransform(const Options& options) {
  return options.has_scale() || options.has_mean_file() || options.has_crop_size() ||
         options.has_mirror();
}

void MoveTransforms(V1LayerParameter* layer) {
  if (HasTransform(layer->data_param())) {
    MoveTransform(layer->mutable_data_param(), layer->mutable_transform_param());
  }
  if (HasTransform(layer->image_data_param())) {
    MoveTransform(layer->mutable_image_data_param(), layer->mutable_transform_param());
  }
  if (HasTransform(layer->window_data_param())) {
    MoveTransform(layer->mutable_window_data_param(), layer->mutable_transform_param());
  }
}

// Option messages have the same names in both forms, so they move by name.
void CopyOptions(const V1LayerParameter& from, LayerParameter* to) {
  const auto* reflection = from.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> set_fields;
  reflection->ListFields(from, &set_fields);
  for (const auto* field : set_fields) {
    if (field->is_repeated() ||
        field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
      continue;
    }
    const auto* target = to->GetDescriptor()->FindFieldByName(field->name());
    if (target == nullptr || target->message_type() != field->message_type()) continue;
    to->GetReflection()->MutableMessage(to, target)->CopyFrom(
        reflection->GetMessage(from, field));
  }
}

// The i-th ParamSpec, with those before it.
ParamSpec* Spec(LayerParameter* layer, int index) {
  while (layer->param_size() <= index) layer->add_param();
  return layer->mutable_param(index);
}

Status UpgradeLayers(const std::string& name, NetParameter* net) {
  if (net->layers_size() == 0) return OkStatus();
  if (net->layer_size() > 0) {
    return InvalidArgument(name + ": 'layer' and 'layers' are mixed; a net uses one of the two");
  }
  POSEIDON_RETURN_IF_ERROR(UpgradeV0(name, net));
  for (V1LayerParameter& old : *net->mutable_layers()) {
    if (old.type() == V1LayerParameter::NONE) {
      return InvalidArgument(name + ": layer '" + old.name() + "' has no type");
    }
    MoveTransforms(&old);
    *net->add_layer() = UpgradedLayer(old);
  }
  net->clear_layers();
  return OkStatus();
}

bool MakesBlob(const NetParameter& net, const std::string& blob) {
  return std::any_of(net.layer().begin(), net.layer().end(), [&](const LayerParameter& layer) {
    return std::find(layer.top().begin(), layer.top().end(), blob) != layer.top().end();
  });
}

// input_dim lists four numbers for every input; input_shape one shape for all or one for each.
Status UpgradeInputs(const std::string& name, NetParameter* net) {
  const int inputs = net->input_size();
  if (inputs == 0) {
    if (net->input_dim_size() > 0 || net->input_shape_size() > 0) {
      return InvalidArgument(name + ": input_dim or input_shape without an input");
    }
    return OkStatus();
  }
  const int shapes = net->input_shape_size();
  const int dims = net->input_dim_size();
  if (shapes > 0 && dims > 0) {
    return InvalidArgument(name + ": input_shape and input_dim are both given");
  }
  if (shapes > 1 && shapes != inputs) {
    return InvalidArgument(name + ": " + std::to_string(shapes) + " input_shape for " +
                           std::to_string(inputs) + " inputs, expected one for each");
  }
  if (shapes == 0 && dims == 0) {
    // As in Caffe they add nothing: a layer makes what they name.
    for (const std::string& input : net->input()) {
      if (MakesBlob(*net, input)) continue;
      return InvalidArgument(name + ": input '" + input + "' has neither input_shape nor input_dim, and no layer makes it");
    }
    net->clear_input();
    return OkStatus();
  }
  if (shapes == 0 && dims != 4 * inputs) {
    return InvalidArgument(name + ": " + std::to_string(dims) + " input_dim for " +
                           std::to_string(inputs) + " inputs, expected four for each");
  }
  LayerParameter layer;
  layer.set_name("input");
  layer.set_type("Input");
  *layer.mutable_top() = net->input();
  if (shapes > 0) {
    *layer.mutable_input_param()->mutable_shape() = net->input_shape();
  } else {
    for (int i = 0; i < inputs; ++i) {
      BlobShape* shape = layer.mutable_input_param()->add_shape();
      for (int axis = 0; axis < 4; ++axis) shape->add_dim(net->input_dim(4 * i + axis));
    }
  }
  net->clear_input();
  net->clear_input_dim();
  net->clear_input_shape();
  *net->add_layer() = std::move(layer);
  std::rotate(net->mutable_layer()->pointer_begin(), net->mutable_layer()->pointer_end() - 1,
              net->mutable_layer()->pointer_end());
  return OkStatus();
}

// Statistics are kept in parameters that must not be trained; old files said so by hand, or not.
void UpgradeBatchNorm(NetParameter* net) {
  for (LayerParameter& layer : *net->mutable_layer()) {
    if (layer.type() != "BatchNorm" || layer.param_size() != 3) continue;
    for (ParamSpec& spec : *layer.mutable_param()) {
      spec.set_lr_mult(0);
      spec.set_decay_mult(0);
    }
  }
}

// A field of Intel's fork for all layers at once.
void UpgradeStatisticsBatch(NetParameter* net) {
  if (net->bn_stats_batch_size() == 0) return;
  for (LayerParameter& layer : *net->mutable_layer()) {
    if (layer.type() == "BatchNorm") layer.mutable_batch_norm_param()->set_stats_batch_size(net->bn_stats_batch_size());
  }
  net->clear_bn_stats_batch_size();
}

const char* SolverTypeName(SolverParameter::SolverType type) {
  switch (type) {
    case SolverParameter::SGD: return "SGD";
    case SolverParameter::NESTEROV: return "Nesterov";
    case SolverParameter::ADAGRAD: return "AdaGrad";
    case SolverParameter::RMSPROP: return "RMSProp";
    case SolverParameter::ADADELTA: return "AdaDelta";
    case SolverParameter::ADAM: return "Adam";
  }
  return "";
}

}  // namespace

LayerParameter UpgradedLayer(const V1LayerParameter& old) {
  LayerParameter layer;
  layer.set_name(old.name());
  layer.set_type(TypeName(old.type()));
  *layer.mutable_bottom() = old.bottom();
  *layer.mutable_top() = old.top();
  *layer.mutable_include() = old.include();
  *layer.mutable_exclude() = old.exclude();
  *layer.mutable_loss_weight() = old.loss_weight();
  *layer.mutable_blobs() = old.blobs();
  for (int i = 0; i < old.param_size(); ++i) Spec(&layer, i)->set_name(old.param(i));
  for (int i = 0; i < old.blob_share_mode_size(); ++i) {
    const bool strict = old.blob_share_mode(i) == V1LayerParameter::STRICT;
    Spec(&layer, i)->set_share_mode(strict ? ParamSpec::STRICT : ParamSpec::PERMISSIVE);
  }
  for (int i = 0; i < old.blobs_lr_size(); ++i) Spec(&layer, i)->set_lr_mult(old.blobs_lr(i));
  for (int i = 0; i < old.weight_decay_size(); ++i) {
    Spec(&layer, i)->set_decay_mult(old.weight_decay(i));
  }
  CopyOptions(old, &layer);
  return layer;
}

std::string TypeName(V1LayerParameter::LayerType type) {
  switch (type) {
    case V1LayerParameter::NONE: return "";
    case V1LayerParameter::ABSVAL: return "AbsVal";
    case V1LayerParameter::ACCURACY: return "Accuracy";
    case V1LayerParameter::ARGMAX: return "ArgMax";
    case V1LayerParameter::BNLL: return "BNLL";
    case V1LayerParameter::CONCAT: return "Concat";
    case V1LayerParameter::CONTRASTIVE_LOSS: return "ContrastiveLoss";
    case V1LayerParameter::CONVOLUTION: return "Convolution";
    case V1LayerParameter::DATA: return "Data";
    case V1LayerParameter::DECONVOLUTION: return "Deconvolution";
    case V1LayerParameter::DROPOUT: return "Dropout";
    case V1LayerParameter::DUMMY_DATA: return "DummyData";
    case V1LayerParameter::EUCLIDEAN_LOSS: return "EuclideanLoss";
    case V1LayerParameter::ELTWISE: return "Eltwise";
    case V1LayerParameter::EXP: return "Exp";
    case V1LayerParameter::FLATTEN: return "Flatten";
    case V1LayerParameter::HDF5_DATA: return "HDF5Data";
    case V1LayerParameter::HDF5_OUTPUT: return "HDF5Output";
    case V1LayerParameter::HINGE_LOSS: return "HingeLoss";
    case V1LayerParameter::IM2COL: return "Im2col";
    case V1LayerParameter::IMAGE_DATA: return "ImageData";
    case V1LayerParameter::INFOGAIN_LOSS: return "InfogainLoss";
    case V1LayerParameter::INNER_PRODUCT: return "InnerProduct";
    case V1LayerParameter::LRN: return "LRN";
    case V1LayerParameter::MEMORY_DATA: return "MemoryData";
    case V1LayerParameter::MULTINOMIAL_LOGISTIC_LOSS: return "MultinomialLogisticLoss";
    case V1LayerParameter::MVN: return "MVN";
    case V1LayerParameter::POOLING: return "Pooling";
    case V1LayerParameter::POWER: return "Power";
    case V1LayerParameter::RELU: return "ReLU";
    case V1LayerParameter::SIGMOID: return "Sigmoid";
    case V1LayerParameter::SIGMOID_CROSS_ENTROPY_LOSS: return "SigmoidCrossEntropyLoss";
    case V1LayerParameter::SILENCE: return "Silence";
    case V1LayerParameter::SOFTMAX: return "Softmax";
    case V1LayerParameter::SOFTMAX_LOSS: return "SoftmaxWithLoss";
    case V1LayerParameter::SPLIT: return "Split";
    case V1LayerParameter::SLICE: return "Slice";
    case V1LayerParameter::TANH: return "TanH";
    case V1LayerParameter::WINDOW_DATA: return "WindowData";
    case V1LayerParameter::THRESHOLD: return "Threshold";
    case V1LayerParameter::ANGLE_LOSS: return "AngleLoss";
    case V1LayerParameter::MULTI_SOFTMAX: return "Softmax";
    case V1LayerParameter::MULTI_SOFTMAX_LOSS: return "MultiSoftmaxWithLoss";
    case V1LayerParameter::NORM: return "Norm";
  }
  return "";
}

Status UpgradeNet(const std::string& name, NetParameter* net) {
  POSEIDON_RETURN_IF_ERROR(UpgradeLayers(name, net));
  POSEIDON_RETURN_IF_ERROR(UpgradeInputs(name, net));
  UpgradeBatchNorm(net);
  UpgradeStatisticsBatch(net);
  return OkStatus();
}

Status UpgradeSolver(const std::string& name, SolverParameter* solver) {
  if (solver->has_solver_type()) {
    if (solver->has_type()) {
      return InvalidArgument(name + ": 'type' and the older 'solver_type' are both given");
    }
    solver->set_type(SolverTypeName(solver->solver_type()));
    solver->clear_solver_type();
  }
  if (solver->has_net_param()) {
    POSEIDON_RETURN_IF_ERROR(UpgradeNet(name, solver->mutable_net_param()));
  }
  if (solver->has_train_net_param()) {
    POSEIDON_RETURN_IF_ERROR(UpgradeNet(name, solver->mutable_train_net_param()));
  }
  for (NetParameter& net : *solver->mutable_test_net_param()) {
    POSEIDON_RETURN_IF_ERROR(UpgradeNet(name, &net));
  }
  return OkStatus();
}

Result<NetParameter> ReadNet(const std::string& prototxt, const JudgeLayer& judge) {
  NetParameter net;
  POSEIDON_RETURN_IF_ERROR(ReadTextFile(prototxt, &net, judge));
  POSEIDON_RETURN_IF_ERROR(UpgradeNet(prototxt, &net));
  return net;
}

Result<NetParameter> ReadModel(const std::string& caffemodel) {
  NetParameter net;
  POSEIDON_RETURN_IF_ERROR(ReadBinaryFile(caffemodel, &net));
  POSEIDON_RETURN_IF_ERROR(UpgradeNet(caffemodel, &net));
  return net;
}

Result<SolverParameter> ReadSolverText(const std::string& prototxt) {
  SolverParameter solver;
  const Status status = ReadTextFile(prototxt, &solver);
  if (status.ok()) return solver;
  const std::optional<std::string> text = TextWithFirstDevice(prototxt);
  if (!text) return status;
  POSEIDON_RETURN_IF_ERROR(ParseText(*text, prototxt, &solver));
  return solver;
}

Result<SolverParameter> ReadSolver(const std::string& prototxt) {
  POSEIDON_ASSIGN_OR_RETURN(SolverParameter solver, ReadSolverText(prototxt));
  POSEIDON_RETURN_IF_ERROR(UpgradeSolver(prototxt, &solver));
  return solver;
}

}  // namespace poseidon::caffe
