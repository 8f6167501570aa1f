// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_NET_NET_H_
#define POSEIDON_FRONTENDS_CAFFE_NET_NET_H_

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "frontends/caffe/net/blob.h"
#include "frontends/caffe/net/layer.h"
#include "frontends/caffe/net/pass_context.h"
#include "frontends/caffe/proto/at.h"
#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/result.h"
#include "poseidon/base/status.h"
#include "poseidon/tensor/dtype.h"

namespace poseidon::caffe {

class Net;

// The engine's type of a net's numbers.
inline at::ScalarType ScalarTypeOf(DType dtype) { return dtype == DType::kF64 ? at::kDouble : at::kFloat; }

struct NetOptions {
  DType dtype = DType::kF32;    // or kF64, for numeric tests
  std::uint64_t seed = 1;       // fillers, dropout masks, crops; equal on all workers
  DataShare share;              // of every data source and of every global batch
  // A net whose learned blobs are used wherever a layer has the same name, instead of blobs of our
  // own: nothing is allocated or filled for them. Needed during Create only.
  const Net* parameters_from = nullptr;
  Placement placement;  // of its blobs
  // Whether a layer may compute the next one, in place on its top, too: what lies between the two is in no blob then.
  bool fuse = true;
};

// Called around each layer's part of a pass, with its index; a failure ends the pass. Empty ones
// are skipped. After `after_backward(i)` the gradients in the flat diff of layer i are complete
// for this pass, also where the blobs are shared with later layers.
struct NetHooks {
  std::function<Status(int layer)> before_forward;
  std::function<Status(int layer)> after_forward;
  std::function<Status(int layer)> before_backward;
  std::function<Status(int layer)> after_backward;
};

// A blob no layer reads: what the net computes.
struct NetOutput {
  std::string name;
  Blob* blob = nullptr;
  float loss_weight = 0;
};

// A learned blob, listed once, under the layer that owns it.
struct LearnableParam {
  int layer = 0;   // index of the owner
  int index = 0;   // in the owner's blobs()
  Blob blob;       // views of the owner's flat tensors; its diff is defined after EnsureParamDiffs
  float lr_mult = 1;
  float decay_mult = 1;
  bool statistics = false;  // a running statistic: kept in snapshots, not trained, not averaged
};

// All learned blobs that one layer owns, in Caffe's order, as one contiguous vector each.
struct LayerParams {
  at::Tensor data;
  at::Tensor diff;
};

// Which layer of a net takes the weights of a saved one where several layers have the same name.
enum class SameNames {
  kFirst,    // the first one, whichever is saved: so Caffe does
  kInOrder,  // the first takes those of the first with weights, the second those of the second: a net's own model
};

// A graph of layers in the order of the prototxt, with splits inserted.
//
// Thread: one at a time. Failures name the layer: "layer 'ip1' (InnerProduct): ...".
class Net {
 public:
  // Builds the part of `param` (upgraded, see proto/upgrade.h) that belongs to `state`, of layers that `make_layer`
  // makes, with filled weights. `param.state` is not looked at.
  static Result<std::unique_ptr<Net>> Create(const NetParameter& param, const NetState& state,
                                             LayerFactory make_layer, const NetOptions& options);
  Net(const Net&) = delete;
  Net& operator=(const Net&) = delete;
  ~Net();

  const std::string& name() const { return name_; }
  Phase phase() const { return state_.phase(); }
  const NetOptions& options() const { return options_; }

  int layer_count() const { return static_cast<int>(layers_.size()); }
  Layer& layer(int index) const { return *At(layers_, index); }
  const std::vector<std::unique_ptr<Layer>>& layers() const { return layers_; }
  // The first layer of that name, as several may have it; -1 when there is none.
  int LayerIndex(const std::string& name) const;
  // The layer's name, with "#2" and so on behind it where earlier layers have the same. A session, a plan and random
  // draws, for which layers must differ, use it; files and messages have the plain name.
  const std::string& UniqueName(int layer) const {
    return At(unique_names_, layer);
  }
  const Blobs& bottoms(int layer) const { return At(nodes_, layer).bottom; }
  const Blobs& tops(int layer) const { return At(nodes_, layer).top; }
  // Whether gradients are computed for all there is, learned or not.
  bool force_backward() const { return param_.force_backward(); }
  bool needs_backward(int layer) const {
    return At(nodes_, layer).needs_backward;
  }

