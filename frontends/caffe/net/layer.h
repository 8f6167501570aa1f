// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_NET_LAYER_H_
#define POSEIDON_FRONTENDS_CAFFE_NET_LAYER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frontends/caffe/data/data_share.h"
#include "frontends/caffe/net/blob.h"
#include "frontends/caffe/net/pass_context.h"
#include "frontends/caffe/net/placement.h"
#include "frontends/caffe/proto/at.h"
#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/result.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

using Shape = std::vector<std::int64_t>;
// Handles to the blobs a layer reads or writes; the net owns them.
using Blobs = std::vector<Blob*>;

// The arguments of every layer's constructor.
struct LayerContext {
  at::ScalarType dtype = at::kFloat;
  Phase phase = TRAIN;
  std::uint64_t seed = 0;             // of every random draw
  DataShare share;                    // which rows of the global batch are ours
  const PassContext* pass = nullptr;  // which pass this is; outlives the layer
  std::string unique_name = {};       // the layer's name where no other layer has it; empty: its name
  Placement placement = {};           // of its blobs, and of all that it makes
  bool feeds_device = false;          // on the host: what it makes is copied to a device, and is best in pinned memory
};

class Layer;

// Makes a layer of the type that `param` names. The table of types is in frontends/caffe/layers, above the net.
using LayerFactory = Result<std::unique_ptr<Layer>> (*)(const LayerParameter& param, const LayerContext& context);

// How many blobs a layer takes and gives.
struct Arity {
  static constexpr int kAny = 1 << 30;
  int min_bottom = 1;
  int max_bottom = 1;
  int min_top = 1;
  int max_top = 1;
  bool top_per_bottom = false;  // as many tops as bottoms
};

// The two factors of one backward pass of a fully connected layer: its weight gradient is the
// product u^T v, its bias gradient the column sums of u. Contiguous, never written again.
struct FactorPair {
  at::Tensor u;  // [K, M], gradients of the outputs
  at::Tensor v;  // [K, N], the inputs as they were in the forward pass
};

// The side of a fully connected layer that can hand over factors instead of computing a gradient.
class FactorSource {
 public:
  virtual ~FactorSource() = default;
  // True when the weight gradient is exactly u^T v: weight [M, N], trained, shared with nobody.
  virtual bool FactorCapable() const = 0;
  virtual std::int64_t K() const = 0;  // rows of one pass, at the present shape of the bottom
  virtual std::int64_t M() const = 0;  // outputs
  virtual std::int64_t N() const = 0;  // inputs
  virtual bool has_bias() const = 0;
  // While on, Backward leaves the layer's diffs alone and keeps the factors of each pass.
  virtual void CaptureFactors(bool on) = 0;
  // The factors kept since the last call, one pair per pass in order.
  virtual std::vector<FactorPair> TakeFactors() = 0;
};

// One step of a net, in Caffe's nouns: it reads bottoms, writes tops, and owns learned blobs.
//
// The net calls SetUp once and Reshape then and whenever a bottom has another shape; Forward; and
// Backward, which finds the gradient of every top in its diff and *overwrites* the diff of each
// bottom for which propagate_down is set (every blob has one reader, so nothing is ever added), and
// puts the gradients of learned blobs where ParamDiff says. A top may be the bottom itself (in
// place). Only Split meets an undefined diff of a top, which means zero.
//
// Thread: one at a time. Everything runs under an EngineGuard; exceptions of ATen are caught by the
// net, which also puts the layer's name and type before every failure.
class Layer {
 public:
  Layer(const LayerParameter& param, const LayerContext& context);
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;

  virtual Arity arity() const = 0;
  // Checks options and declares learned blobs (DeclareParam).
  virtual Status SetUp(const Blobs& bottom, const Blobs& top);
  // Gives every top its shape (SetShape).
  virtual Status Reshape(const Blobs& bottom, const Blobs& top) = 0;
  virtual Status Forward(const Blobs& bottom, const Blobs& top) = 0;
  virtual Status Backward(const Blobs& top, const std::vector<bool>& propagate_down,
                          const Blobs& bottom);

