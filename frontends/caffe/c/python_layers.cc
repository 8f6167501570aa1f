// SPDX-License-Identifier: Apache-2.0
// Layers of type Python through the C interface: a table of callbacks makes and runs their objects.
#include <ATen/ops/zeros.h>

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frontends/caffe/c/failure.h"
#include "frontends/caffe/c/handles.h"
#include "frontends/caffe/engine/engine.h"
#include "frontends/caffe/layers/python_layer.h"

// The learned blobs of one layer.
struct poseidon_caffe_learned {
  std::deque<poseidon::caffe::Blob>* blobs = nullptr;  // from setup on
  bool grows = false;                                  // while setup runs
};

namespace poseidon::caffe {
namespace {

// What a callback says of its failure.
class Sentence {
 public:
  char* room() { return text_.data(); }
  std::size_t size() const { return text_.size(); }
  std::string Text() {
    text_.back() = '\0';
    return text_.data();
  }

 private:
  std::array<char, 1000> text_{};
};

std::vector<poseidon_caffe_blob*> HandlesOf(const Blobs& blobs) {
  std::vector<poseidon_caffe_blob*> handles;
  for (const Blob* blob : blobs) handles.push_back(HandleOf(blob));
  return handles;
}

class CalledObject final : public PythonObject {
 public:
  explicit CalledObject(const poseidon_caffe_layers& layers) : layers_(layers) {}
  CalledObject(const CalledObject&) = delete;
  CalledObject& operator=(const CalledObject&) = delete;
  ~CalledObject() override {
    if (object_ != 0) layers_.drop(object_);
  }

  Status Make(const PythonParameter& python, Phase phase) {
    if (WantsOut()) return Answered(0);
    Sentence sentence;
    object_ = layers_.make(python.module().c_str(), python.layer().c_str(), python.param_str().c_str(), phase, &learned_,
                           sentence.room(), sentence.size());
    return object_ != 0 ? OkStatus() : InvalidArgument(sentence.Text());
  }

  Status SetUp(const Blobs& bottom, const Blobs& top, std::deque<Blob>* learned) override {
    learned_ = {.blobs = learned, .grows = true};
    const Status status = Call(POSEIDON_CAFFE_SETUP, bottom, top, {});
    learned_.grows = false;
    return status;
  }
  Status Reshape(const Blobs& bottom, const Blobs& top) override { return Call(POSEIDON_CAFFE_RESHAPE, bottom, top, {}); }
  Status Forward(const Blobs& bottom, const Blobs& top) override { return Call(POSEIDON_CAFFE_FORWARD, bottom, top, {}); }
  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    return Call(POSEIDON_CAFFE_BACKWARD, bottom, top, {propagate_down.begin(), propagate_down.end()});
  }

 private:
  Status Call(int what, const Blobs& bottom, const Blobs& top, const std::vector<std::uint8_t>& propagate_down) {
    const std::vector<poseidon_caffe_blob*> bottoms = HandlesOf(bottom);
    const std::vector<poseidon_caffe_blob*> tops = HandlesOf(top);
    const poseidon_caffe_call call{.object = object_,
                                   .what = what,
                                   .bottoms = static_cast<int32_t>(bottoms.size()),
                                   .tops = static_cast<int32_t>(tops.size()),
                                   .bottom = bottoms.data(),
                                   .top = tops.data(),
                                   .propagate_down = propagate_down.data()};
    if (WantsOut()) return Answered(0);
    Sentence sentence;
    if (layers_.call(&call, sentence.room(), sentence.size()) != 0) return OkStatus();
    return {StatusCode::kAborted, sentence.Text()};
  }

  const poseidon_caffe_layers layers_;
  std::int64_t object_ = 0;
  poseidon_caffe_learned learned_;
};

class CallingHost final : public PythonHost {
 public:
  explicit CallingHost(const poseidon_caffe_layers& layers) : layers_(layers) {}
  Result<std::unique_ptr<PythonObject>> Make(const LayerParameter& param, Phase phase) override {
    auto object = std::make_unique<CalledObject>(layers_);
    POSEIDON_RETURN_IF_ERROR(object->Make(param.python_param(), phase));
    return std::unique_ptr<PythonObject>(std::move(object));
  }

 private:
  const poseidon_caffe_layers layers_;
};

}  // namespace
}  // namespace poseidon::caffe

using namespace poseidon;         // NOLINT(google-build-using-namespace): the C names live outside
using namespace poseidon::caffe;  // NOLINT(google-build-using-namespace)

void poseidon_caffe_set_layers(const poseidon_caffe_layers* layers) {
  static std::unique_ptr<CallingHost> host;
  host = std::make_unique<CallingHost>(*layers);
  SetPythonHost(host.get());
}

poseidon_caffe_code poseidon_caffe_learned_add(poseidon_caffe_learned* learned, int32_t axes, const int64_t* shape) {
  return Guarded([&] {
    return RunOnEngine([&]() -> Status {
      if (!learned->grows) return FailedPrecondition("a layer adds learned blobs in its setup only");
      POSEIDON_ASSIGN_OR_RETURN(const Shape wanted, CheckedShape(axes, shape));
      learned->blobs->push_back({.data = at::zeros(wanted, at::TensorOptions().dtype(at::kFloat)), .diff = {}});
      return OkStatus();
    });
  });
}

int32_t poseidon_caffe_learned_count(const poseidon_caffe_learned* learned) {
  return learned->blobs == nullptr ? 0 : static_cast<int32_t>(learned->blobs->size());
}

poseidon_caffe_blob* poseidon_caffe_learned_at(poseidon_caffe_learned* learned, int32_t index) {
  return HandleOf(&learned->blobs->at(static_cast<std::size_t>(index)));
}