  // A blob by name, or null. Lives as long as the net; a pass may rebind its tensors.
  Blob* blob(const std::string& name) const;
  const std::vector<std::string>& blob_names() const { return blob_names_; }
  // All of them, in the order of blob_names(). A top that is made in place is its bottom.
  const std::vector<std::unique_ptr<Blob>>& blobs() const { return blobs_; }
  const std::string& bottom_name(int layer, std::size_t bottom) const { return NameOf(node(layer).bottom_ids[bottom]); }
  const std::string& top_name(int layer, std::size_t top) const { return NameOf(node(layer).top_ids[top]); }
  // The blob that a bottom is, whichever layers Net::Create put between the two to give it several readers.
  const std::string& source_name(int layer, std::size_t bottom) const;
  bool propagates_down(int layer, std::size_t bottom) const { return node(layer).propagate_down[bottom]; }
  // Whether an output of the layer is part of the loss.
  bool loss_is_weighted(int layer) const {
    return std::any_of(node(layer).loss_weights.begin(), node(layer).loss_weights.end(), [](float w) { return w != 0; });
  }
  // By how much the sum of each top of the layer counts in the loss.
  const std::vector<float>& loss_weights(int layer) const { return node(layer).loss_weights; }
  // Whether the net's own definition asks for debug_info.
  bool debug_info() const { return param_.debug_info(); }
  // The types of its layers that compute on the host while its blobs are on a device, each with how many there are; none on the
  // host. Data layers, which read on the host anyway, are not among them.
  std::map<std::string, int> on_host() const;
  // In alphabetical order.
  const std::vector<NetOutput>& outputs() const { return outputs_; }

  // In the order of the layers, as Caffe keeps its history.
  const std::vector<LearnableParam>& learnable_params() const { return learnable_; }
  // The flat vectors of one layer; both undefined when it owns nothing. Allocates the diff. The
  // tensors stay the same ones for the life of the net, except that data changes once when the net
  // takes over another's parameters, and diff when it is joined with others.
  LayerParams layer_params(int layer);
  // Allocates all diffs (Backward does it too).
  void EnsureParamDiffs();
  // Makes one flat vector of the diffs of `layers`, which own learned blobs, in the order given, and returns it. The
  // diffs of their blobs and of layer_params are parts of it from now on, with the numbers that they had; tensors of
  // them that a caller holds are not. Each part begins at a multiple of 64 bytes; numbers between parts are zero.
  at::Tensor JoinParamDiffs(std::span<const int> layers);

  void BeginPass(const PassContext& pass) { pass_ = pass; }
  const PassContext& pass() const { return pass_; }
  // Runs all layers; the value is the loss, the sum over weighted tops of weight times elements.
  Result<double> Forward(const NetHooks& hooks = {}) { return ForwardFromTo(0, layer_count() - 1, hooks); }
  // The same for the layers `first` to `last`; those before have left their tops.
  Result<double> ForwardFromTo(int first, int last, const NetHooks& hooks = {});
  // Runs the layers that need it in reverse. Adds to the gradients of the passes since the last
  // ClearParamDiffs, or overwrites: then nothing was cleared and nothing needs adding.
  Status Backward(const NetHooks& hooks = {}) { return BackwardFromTo(layer_count() - 1, 0, hooks); }
  // The same for the layers `first` down to `last`. The gradients of tops that a layer above `first` reads are those
  // that their diffs hold, zero where they hold none. A layer that has not run forward with the shapes that its bottoms have now
  // does so first.
  Status BackwardFromTo(int first, int last, const NetHooks& hooks = {});
  // The next Backward starts the gradients anew. Until then the diffs keep their old numbers.
  void ClearParamDiffs();
  // Makes all diffs of learned blobs zero, for whoever looks at them before the next Backward, which adds to them.
  void ZeroParamDiffs();
  // Gives every blob that a layer makes of others the shape that follows from theirs now, without computing.
  Status Reshape();

