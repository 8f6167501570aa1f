// SPDX-License-Identifier: Apache-2.0
// Nets through the C interface.
#include "frontends/caffe/net/net.h"

#include <ATen/ops/from_blob.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "frontends/caffe/c/failure.h"
#include "frontends/caffe/c/handles.h"
#include "frontends/caffe/c/say.h"
#include "frontends/caffe/engine/engine.h"
#include "frontends/caffe/layers/memory_data_layer.h"
#include "frontends/caffe/layers/registry.h"
#include "frontends/caffe/proto/read.h"
#include "frontends/caffe/proto/upgrade.h"
#include "frontends/caffe/solver/nets.h"
#include "frontends/caffe/solver/snapshot.h"

using namespace poseidon;         // NOLINT(google-build-using-namespace): the C names live outside
using namespace poseidon::caffe;  // NOLINT(google-build-using-namespace)

namespace {

using nlohmann::json;

Result<std::unique_ptr<Net>> BuildNet(const std::string& prototxt, const poseidon_caffe_state& wanted) {
  POSEIDON_ASSIGN_OR_RETURN(NetParameter parameters, ReadNet(prototxt, RefusalsOf));
  FindFilesBeside(std::filesystem::path(prototxt).parent_path().string(), &parameters);
  NetState state;
  state.set_phase(wanted.phase == TEST ? TEST : TRAIN);
  state.set_level(wanted.level);
  std::istringstream stages(wanted.stages != nullptr ? wanted.stages : "");
  for (std::string stage; std::getline(stages, stage);) state.add_stage(stage);
  POSEIDON_ASSIGN_OR_RETURN(std::unique_ptr<Net> net, Net::Create(parameters, state, MakeLayer, NetOptions{.seed = wanted.seed, .fuse = false}));
  if (net->layer_count() == 0) return InvalidArgument(prototxt + " has no layers in phase " + Phase_Name(state.phase()));
  return net;
}

Status CheckRange(const Net& net, int first, int last) {
  const int count = net.layer_count();
  if (first >= 0 && first < count && last >= 0 && last < count) return OkStatus();
  return InvalidArgument("layers " + std::to_string(first) + " to " + std::to_string(last) + " of a net that has " + std::to_string(count));
}

// Of blobs their numbers in Net::blobs().
class Description {
 public:
  explicit Description(const Net& net) : net_(net) {
    for (std::size_t i = 0; i < net.blobs().size(); ++i) ids_[net.blobs()[i].get()] = i;
  }

  json Json() {
    std::vector<float> weights(net_.blobs().size());
    json layers = json::array();
    json inputs = json::array();
    for (int i = 0; i < net_.layer_count(); ++i) {
      const Layer& layer = net_.layer(i);
      const json tops = Ids(net_.tops(i));
      for (std::size_t j = 0; j < net_.tops(i).size(); ++j) weights[ids_.at(net_.tops(i)[j])] = net_.loss_weights(i)[j];
      if (layer.type() == "Input") inputs.insert(inputs.end(), tops.begin(), tops.end());
      layers.push_back({{"name", layer.name()},
                        {"type", layer.type()},
                        {"bottoms", Ids(net_.bottoms(i))},
                        {"tops", tops},
                        {"learned", layer.blobs().size()}});
    }
    json outputs = json::array();
    for (const NetOutput& output : net_.outputs()) outputs.push_back(ids_.at(output.blob));
    return {{"name", net_.name()},         {"phase", static_cast<int>(net_.phase())}, {"layers", layers},
            {"blobs", net_.blob_names()},  {"loss_weights", weights},                 {"inputs", inputs},
            {"outputs", outputs}};
  }

 private:
  json Ids(const Blobs& blobs) const {
    json ids = json::array();
    for (const Blob* blob : blobs) ids.push_back(ids_.at(blob));
    return ids;
  }

  const Net& net_;
  std::map<const Blob*, std::size_t> ids_;
};

at::Tensor CopyOf(const float* numbers, at::IntArrayRef shape) {
  return at::from_blob(const_cast<float*>(numbers), shape, at::TensorOptions().dtype(at::kFloat)).clone();
}

}  // namespace

void poseidon_caffe_net::NeedParamDiffs() {
  if (!std::exchange(has_diffs, true)) net->ZeroParamDiffs();
}

Status poseidon_caffe_net::FollowReshapes() {
  if (!reshaped) return OkStatus();
  POSEIDON_RETURN_IF_ERROR(net->Reshape());
  reshaped = false;
  return OkStatus();
}

