// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/proto/forks.h"

#include <algorithm>

namespace poseidon::caffe {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Names are separated by spaces.
struct TypesOfFork {
  std::string_view fork;
  std::string_view types;
};
struct FieldsOfFork {
  std::string_view message;
  std::string_view fork;
  std::string_view fields;
};
struct Note {
  std::string_view why;
  std::string_view fields;  // "Message.field"
};

constexpr TypesOfFork kTypes[] = {
    {"temporal segment networks", "BatchReduction Scatter SegData"},
    {"Deformable R-FCN", "DeformableConvolution DeformablePSROIPooling"},
    {"CRF-RNN", "MultiStageMeanfield"},
    {"DeepLab", "DenseCRF MatRead MatWrite UniqueLabel DomainTransform"},
    {"YOLO", "BoxData EvalDetection RegionLoss RegionOutput Reorg Yolo YoloDetectionOutput Yolov3DetectionOutput"},
    {"NVIDIA Caffe", "DetectNetTransformation L1Loss TRT"},
    {"Intel Caffe", "MKLBatchNorm MnActivation SpatialDropout"},
    {"FlowNet", "ChannelNorm Correlation CustomData DataAugmentation Downsample FlowAugmentation GenerateAugmentationParameters "
                "L1Loss Resample"},
    {"OpenPose", "CPMData Switch"},
    {"FaceNet's ports", "TripletLoss TripletSelect"},
};

constexpr FieldsOfFork kFields[] = {
    {"TransformationParameter", "SSD", "noise_param"},
    {"TransformationParameter", "NVIDIA Caffe",
     "img_rand_resize_lower img_rand_resize_upper rand_resize_ratio_lower rand_resize_ratio_upper vertical_stretch_lower "
     "vertical_stretch_upper horizontal_stretch_lower horizontal_stretch_upper interpolation_algo_down interpolation_algo_up "
     "allow_upscale forward_packing display num_labels"},
    {"TransformationParameter", "Intel Caffe", "random_resize_param random_aspect_ratio_param flow bgr2rgb pad"},
    {"TransformationParameter", "temporal segment networks",
     "original_image stride upper_size upper_height upper_width rand_rotate gaussian_blur"},
    {"ImageDataParameter", "NVIDIA Caffe", "short_side precache dataset_share_per_node"},
    {"ImageDataParameter", "Intel Caffe", "min_height min_width"},
    {"ImageDataParameter", "ENet", "label_divide_factor"},
    {"DataParameter", "Intel Caffe", "side"},
    {"NetParameter", "Intel Caffe", "compile_net_state multinode"},
    {"VideoDataParameter", "SSD", "video_type device_id video_file skip_frames"},
    {"LayerParameter", "YOLO", "eval_detection_param region_loss_param reorg_param"},
    {"LayerParameter", "NVIDIA Caffe", "detectnet_augmentation_param detectnet_groundtruth_param trt_param"},
    {"LayerParameter", "Intel Caffe",
     "mn_activation_param mn_grad_compress_param multinode spatial_dropout_param split_param"},
    {"LossParameter", "NVIDIA Caffe and Intel Caffe", "label_smoothing"},
    {"BatchNormParameter", "Intel Caffe", "use_weight_bias bias_term filler relu"},
    {"ConvolutionParameter", "Intel Caffe", "relu negative_slope coeff fusion_type"},
    {"InnerProductParameter", "Intel Caffe", "relu negative_slope"},
    {"ReLUParameter", "Intel Caffe", "fuse"},
    {"ConcatParameter", "Intel Caffe", "per_fla_fuse"},
    {"PoolingParameter", "Intel Caffe", "avg_include_pad axis pad_3d kernel_size_3d stride_3d"},
    {"PoolingParameter", "NVIDIA Caffe", "torch_pooling"},
    {"ReshapeParameter", "Intel Caffe", "pixelshuffler"},
    {"FillerParameter", "Intel Caffe", "scale"},
    {"ELUParameter", "NVIDIA Caffe", "lambda"},
    {"SolverParameter", "SSD", "plateau_winsize"},
    {"SolverParameter", "IncReg",
     "prune_method speedup compRatio acc_borderline baseline_acc retrain_test_interval losseval_interval IF_update_row_col IF_eswpf "
     "IF_speedup_count_fc IF_compr_count_conv IF_scheme1_when_Reg_rank IF_use_acc1 iter_size_prune iter_size_losseval iter_size_retrain "
     "iter_size_final_retrain"},
    {"SolverParameter", "NVIDIA Caffe",
     "rampup_interval rampup_lr min_lr momentum_policy max_momentum momentum_power larc larc_policy larc_eta larc_turbo "
     "weight_decay_policy weight_decay_power max_weight_decay test_and_snapshot_last_epochs"},
    {"SolverParameter", "Intel Caffe",
     "disabled_update warmup_iter warmup_start_lr local_lr_auto local_gw_ratio test_offset stagelr stageiter"},
};

constexpr Note kNotes[] = {
    {"the gradient of a layer is sent as soon as it is computed", "SolverParameter.layer_wise_reduce"},
    {"transform_param { force_color: true } makes three channels, as in Caffe 1.0", "DataParameter.force_encoded_color"},
    {"results do not depend on it", "ConvolutionParameter.force_nd_im2col"},
    {"there is no net of steps inside the layer, and debug_info of the solver prints the layer", "RecurrentParameter.debug_info"},
    {"records come in the order of their keys", "DataParameter.shuffle"},
    {"batches are read in the background, prefetch of them ahead",
     "DataParameter.cache DataParameter.precache DataParameter.threads DataParameter.parser_threads "
     "ImageDataParameter.cache ImageDataParameter.threads"},
    {"all numbers are of one type, f32 where nothing else is asked for",
     "NetParameter.default_forward_type NetParameter.default_backward_type NetParameter.default_forward_math "
     "NetParameter.default_backward_math LayerParameter.forward_type LayerParameter.backward_type LayerParameter.forward_math "
     "LayerParameter.backward_math SolverParameter.solver_data_type"},
    {"numbers are not rounded to fewer bits", "LayerParameter.quantization_param"},
    {"nothing is pruned, as in the fork where the solver has no prune_method", "LayerParameter.prune_param"},
    {"the library chooses how it convolves",
     "ConvolutionParameter.conv_algorithm ConvolutionParameter.conv_algos_override "
     "ConvolutionParameter.cudnn_convolution_algo_seeker LayerParameter.cudnn_math_override "
     "NetParameter.default_conv_algos_override NetParameter.default_cudnn_math_override"},
    {"no result depends on it", "NetParameter.eltwise_mem_sharing NetParameter.reduce_buckets NetParameter.print_net_info"},
    {"gradients are divided by it again before an update, and f32 needs no such scale",
     "NetParameter.global_grad_scale NetParameter.global_grad_scale_adaptive"},
    {"records have numbers as labels", "AnnotatedDataParameter.label_map_file"},
    {"the fork does not look at it either, transform_param has one", "DenseImageDataParameter.mean_file"},
    {"draws follow the solver's random_seed", "TransformationParameter.random_seed DropoutParameter.random_seed"},
    {"images are transformed on the CPU", "TransformationParameter.use_gpu_transform"},
    {"debug_info of the solver prints what passes through a net", "LayerParameter.debug"},
    {"snapshots are those of BVLC Caffe", "SolverParameter.store_blobs_in_old_format"},
    {"detections are the layer's top, and are neither written to files nor shown",
     "DetectionOutputParameter.save_output_param DetectionOutputParameter.visualize DetectionOutputParameter.visualize_threshold "
     "DetectionOutputParameter.save_file"},
};

bool Lists(std::string_view names, std::string_view name) {
  if (name.empty()) return false;
  for (std::size_t at = names.find(name); at != std::string_view::npos; at = names.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if ((at == 0 || names[at - 1] == ' ') && (end == names.size() || names[end] == ' ')) return true;
  }
  return false;
}

// The fields named so far, by the note that they ask for.
using Named = std::vector<std::vector<std::string>>;

void Collect(const Message& message, Named* named) {
  const auto* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool off = !field->is_repeated() && field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL &&
                     reflection->GetBool(message, field) == field->default_value_bool();
    const std::string full = message.GetDescriptor()->name() + "." + field->name();
    for (std::size_t i = 0; i < std::size(kNotes) && !off; ++i) {
      std::vector<std::string>& same = (*named)[i];
      if (!Lists(kNotes[i].fields, full)) continue;
      if (std::find(same.begin(), same.end(), field->name()) == same.end()) same.push_back(field->name());
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      Collect(reflection->GetMessage(message, field), named);
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) Collect(reflection->GetRepeatedMessage(message, field, i), named);
  }
}

}  // namespace

std::string_view ForkOfType(std::string_view type) {
  for (const TypesOfFork& entry : kTypes) {
    if (Lists(entry.types, type)) return entry.fork;
  }
  return {};
}

std::string_view ForkOfField(std::string_view message, std::string_view field) {
  for (const FieldsOfFork& entry : kFields) {
    if (entry.message == message && Lists(entry.fields, field)) return entry.fork;
  }
  return {};
}

std::string UnknownType(std::string_view type) {
  std::string words = "unknown layer type '" + std::string(type) + "'";
  if (const std::string_view fork = ForkOfType(type); !fork.empty()) words += " of " + std::string(fork);
  return words;
}

std::vector<std::string> NotesOn(const std::vector<const Message*>& messages) {
  Named named(std::size(kNotes));
  for (const Message* message : messages) Collect(*message, &named);
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < named.size(); ++i) {
    if (named[i].empty()) continue;
    std::string note;
    for (const std::string& field : named[i]) note += (note.empty() ? "'" : ", '") + field + "'";
    note += named[i].size() == 1 ? " is not looked at: " : " are not looked at: ";
    notes.push_back(note + std::string(kNotes[i].why));
  }
  return notes;
}

}  // namespace poseidon::caffe
