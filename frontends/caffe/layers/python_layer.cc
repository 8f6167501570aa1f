// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/layers/python_layer.h"

#include <string>
#include <utility>

namespace poseidon::caffe {
namespace {

PythonHost* python_host = nullptr;

// A layer that the user wrote in Python. As Caffe does it, the class is asked for the shapes before every pass, because
// it may have another batch each time.
class PythonLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {0, Arity::kAny, 0, Arity::kAny}; }
  bool computes_on_device() const override { return false; }
  bool works_in_place() const override { return true; }

  Status SetUp(const Blobs& bottom, const Blobs& top) override {
    const PythonParameter& python = param().python_param();
    const std::string words = python.module() + "." + python.layer();
    if (python.module().empty() || python.layer().empty()) {
      return InvalidArgument("names the class '" + words + "', expected module and layer in python_param");
    }
    if (python_host == nullptr) {
      return Unimplemented("is the Python class " + words + ", which runs only where Python does: poseidon train, or a Python program "
                           "that trains with poseidon.caffe");
    }
    if (options().dtype() != at::kFloat) return Unimplemented("is the Python class " + words + ", which computes with f32 alone");
    POSEIDON_ASSIGN_OR_RETURN(object_, python_host->Make(param(), phase()));
    POSEIDON_RETURN_IF_ERROR(object_->SetUp(bottom, top, &learned_));
    const FillerParameter zero;
    for (const Blob& blob : learned_) DeclareParam(blob.shape(), zero);
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    if (!std::exchange(learns_, true)) TakeFirstNumbers();
    const Status status = ReshapeTops(bottom, top);
    ShowLearned();
    return status;
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    ShowLearned();
    POSEIDON_RETURN_IF_ERROR(ReshapeTops(bottom, top));
    return object_->Forward(bottom, top);
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    for (int i = 0; i < static_cast<int>(blobs().size()); ++i) {
      if (!WantsParamDiff(i)) continue;
      const auto [diff, add] = ParamDiff(i);
      if (!add) diff.zero_();
    }
    ShowLearned();
    return object_->Backward(top, propagate_down, bottom);
  }

 private:
  Status ReshapeTops(const Blobs& bottom, const Blobs& top) {
    POSEIDON_RETURN_IF_ERROR(object_->Reshape(bottom, top));
    for (std::size_t i = 0; i < top.size(); ++i) {
      if (!top[i]->data.defined()) {
        return InvalidArgument("reshape of the class has not given top " + std::to_string(i) + " a shape, expected top[" +
                               std::to_string(i) + "].reshape(...)");
      }
    }
    return OkStatus();
  }

  // The net has made the learned blobs since SetUp. Those that belong to another layer or net, as a test net's belong to the one
  // that trains, have their numbers already: what the class writes in setup, and in the reshape that is part of it, stays in memory
  // of its own, as in Caffe, where nets share once they are set up.
  void TakeFirstNumbers() {
    for (std::size_t i = 0; i < learned_.size(); ++i) {
      if (!BeginsParam(static_cast<int>(i))) continue;
      blobs()[i].data.copy_(learned_[i].data);
      learned_[i] = blobs()[i];
    }
  }

  // The net may have given a blob other memory, or its gradient's first.
  void ShowLearned() {
    for (std::size_t i = 0; i < learned_.size(); ++i) learned_[i] = blobs()[i];
  }

  std::deque<Blob> learned_;  // what the object has of blobs(), at addresses that stay; outlives it
  std::unique_ptr<PythonObject> object_;
  bool learns_ = false;
};

}  // namespace

void SetPythonHost(PythonHost* host) { python_host = host; }

std::unique_ptr<Layer> MakePythonLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<PythonLayer>(param, context);
}

}  // namespace poseidon::caffe