poseidon_caffe_code poseidon_caffe_net_new(const char* prototxt, const poseidon_caffe_state* state, poseidon_caffe_net** net) {
  return Guarded([&]() -> Status {
    POSEIDON_ASSIGN_OR_RETURN(std::unique_ptr<Net> built, BuildNet(prototxt, *state));
    *net = new poseidon_caffe_net(std::move(built));
    return OkStatus();
  });
}

void poseidon_caffe_net_free(poseidon_caffe_net* net) { delete net; }

const char* poseidon_caffe_net_describe(poseidon_caffe_net* net) {
  return Lent(Description(*net->net).Json().dump(-1, ' ', false, json::error_handler_t::replace));
}

poseidon_caffe_blob* poseidon_caffe_net_blob(poseidon_caffe_net* net, int32_t id) {
  return HandleOf(net->net->blobs().at(static_cast<std::size_t>(id)).get());
}

poseidon_caffe_blob* poseidon_caffe_net_learned(poseidon_caffe_net* net, int32_t layer, int32_t index) {
  return HandleOf(&net->net->layers().at(static_cast<std::size_t>(layer))->blobs().at(static_cast<std::size_t>(index)));
}

poseidon_caffe_code poseidon_caffe_net_forward(poseidon_caffe_net* net, int32_t first, int32_t last, double* loss) {
  return Guarded([&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckRange(*net->net, first, last));
    POSEIDON_RETURN_IF_ERROR(net->FollowReshapes());
    if (first == 0) {
      net->net->BeginPass({.step = net->passes, .pass = 0, .batch = net->passes});
      ++net->passes;
    }
    POSEIDON_ASSIGN_OR_RETURN(*loss, net->net->ForwardFromTo(first, last));
    return OkStatus();
  });
}

poseidon_caffe_code poseidon_caffe_net_backward(poseidon_caffe_net* net, int32_t first, int32_t last) {
  return Guarded([&]() -> Status {
    POSEIDON_RETURN_IF_ERROR(CheckRange(*net->net, first, last));
    POSEIDON_RETURN_IF_ERROR(net->FollowReshapes());
    net->NeedParamDiffs();
    return net->net->BackwardFromTo(first, last);
  });
}

poseidon_caffe_code poseidon_caffe_net_clear_param_diffs(poseidon_caffe_net* net) {
  return Guarded([&] {
    net->has_diffs = true;
    net->net->ZeroParamDiffs();
    return OkStatus();
  });
}

poseidon_caffe_code poseidon_caffe_net_need_param_diffs(poseidon_caffe_net* net) {
  return Guarded([&] {
    net->NeedParamDiffs();
    return OkStatus();
  });
}

poseidon_caffe_code poseidon_caffe_net_reshape(poseidon_caffe_net* net) {
  return Guarded([&] {
    net->reshaped = true;
    return net->FollowReshapes();
  });
}

poseidon_caffe_code poseidon_caffe_net_copy_from(poseidon_caffe_net* net, const char* model) {
  return Guarded([&]() -> Status {
    POSEIDON_ASSIGN_OR_RETURN(const WeightsReport report, LoadWeights(model, {net->net}));
    if (const std::string words = InWords(report); !words.empty()) Say(LogLevel::kNotice, words);
    return OkStatus();
  });
}

poseidon_caffe_code poseidon_caffe_net_share_with(poseidon_caffe_net* net, const poseidon_caffe_net* other) {
  return Guarded([&] { return net->net->ShareParametersWith(*other->net); });
}

poseidon_caffe_code poseidon_caffe_net_save(poseidon_caffe_net* net, const char* path, int32_t hdf5) {
  return Guarded([&] { return WriteModel(*net->net, path, hdf5 != 0 ? SolverParameter::HDF5 : SolverParameter::BINARYPROTO); });
}

poseidon_caffe_code poseidon_caffe_net_set_input_arrays(poseidon_caffe_net* net, const float* data, const int64_t* shape,
                                                        const float* labels) {
  return Guarded([&] {
    return RunOnEngine([&]() -> Status {
      Layer& first = net->net->layer(0);
      auto* const memory = dynamic_cast<MemoryData*>(&first);
      if (memory == nullptr) {
        return InvalidArgument("the first layer '" + first.name() + "' is of type " + first.type() + ", expected MemoryData");
      }
      POSEIDON_ASSIGN_OR_RETURN(const Shape of_data, CheckedShape(4, shape));
      return memory->SetArrays(CopyOf(data, of_data), CopyOf(labels, {of_data[0]})).WithPrefix("layer '" + first.name() + "'");
    });
  });
}
