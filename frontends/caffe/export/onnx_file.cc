// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <limits>
#include <utility>

#include "frontends/caffe/export/onnx_export.h"
#include "frontends/caffe/proto/read.h"
#include "poseidon/base/file.h"

namespace poseidon::caffe {
namespace {

constexpr std::size_t kSmall = 1024;       // bytes of a tensor that stays in the model
constexpr std::size_t kAlignment = 4096;   // of tensors in the other file, so that it can be mapped
constexpr std::size_t kGraphBytes = std::size_t{64} << 20;  // more than nodes and names take

void AddEntry(onnx::TensorProto* tensor, const char* key, const std::string& value) {
  onnx::StringStringEntryProto* const entry = tensor->add_external_data();
  entry->set_key(key);
  entry->set_value(value);
}

// Takes the numbers of the large tensors out of the model and returns them.
std::string TakeTensors(onnx::ModelProto* model, const std::string& location) {
  std::string bytes;
  for (onnx::TensorProto& tensor : *model->mutable_graph()->mutable_initializer()) {
    if (tensor.raw_data().size() <= kSmall) continue;
    bytes.resize((bytes.size() + kAlignment - 1) / kAlignment * kAlignment);
    AddEntry(&tensor, "location", location);
    AddEntry(&tensor, "offset", std::to_string(bytes.size()));
    AddEntry(&tensor, "length", std::to_string(tensor.raw_data().size()));
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    bytes += tensor.raw_data();
    tensor.clear_raw_data();
  }
  return bytes;
}

}  // namespace

Status WriteOnnx(onnx::ModelProto model, const std::string& path, bool apart) {
  std::size_t bytes = 0;
  for (const onnx::TensorProto& tensor : model.graph().initializer()) bytes += tensor.raw_data().size();
  const bool too_large = bytes > static_cast<std::size_t>(std::numeric_limits<int>::max()) - kGraphBytes;
  if (!apart && !too_large) return WriteBinaryFile(model, path);
  const std::string data_path = path + ".data";
  POSEIDON_ASSIGN_OR_RETURN(FileDraft data,
                            FileDraft::Write(TakeTensors(&model, std::filesystem::path(data_path).filename().string()), data_path));
  POSEIDON_ASSIGN_OR_RETURN(FileDraft draft, DraftMessage(model, path));
  POSEIDON_RETURN_IF_ERROR(data.Commit());
  return draft.Commit();
}

}  // namespace poseidon::caffe