  // Uses the learned blobs of `source` from now on, layer by layer of equal name.
  Status ShareParametersWith(const Net& source);
  // Copies weights by layer name; layers that only one side has are left alone. Blobs of
  // the old four dimensions fit when they agree once padded with ones in front. Failures name
  // `source`, the layer and both shapes.
  Status CopyFrom(const NetParameter& model, const std::string& source, SameNames same = SameNames::kFirst);
  // Returns the net with its weights, as Caffe saves it; with `diffs`, for which EnsureParamDiffs has been called, also
  // with their diffs.
  NetParameter ToProto(bool diffs = false) const;

 private:
  // A layer's place in the graph.
  struct Node {
    Blobs bottom;
    Blobs top;
    std::vector<int> bottom_ids;
    std::vector<int> top_ids;
    std::vector<bool> propagate_down;
    std::vector<float> loss_weights;   // one per top
    std::vector<bool> fed;             // whether a later layer writes the diff of this top
    std::vector<Shape> bottom_shapes;  // at the last Reshape
    bool needs_backward = false;
    bool ran = false;                  // forward, since the last Reshape
    LayerParams params;
  };
  struct SharedName;

  Net(const NetParameter& param, const NetState& state, const NetOptions& options);

  Status Build(LayerFactory make_layer);
  void MakeNamesUnique();
  int PartnerIn(const Net& source, int index) const;
  int CountNamed(const std::string& name) const;
  int WithWeights(const std::string& name, int place) const;
  const Node& node(int index) const { return At(nodes_, index); }
  const std::string& NameOf(int blob) const { return At(blob_names_, blob); }
  Status MakeLayers(LayerFactory make_layer);
  Status AddLayers();
  Status AddLayer(int index);
  Status AppendBottoms(int index);
  Status AppendTops(int index);
  Status SetLossWeights(int index);
  Status AppendParams(int index);
  void OwnParam(int index, int i, const ParamSpec& spec);
  Status ShareParam(int index, int i, const ParamSpec& spec, SharedName* name);
  Status AdoptParams(int index, const Net& source, int other);
  Status AllocateParams(int index);
  std::int64_t OwnedElements(int index) const;
  void BindDiffs(int index, const at::Tensor& flat);
  void BindSharedDiffs();
  void MarkBackward();
  void MarkFed();
  void FuseLayers();
  void ListOutputs();

  bool HasShapesOfBottoms(int index) const;
  Status ReshapeIfNeeded(int index, bool force);
  Status ForwardLayer(int index);
  Status ForwardWhatHasNotRun(int first, int last);
  struct Origin {
    int blob = 0;
    int layer = -1;  // that makes it
  };
  Origin OriginOf(int blob) const;
  Status WithBadRow(int index, const Status& status) const;
  double LossOf(int index) const;
  void PrepareTopDiffs(int index);
  void ZeroStaleDiffs(int index);
  Status Named(int index, const Status& status) const;
  Node& node(int index) { return At(nodes_, index); }
  at::TensorOptions options_of_tensors() const;

  NetParameter param_;  // filtered, with splits
  std::string name_;
  NetState state_;
  NetOptions options_;
  PassContext pass_;
  std::vector<std::string> unique_names_;  // by layer
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<Blob>> blobs_;
  std::vector<std::string> blob_names_;
  std::vector<bool> blob_needs_backward_;
  std::map<std::string, int> blob_ids_;
  std::map<std::string, int> unread_;  // name to id of blobs nobody has read so far
  std::map<std::string, SharedName> shared_names_;
  std::vector<NetOutput> outputs_;
  std::vector<LearnableParam> learnable_;
  bool diffs_allocated_ = false;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_NET_NET_H_