  // Whether a top may be its own bottom, in shape and in what the backward pass reads: other nets are refused.
  virtual bool works_in_place() const { return false; }
  // False for layers that have no gradient (Accuracy, ArgMax, data).
  virtual bool differentiable() const { return true; }
  // Whether force_backward reaches this bottom; false for labels and indices.
  virtual bool AllowForceBackward(int /*bottom*/) const { return true; }
  // Loss layers weigh their first top with 1 where the net names no loss_weight.
  virtual bool is_loss() const { return false; }
  // Whether the loss is a mean over samples of which labels leave some out (ignore_label with normalization VALID), and over
  // how many it was in the last Forward.
  virtual bool is_masked_mean() const { return false; }
  virtual std::int64_t counted() const { return 0; }
  // Whether learned blob `index` is a running statistic, kept but never trained or averaged.
  virtual bool is_statistic(int /*index*/) const { return false; }
  // From now on computes also `above`, the next layer of the same net, which works in place on the only top; false: cannot. Called at
  // most once, before the first pass.
  virtual bool Fuse(Layer* /*above*/) { return false; }
  // Whether its work on blobs is the engine's alone, which does it wherever they are; false: it reads or writes their memory itself,
  // so that in a net on a device they are copied to the host for it (OnHostLayer).
  virtual bool computes_on_device() const { return true; }
  // Of a layer without bottoms: whether its tops follow from the pass's batch alone, so that the next batch may be read while this one is
  // computed (FeedLayer).
  virtual bool reads_ahead() const { return false; }
  // The factor side, or null. Not owned.
  virtual FactorSource* factors() { return nullptr; }

  const LayerParameter& param() const { return param_; }
  const std::string& name() const { return param_.name(); }
  // The name under which it draws at random: no other layer of the net has it.
  const std::string& unique_name() const {
    return context_.unique_name.empty() ? name() : context_.unique_name;
  }
  const std::string& type() const { return param_.type(); }
  Phase phase() const { return context_.phase; }
  // The learned blobs, Caffe's `blobs`.
  const std::vector<Blob>& blobs() const { return blobs_; }
  // The row of the batch whose label made the last Forward fail.
  std::optional<std::int64_t> bad_row() const { return bad_row_; }
  // Of a layer that reads a database, which record row `row` of its tops is now; else empty.
  virtual std::string RecordAt(std::int64_t /*row*/) const { return {}; }
  // Whether the gradient of learned blob `index` is computed.
  bool wants_param_diff(std::size_t index) const { return slots_[index].wanted; }

 protected:
  const LayerContext& context() const { return context_; }
  at::TensorOptions options() const;

  // In SetUp: one more learned blob.
  void DeclareParam(Shape shape, const FillerParameter& filler);
  // In SetUp: keeps learned blob `index` from being trained.
  void FreezeParam(int index);

  std::optional<std::int64_t> bad_row_;  // a Forward that fails by a row says which
  at::Tensor& weight(int index) { return At(blobs_, index).data; }
  // Whether the gradient of learned blob `index` is wanted.
  bool WantsParamDiff(int index) const { return At(slots_, index).wanted; }
  bool ParamShared(int index) const { return At(slots_, index).shared; }
  // Whether the numbers of learned blob `index` are this layer's to begin: they are no earlier layer's, and no other net's.
  bool BeginsParam(int index) const { return At(slots_, index).own; }
  // In Backward: where the gradient of blob `index` goes, and whether it is added to what is there
  // (a later pass or another user of a shared blob) or overwrites it. Each call counts as one
  // contribution, so it is made once per product.
  struct DiffTarget {
    at::Tensor diff;
    bool add;
  };
  DiffTarget ParamDiff(int index);
  // Copies or adds `gradient`, of the blob's shape.
  void AddParamDiff(int index, const at::Tensor& gradient);
  // In Backward: the diffs will be written by somebody else.
  void LeaveParamDiffs();

 private:
  friend class Net;
  friend class OnHostLayer;

  struct Declaration {
    Shape shape;
    FillerParameter filler;
  };
  // The net's state of one learned blob. All users of a shared blob have the same `stale`: it is
  // true while the diff holds numbers of an earlier iteration.
  struct Slot {
    bool wanted = true;
    bool shared = false;
    bool own = false;  // its memory was made for this layer
    std::shared_ptr<bool> stale;
  };

  LayerParameter param_;
  LayerContext context_;
  std::vector<Declaration> declarations_;
  std::vector<Blob> blobs_;
  std::vector<Slot> slots_;
};

// How many bottoms and tops the net names for it, against its arity.
Status CheckArity(const Layer& layer);

// Makes `blob.data` a tensor of that shape, keeping it when it has the shape already.
void SetShape(Blob* blob, const Shape& shape, const at::TensorOptions& options);
// The diff of `blob`, made to the shape of its data first where needed; its values are arbitrary.
at::Tensor& DiffOf(Blob* blob);

// "2x3x5", "scalar".
std::string ShapeText(at::IntArrayRef shape);
// Axis counted from the end when negative; an error names the option and the number of axes.
Status CanonicalAxis(const char* option, std::int64_t axis, std::int64_t axes, std::int64_t* result);
std::int64_t CountOf(at::IntArrayRef shape, std::int64_t begin, std::int64_t end);
std::int64_t CountOf(at::IntArrayRef shape);  // of all axes

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_NET_LAYER_H_
