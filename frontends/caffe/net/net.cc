// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/net/net.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <set>
#include <utility>

#include "frontends/caffe/engine/engine.h"
#include "frontends/caffe/net/blob_proto.h"
#include "frontends/caffe/net/feed_layer.h"
#include "frontends/caffe/net/filler.h"
#include "frontends/caffe/net/filter.h"
#include "frontends/caffe/net/insert_splits.h"
#include "frontends/caffe/net/on_host_layer.h"
#include "frontends/caffe/net/refusals.h"
#include "frontends/caffe/proto/at.h"

namespace poseidon::caffe {
namespace {

// Bytes at a multiple of which a layer's diff begins; what at::empty gives a tensor of its own.
constexpr std::int64_t kDiffAlignment = 64;

const ParamSpec& SpecOf(const LayerParameter& layer, int index) {
  return index < layer.param_size() ? layer.param(index) : ParamSpec::default_instance();
}

// A layer that reads memory itself is made anew for the host, with what copies around it.
Result<std::unique_ptr<Layer>> MakePlaced(LayerFactory make_layer, const LayerParameter& param, const LayerContext& context) {
  POSEIDON_ASSIGN_OR_RETURN(std::unique_ptr<Layer> made, make_layer(param, context));
  if (context.placement.on_host() || made->computes_on_device()) return made;
  LayerContext on_host = context;
  on_host.placement = {};
  on_host.feeds_device = true;
  if (made->reads_ahead()) {
    auto pass = std::make_unique<PassContext>();
    on_host.pass = pass.get();
    POSEIDON_ASSIGN_OR_RETURN(made, make_layer(param, on_host));
    return std::unique_ptr<Layer>(std::make_unique<FeedLayer>(std::move(made), std::move(pass), context));
  }
  POSEIDON_ASSIGN_OR_RETURN(made, make_layer(param, on_host));
  return std::unique_ptr<Layer>(std::make_unique<OnHostLayer>(std::move(made), context));
}

}  // namespace

// A learned blob with a name in its ParamSpec, under the layer that came first.
struct Net::SharedName {
  int layer = 0;
  int index = 0;
  std::size_t learnable = 0;
  bool has_lr = false;
  bool has_decay = false;
};

Net::Net(const NetParameter& param, const NetState& state, const NetOptions& options)
    : param_(param), name_(param.name()), state_(state), options_(options) {}

Net::~Net() = default;

Result<std::unique_ptr<Net>> Net::Create(const NetParameter& param, const NetState& state,
                                         LayerFactory make_layer, const NetOptions& options) {
  POSEIDON_ASSIGN_OR_RETURN(NetParameter filtered, FilterNet(param, state));
  POSEIDON_ASSIGN_OR_RETURN(NetParameter split, InsertSplits(filtered));
  std::unique_ptr<Net> net(new Net(split, state, options));
  POSEIDON_RETURN_IF_ERROR(RunOnEngine([&] { return net->Build(make_layer); }));
  net->options_.parameters_from = nullptr;
  return net;
}

at::TensorOptions Net::options_of_tensors() const {
  return at::TensorOptions().dtype(ScalarTypeOf(options_.dtype)).device(options_.placement.device());
}

Status Net::Named(int index, const Status& status) const {
  const LayerParameter& layer = param_.layer(index);
  return status.WithPrefix("layer '" + layer.name() + "' (" + layer.type() + ")");
}

// --- Building ------------------------------------------------------------------------------------

Status Net::Build(LayerFactory make_layer) {
  nodes_.resize(static_cast<std::size_t>(param_.layer_size()));
  MakeNamesUnique();
  POSEIDON_RETURN_IF_ERROR(MakeLayers(make_layer));
  POSEIDON_RETURN_IF_ERROR(AddLayers());
  MarkBackward();
  for (int i = 0; i < layer_count(); ++i) {
    Node& at = node(i);
    if (!at.needs_backward || layer(i).differentiable()) continue;
    const bool asked =
        std::find(at.propagate_down.begin(), at.propagate_down.end(), true) !=
        at.propagate_down.end();
    if (asked && !param_.force_backward()) {
      return Named(i, InvalidArgument("this layer has no gradient, but a loss depends on learned "
                                      "weights through it"));
    }
    at.needs_backward = false;
    std::fill(at.propagate_down.begin(), at.propagate_down.end(), false);
  }
  MarkFed();
  ListOutputs();
  if (options_.fuse && !param_.debug_info()) FuseLayers();
  return OkStatus();
}

void Net::MakeNamesUnique() {
  std::set<std::string> taken;
  for (const LayerParameter& layer : param_.layer()) taken.insert(layer.name());
  std::map<std::string, int> seen;
  for (const LayerParameter& layer : param_.layer()) {
    std::string unique = layer.name();
    for (int number = ++seen[layer.name()]; number > 1 && !taken.insert(unique).second; ++number) {
      unique = layer.name() + "#" + std::to_string(number);
    }
    unique_names_.push_back(std::move(unique));
  }
}

// All of them before any is added, so that a failure names every type that there is no layer for, and with them what a layer by itself
// is refused for.
Status Net::MakeLayers(LayerFactory make_layer) {
  Refusals refusals;
  for (int i = 0; i < param_.layer_size(); ++i) {
    LayerParameter* const param = param_.mutable_layer(i);
    if (!param->has_phase()) param->set_phase(state_.phase());
    const LayerContext context{.dtype = ScalarTypeOf(options_.dtype),
                               .phase = param->phase(),
                               .seed = options_.seed,
                               .share = options_.share,
                               .pass = &pass_,
                               .unique_name = UniqueName(i),
                               .placement = options_.placement};
    Result<std::unique_ptr<Layer>> made = MakePlaced(make_layer, *param, context);
    refusals.Add(*param, made.status());
    if (!made.ok()) continue;
    refusals.Add(*param, CheckArity(**made));
    layers_.push_back(*std::move(made));
  }
  // A filler that no learned blob has does no harm: it alone refuses nothing.
  for (int i = 0; i < param_.layer_size() && !refusals.empty(); ++i) refusals.Add(param_.layer(i), RefusedFillers(param_.layer(i)));
  return refusals.InOneSentence();
}

// Goes on behind a layer that is refused, for a failure is to name all of them; but for those that depend on it, of which less is known.
Status Net::AddLayers() {
  Refusals refusals;
  std::set<std::string> lost;  // blobs that are not made
  for (int i = 0; i < param_.layer_size(); ++i) {
    const LayerParameter& param = param_.layer(i);
    const bool depends = std::any_of(param.bottom().begin(), param.bottom().end(), [&](const auto& name) { return lost.count(name) > 0; });
    const std::vector<Status> refused = depends ? RefusedFillers(param) : std::vector{RunOnEngine([&] { return AddLayer(i); })};
    refusals.Add(param, refused);
    if (depends || !refused.front().ok()) lost.insert(param.top().begin(), param.top().end());
  }
  return refusals.InOneSentence();
}

Status Net::AddLayer(int index) {
  const LayerParameter* const param = &param_.layer(index);
  if (param->propagate_down_size() > 0 && param->propagate_down_size() != param->bottom_size()) {
    return InvalidArgument("propagate_down is given " +
                           std::to_string(param->propagate_down_size()) + " times for " +
                           std::to_string(param->bottom_size()) + " bottoms");
  }
  POSEIDON_RETURN_IF_ERROR(AppendBottoms(index));
  POSEIDON_RETURN_IF_ERROR(AppendTops(index));
  POSEIDON_RETURN_IF_ERROR(SetLossWeights(index));
  Layer& made_layer = layer(index);
  Node& at = node(index);
  POSEIDON_RETURN_IF_ERROR(made_layer.SetUp(at.bottom, at.top));
  POSEIDON_RETURN_IF_ERROR(AppendParams(index));
  POSEIDON_RETURN_IF_ERROR(ReshapeIfNeeded(index, /*force=*/true));

  // A layer takes part in backward when something below it or in it is to be learned.
  bool needs = false;
  for (const int id : at.bottom_ids) needs |= At(blob_needs_backward_, id);
  for (const auto& slot : made_layer.slots_) needs |= slot.wanted;
  at.needs_backward = needs;
  if (needs) {
    for (const int id : at.top_ids) At(blob_needs_backward_, id) = true;
  }
  return OkStatus();
}

Status Net::AppendBottoms(int index) {
  const LayerParameter& param = param_.layer(index);
  Node& at = node(index);
  for (int i = 0; i < param.bottom_size(); ++i) {
    const auto found = unread_.find(param.bottom(i));
    if (found == unread_.end()) {
      return InvalidArgument("reads blob '" + param.bottom(i) + "', which no earlier layer makes");
    }
    const int id = found->second;
    unread_.erase(found);
    at.bottom_ids.push_back(id);
    at.bottom.push_back(At(blobs_, id).get());
    at.propagate_down.push_back(param.propagate_down_size() > 0
                                    ? param.propagate_down(i)
                                    : At(blob_needs_backward_, id));
  }
  return OkStatus();
}

Status Net::AppendTops(int index) {
  const LayerParameter& param = param_.layer(index);
  Node& at = node(index);
  const auto append = [&](int id) {
    at.top_ids.push_back(id);
    at.top.push_back(At(blobs_, id).get());
  };
  const auto make = [&](const std::string& name) {
    blobs_.push_back(std::make_unique<Blob>());
    blob_needs_backward_.push_back(false);
    blob_names_.push_back(name);
    return static_cast<int>(blobs_.size()) - 1;
  };
  for (int i = 0; i < param.top_size(); ++i) {
    const std::string& name = param.top(i);
    if (i < param.bottom_size() && name == param.bottom(i)) {
      if (!layer(index).works_in_place()) return InvalidArgument("does not work in place");
      append(At(at.bottom_ids, i));
    } else if (blob_ids_.count(name) > 0) {
      return InvalidArgument("makes blob '" + name + "', which an earlier layer makes already");
    } else {
      const int id = make(name);
      blob_ids_[name] = id;
      append(id);
    }
    unread_[name] = at.top_ids.back();
  }
  if (param.top_size() == 0 && layer(index).is_loss()) append(make(param.name() + " (automatic)"));
  return OkStatus();
}

Status Net::SetLossWeights(int index) {
  const LayerParameter& param = param_.layer(index);
  Node& at = node(index);
  at.loss_weights.assign(at.top.size(), 0.F);
  if (param.loss_weight_size() == 0) {
    if (layer(index).is_loss()) at.loss_weights[0] = 1;
    return OkStatus();
  }
  if (param.loss_weight_size() != static_cast<int>(at.top.size())) {
    return InvalidArgument("loss_weight is given " + std::to_string(param.loss_weight_size()) +
                           " times for " + std::to_string(at.top.size()) + " tops");
  }
  std::copy(param.loss_weight().begin(), param.loss_weight().end(), at.loss_weights.begin());
  return OkStatus();
}

// --- Learned blobs -------------------------------------------------------------------------------

Status Net::AppendParams(int index) {
  Layer& owner = layer(index);
  const LayerParameter& param = owner.param();
  const auto count = static_cast<int>(owner.declarations_.size());
  if (param.param_size() > count) {
    return InvalidArgument("has " + std::to_string(param.param_size()) + " param entries for " +
                           std::to_string(count) + " learned blobs");
  }
  owner.blobs_.resize(owner.declarations_.size());
  owner.slots_.resize(owner.declarations_.size());
  for (int i = 0; i < count; ++i) {
    const ParamSpec& spec = SpecOf(param, i);
    At(owner.slots_, i).wanted = spec.lr_mult() != 0;
    const auto shared = shared_names_.find(spec.name());
    if (shared == shared_names_.end()) {
      OwnParam(index, i, spec);
    } else {
      POSEIDON_RETURN_IF_ERROR(ShareParam(index, i, spec, &shared->second));
    }
  }
  const Net* source = options_.parameters_from;
  const int partner = source != nullptr ? PartnerIn(*source, index) : -1;
  return partner >= 0 ? AdoptParams(index, *source, partner) : AllocateParams(index);
}

// Learned blob `i` of the layer is its own, one more of the net. Later layers may share it, where it has a name.
void Net::OwnParam(int index, int i, const ParamSpec& spec) {
  Layer& owner = layer(index);
  const LearnableParam learnable{.layer = index,
                                 .index = i,
                                 .blob = {},
                                 .lr_mult = spec.lr_mult(),
                                 .decay_mult = spec.decay_mult(),
                                 .statistics = owner.is_statistic(i)};
  if (!spec.name().empty()) {
    shared_names_[spec.name()] = {.layer = index,
                                  .index = i,
                                  .learnable = learnable_.size(),
                                  .has_lr = spec.has_lr_mult(),
                                  .has_decay = spec.has_decay_mult()};
  }
  learnable_.push_back(learnable);
  At(owner.slots_, i).stale = std::make_shared<bool>(true);
}

// Learned blob `i` of the layer is the one that `name` says, of an earlier layer.
Status Net::ShareParam(int index, int i, const ParamSpec& spec, SharedName* name) {
  Layer& owner = layer(index);
  Layer& first = layer(name->layer);
  const Shape& mine = At(owner.declarations_, i).shape;
  const Shape& theirs = At(first.declarations_, name->index).shape;
  const std::string shares = "shares parameter '" + spec.name() + "' with layer '" + first.name() + "', but ";
  const bool permissive = spec.share_mode() == ParamSpec::PERMISSIVE;
  if (permissive ? CountOf(mine) != CountOf(theirs) : mine != theirs) {
    return InvalidArgument(shares + "its shape is " + ShapeText(mine) + " and there it is " + ShapeText(theirs));
  }
  LearnableParam& learnable = learnable_[name->learnable];
  // Whoever names a multiplier first says what it is.
  const auto agree = [&](const char* what, bool given, float value, bool* known, float* kept) -> Status {
    if (!given) return OkStatus();
    if (*known && *kept != value) return InvalidArgument(shares + "their " + what + " differ");
    *known = true;
    *kept = value;
    return OkStatus();
  };
  POSEIDON_RETURN_IF_ERROR(
      agree("lr_mult", spec.has_lr_mult(), spec.lr_mult(), &name->has_lr, &learnable.lr_mult));
  POSEIDON_RETURN_IF_ERROR(
      agree("decay_mult", spec.has_decay_mult(), spec.decay_mult(), &name->has_decay, &learnable.decay_mult));
  auto& slot = At(owner.slots_, i);
  auto& first_slot = At(first.slots_, name->index);
  slot.shared = true;
  first_slot.shared = true;
  slot.stale = first_slot.stale;
  At(owner.blobs_, i).data = At(first.blobs_, name->index).data.view(mine);
  return OkStatus();
}

int Net::CountNamed(const std::string& name) const {
  const auto is_named = [&](const LayerParameter& layer) { return layer.name() == name; };
  return static_cast<int>(std::count_if(param_.layer().begin(), param_.layer().end(), is_named));
}

// Of the layers of that name with learned blobs the one at `place`, from 0; -1 when there are fewer.
int Net::WithWeights(const std::string& name, int place) const {
  for (int i = 0; i < layer_count(); ++i) {
    if (layer(i).name() == name && !layer(i).blobs().empty() && place-- == 0) return i;
  }
  return -1;
}

// The layer of `source` whose learned blobs layer `index` uses: that of the same name, or, where several have it, the
// one that comes as far down among those with learned blobs.
int Net::PartnerIn(const Net& source, int index) const {
  const std::string& name = layer(index).name();
  if (CountNamed(name) == 1 && source.CountNamed(name) == 1) return source.LayerIndex(name);
  if (layer(index).declarations_.empty()) return -1;
  int place = 0;
  for (int i = 0; i < index; ++i) {
    if (layer(i).name() == name && !layer(i).declarations_.empty()) ++place;
  }
  return source.WithWeights(name, place);
}

// One flat vector for what the layer owns; the blobs are views of it in order, filled.
Status Net::AllocateParams(int index) {
  Layer& owner = layer(index);
  std::int64_t total = 0;
  for (const LearnableParam& learnable : learnable_) {
    if (learnable.layer != index) continue;
    const Shape& shape = At(owner.declarations_, learnable.index).shape;
    total += CountOf(shape);
  }
  if (total == 0) return OkStatus();
  at::Tensor flat = at::empty({total}, options_of_tensors());
  node(index).params.data = flat;
  std::int64_t offset = 0;
  for (LearnableParam& learnable : learnable_) {
    if (learnable.layer != index) continue;
    const auto at = static_cast<std::size_t>(learnable.index);
    const Shape& shape = owner.declarations_[at].shape;
    const std::int64_t count = CountOf(shape);
    owner.blobs_[at].data = flat.narrow(0, offset, count).view(shape);
    learnable.blob.data = owner.blobs_[at].data;
    owner.slots_[at].own = true;
    offset += count;
    const RandomStream stream(options_.seed, RandomPurpose::kFiller, owner.unique_name(), at);
    POSEIDON_RETURN_IF_ERROR(Fill(owner.declarations_[at].filler, stream, learnable.blob.data));
  }
  return OkStatus();
}

Status Net::AdoptParams(int index, const Net& source, int other) {
  Layer& mine = layer(index);
  const Layer& theirs = source.layer(other);
  if (mine.declarations_.size() != theirs.blobs_.size()) {
    return InvalidArgument("has " + std::to_string(mine.declarations_.size()) +
                           " learned blobs, the layer it shares with has " +
                           std::to_string(theirs.blobs_.size()));
  }
  for (std::size_t i = 0; i < theirs.blobs_.size(); ++i) {
    const Shape& shape = mine.declarations_[i].shape;
    if (theirs.blobs_[i].data.sizes() != at::IntArrayRef(shape)) {
      return InvalidArgument("blob " + std::to_string(i) + " has shape " + ShapeText(shape) +
                             ", in the layer it shares with it is " +
                             ShapeText(theirs.blobs_[i].data.sizes()));
    }
    mine.blobs_[i].data = theirs.blobs_[i].data;
    mine.slots_[i].own = false;
  }
  node(index).params.data = At(source.nodes_, other).params.data;
  for (LearnableParam& learnable : learnable_) {
    if (learnable.layer == index) {
      learnable.blob.data = At(mine.blobs_, learnable.index).data;
    }
  }
  return OkStatus();
}

Status Net::ShareParametersWith(const Net& source) {
  return RunOnEngine([&] {
    for (int i = 0; i < layer_count(); ++i) {
      const int partner = PartnerIn(source, i);
      if (partner < 0) continue;
      if (const Status status = AdoptParams(i, source, partner); !status.ok()) return Named(i, status);
    }
    return OkStatus();
  });
}

std::int64_t Net::OwnedElements(int index) const {
  std::int64_t total = 0;
  for (const LearnableParam& learnable : learnable_) {
    if (learnable.layer == index) total += learnable.blob.data.numel();
  }
  return total;
}

// Makes the diffs of the layer's own blobs parts of `flat`.
void Net::BindDiffs(int index, const at::Tensor& flat) {
  node(index).params.diff = flat;
  std::int64_t offset = 0;
  for (LearnableParam& learnable : learnable_) {
    if (learnable.layer != index) continue;
    const at::Tensor& data = learnable.blob.data;
    learnable.blob.diff = flat.narrow(0, offset, data.numel()).view(data.sizes());
    At(layer(index).blobs_, learnable.index).diff = learnable.blob.diff;
    offset += data.numel();
  }
}

// Who uses another's blob has its diff where the owner has it.
void Net::BindSharedDiffs() {
  for (int i = 0; i < layer_count(); ++i) {
    for (std::size_t j = 0; j < layer(i).blobs_.size(); ++j) {
      const std::string& name = SpecOf(layer(i).param(), static_cast<int>(j)).name();
      if (name.empty()) continue;
      const SharedName& owned = shared_names_.at(name);
      if (owned.layer == i && owned.index == static_cast<int>(j)) continue;
      Blob& mine = layer(i).blobs_[j];
      mine.diff = At(layer(owned.layer).blobs_, owned.index).diff.view(mine.data.sizes());
    }
  }
}

void Net::EnsureParamDiffs() {
  if (diffs_allocated_) return;
  diffs_allocated_ = true;
  EngineGuard guard;
  for (int i = 0; i < layer_count(); ++i) {
    const std::int64_t elements = OwnedElements(i);
    if (elements > 0) BindDiffs(i, at::empty({elements}, options_of_tensors()));
  }
  BindSharedDiffs();
}

at::Tensor Net::JoinParamDiffs(std::span<const int> layers) {
  EnsureParamDiffs();
  EngineGuard guard;
  // As for a diff of its own: kernels look at alignment, and shall take the same way through a joined one.
  const std::int64_t unit = kDiffAlignment / static_cast<std::int64_t>(SizeOf(options_.dtype));
  std::vector<std::int64_t> offsets;
  std::int64_t end = 0;
  for (const int index : layers) {
    offsets.push_back((end + unit - 1) / unit * unit);
    end = offsets.back() + OwnedElements(index);
  }
  const at::Tensor joined = at::zeros({end}, options_of_tensors());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const at::Tensor before = node(layers[i]).params.diff;
    const at::Tensor part = joined.narrow(0, offsets[i], before.numel());
    part.copy_(before);
    BindDiffs(layers[i], part);
  }
  BindSharedDiffs();
  return joined;
}

LayerParams Net::layer_params(int index) {
  EnsureParamDiffs();
  return node(index).params;
}

void Net::ClearParamDiffs() {
  for (const auto& made : layers_) {
    for (auto& slot : made->slots_) *slot.stale = true;
  }
}

void Net::ZeroParamDiffs() {
  EnsureParamDiffs();
  EngineGuard guard;
  for (int i = 0; i < layer_count(); ++i) {
    if (node(i).params.diff.defined()) node(i).params.diff.zero_();
    for (auto& slot : layer(i).slots_) *slot.stale = false;
  }
}

// The owner of a blob is its first user in forward order, so backward reaches it last: what is
// still stale then got no gradient in this iteration.
void Net::ZeroStaleDiffs(int index) {
  for (const LearnableParam& learnable : learnable_) {
    if (learnable.layer != index) continue;
    auto& slot = At(layer(index).slots_, learnable.index);
    if (std::exchange(*slot.stale, false)) learnable.blob.diff.zero_();
  }
}

// --- Who needs a gradient ------------------------------------------------------------------------

// As Caffe decides it: walking back from the losses, a layer runs backward when it leads to a loss
// and something at or below it is learned; force_backward then asks for all there is.
void Net::MarkBackward() {
  std::set<int> under_loss;
  std::set<int> skipped;
  for (int i = layer_count() - 1; i >= 0; --i) {
    Node& at = node(i);
    bool leads_to_loss = false;
    bool skips = true;
    for (std::size_t j = 0; j < at.top.size(); ++j) {
      leads_to_loss |= at.loss_weights[j] != 0 || under_loss.count(at.top_ids[j]) > 0;
      skips &= skipped.count(at.top_ids[j]) > 0;
    }
    if (at.needs_backward && skips) {
      at.needs_backward = false;
      std::fill(at.propagate_down.begin(), at.propagate_down.end(), false);
    }
    if (!leads_to_loss) at.needs_backward = false;
    for (std::size_t j = 0; j < at.bottom.size(); ++j) {
      if (leads_to_loss) {
        under_loss.insert(at.bottom_ids[j]);
      } else {
        at.propagate_down[j] = false;
      }
      if (!at.propagate_down[j]) skipped.insert(at.bottom_ids[j]);
    }
  }
  if (!param_.force_backward()) return;
  for (int i = 0; i < layer_count(); ++i) {
    Node& at = node(i);
    at.needs_backward = true;
    for (std::size_t j = 0; j < at.bottom.size(); ++j) {
      if (layer(i).AllowForceBackward(static_cast<int>(j))) at.propagate_down[j] = true;
    }
    auto& slots = layer(i).slots_;
    for (std::size_t j = 0; j < slots.size(); ++j) slots[j].wanted = !layer(i).is_statistic(static_cast<int>(j));
  }
}

void Net::MarkFed() {
  std::vector<bool> fed(blobs_.size(), false);  // by the reader nearest above
  for (int i = layer_count() - 1; i >= 0; --i) {
    Node& at = node(i);
    at.fed.clear();
    for (const int id : at.top_ids) at.fed.push_back(At(fed, id));
    for (std::size_t j = 0; j < at.bottom.size(); ++j) {
      At(fed, at.bottom_ids[j]) = at.needs_backward && at.propagate_down[j];
    }
  }
}

// A blob has one reader. Where both have gradients to make, or neither, the upper one's turn comes before the lower one's.
void Net::FuseLayers() {
  std::map<int, int> makers;  // blob to the last layer that made it
  for (int i = 0; i < layer_count(); ++i) {
    const Node& at = node(i);
    const bool in_place = at.bottom_ids.size() == 1 && at.top_ids == at.bottom_ids;
    const auto maker = in_place ? makers.find(at.bottom_ids[0]) : makers.end();
    if (maker != makers.end() && node(maker->second).top_ids.size() == 1) layer(maker->second).Fuse(&layer(i));
    for (const int id : at.top_ids) makers[id] = i;
  }
}

void Net::ListOutputs() {
  for (const auto& [name, id] : unread_) {
    NetOutput output{name, At(blobs_, id).get(), 0};
    for (const Node& at : nodes_) {
      for (std::size_t j = 0; j < at.top.size(); ++j) {
        if (at.top_ids[j] == id) output.loss_weight = at.loss_weights[j];
      }
    }
    outputs_.push_back(output);
  }
}

// --- Passes --------------------------------------------------------------------------------------

bool Net::HasShapesOfBottoms(int index) const {
  const Node& at = node(index);
  for (std::size_t i = 0; i < at.bottom.size(); ++i) {
    if (at.bottom[i]->data.sizes() != at::IntArrayRef(at.bottom_shapes[i])) return false;
  }
  return true;
}

Status Net::ReshapeIfNeeded(int index, bool force) {
  if (!force && HasShapesOfBottoms(index)) return OkStatus();
  Node& at = node(index);
  at.bottom_shapes.clear();
  for (const Blob* bottom : at.bottom) at.bottom_shapes.push_back(bottom->shape());
  at.ran = false;
  return layer(index).Reshape(at.bottom, at.top);
}

Status Net::ForwardLayer(int index) {
  Node& at = node(index);
  POSEIDON_RETURN_IF_ERROR(ReshapeIfNeeded(index, /*force=*/false));
  POSEIDON_RETURN_IF_ERROR(layer(index).Forward(at.bottom, at.top));
  at.ran = true;
  return OkStatus();
}

double Net::LossOf(int index) const {
  const Node& at = At(nodes_, index);
  double loss = 0;
  for (std::size_t i = 0; i < at.top.size(); ++i) {
    if (at.loss_weights[i] == 0) continue;
    const at::Tensor& data = at.top[i]->data;
    const double sum =
        data.numel() == 1 ? data.item<double>() : at::sum(data).item<double>();
    loss += static_cast<double>(at.loss_weights[i]) * sum;
  }
  return loss;
}

// The blob before it was copied for several readers.
Net::Origin Net::OriginOf(int blob) const {
  for (int i = layer_count() - 1; i >= 0; --i) {
    const Node& at = node(i);
    if (std::find(at.top_ids.begin(), at.top_ids.end(), blob) == at.top_ids.end()) continue;
    return layer(i).type() == "Split" ? OriginOf(at.bottom_ids.front()) : Origin{blob, i};
  }
  return {blob, -1};
}

const std::string& Net::source_name(int layer, std::size_t bottom) const {
  return NameOf(OriginOf(node(layer).bottom_ids[bottom]).blob);
}

// Labels are the second bottom of the layers that read them.
Status Net::WithBadRow(int index, const Status& status) const {
  const std::optional<std::int64_t> row = layer(index).bad_row();
  if (!row) return status;
  const Origin labels = OriginOf(At(node(index).bottom_ids, 1));
  const std::string record = labels.layer < 0 ? std::string() : layer(labels.layer).RecordAt(*row);
  return {status.code(), status.message() + " (row " + std::to_string(*row) + " of the batch" +
                             (record.empty() ? "" : ", " + record) + ")"};
}

Status Net::Reshape() {
  for (int i = 0; i < layer_count(); ++i) {
    if (node(i).bottom.empty()) continue;  // whoever feeds it has said the shape
    if (const Status status = RunOnEngine([&] { return ReshapeIfNeeded(i, /*force=*/true); }); !status.ok()) {
      return Named(i, status);
    }
  }
  return OkStatus();
}

Result<double> Net::ForwardFromTo(int first, int last, const NetHooks& hooks) {
  double loss = 0;
  for (int i = first; i <= last; ++i) {
    if (hooks.before_forward) POSEIDON_RETURN_IF_ERROR(hooks.before_forward(i));
    const Status status = RunOnEngine([&]() -> Status {
      POSEIDON_RETURN_IF_ERROR(ForwardLayer(i));
      loss += LossOf(i);
      return OkStatus();
    });
    if (!status.ok()) return Named(i, WithBadRow(i, status));
    if (hooks.after_forward) POSEIDON_RETURN_IF_ERROR(hooks.after_forward(i));
  }
  return loss;
}

// A weighted top has its weight as gradient, in every pass: in place, the one before has overwritten it. A top whose
// reader gives it none has zero, unless the caller wrote one. Split knows what an undefined gradient means.
void Net::PrepareTopDiffs(int index) {
  Node& at = node(index);
  for (std::size_t i = 0; i < at.top.size(); ++i) {
    Blob* top = at.top[i];
    const bool has_diff = top->diff.defined() && top->diff.sizes() == top->data.sizes();
    if (at.fed[i] && has_diff) continue;
    if (!at.fed[i] && at.loss_weights[i] != 0) {
      if (!has_diff) top->diff = at::empty(top->data.sizes(), options_of_tensors());
      top->diff.fill_(at.loss_weights[i]);
    } else if (!has_diff && layer(index).type() != "Split") {
      top->diff = at::zeros(top->data.sizes(), options_of_tensors());
    }
  }
}

// A layer that has not run with its present shapes would read what it has not kept.
Status Net::ForwardWhatHasNotRun(int first, int last) {
  for (int i = first; i <= last; ++i) {
    if (!node(i).needs_backward || (node(i).ran && HasShapesOfBottoms(i))) continue;
    if (const Status status = RunOnEngine([&] { return ForwardLayer(i); }); !status.ok()) return Named(i, status);
  }
  return OkStatus();
}

Status Net::BackwardFromTo(int first, int last, const NetHooks& hooks) {
  EnsureParamDiffs();
  POSEIDON_RETURN_IF_ERROR(ForwardWhatHasNotRun(last, first));
  for (int i = first; i >= last; --i) {
    if (hooks.before_backward) POSEIDON_RETURN_IF_ERROR(hooks.before_backward(i));
    const Status status = RunOnEngine([&]() -> Status {
      Node& at = node(i);
      if (at.needs_backward) {
        PrepareTopDiffs(i);
        POSEIDON_RETURN_IF_ERROR(layer(i).Backward(at.top, at.propagate_down, at.bottom));
      }
      ZeroStaleDiffs(i);
      return OkStatus();
    });
    if (!status.ok()) return Named(i, status);
    if (hooks.after_backward) POSEIDON_RETURN_IF_ERROR(hooks.after_backward(i));
  }
  return OkStatus();
}

// --- Access --------------------------------------------------------------------------------------

std::map<std::string, int> Net::on_host() const {
  std::map<std::string, int> types;
  if (options_.placement.on_host()) return types;
  for (int i = 0; i < layer_count(); ++i) {
    if (!layer(i).computes_on_device() && !bottoms(i).empty()) ++types[layer(i).type()];
  }
  return types;
}

int Net::LayerIndex(const std::string& name) const {
  for (int i = 0; i < layer_count(); ++i) {
    if (layer(i).name() == name) return i;
  }
  return -1;
}

Blob* Net::blob(const std::string& name) const {
  const auto found = blob_ids_.find(name);
  return found == blob_ids_.end() ? nullptr : At(blobs_, found->second).get();
}

Status Net::CopyFrom(const NetParameter& model, const std::string& source, SameNames same) {
  std::map<std::string, int> seen;  // saved layers with weights, by name
  for (const LayerParameter& saved : model.layer()) {
    const bool in_order = same == SameNames::kInOrder && CountNamed(saved.name()) > 1;
    if (in_order && saved.blobs_size() == 0) continue;
    const int index = in_order ? WithWeights(saved.name(), seen[saved.name()]++) : LayerIndex(saved.name());
    if (index < 0) continue;
    const Layer& mine = layer(index);
    const auto fail = [&](const std::string& text) {
      return InvalidArgument(source + ": layer '" + saved.name() + "' " + text);
    };
    const char* const anew = same == SameNames::kFirst ? "; to learn the layer anew, give it another name in the net" : "";
    if (saved.blobs_size() != static_cast<int>(mine.blobs().size())) {
      return fail("has " + std::to_string(saved.blobs_size()) + " blobs, expected " +
                  std::to_string(mine.blobs().size()) + anew);
    }
    for (int i = 0; i < saved.blobs_size(); ++i) {
      const at::Tensor& to = At(mine.blobs(), i).data;
      if (!Fits(saved.blobs(i), to.sizes().vec())) {
        return fail("blob " + std::to_string(i) + " has shape " +
                    ShapeText(ShapeOf(saved.blobs(i))) + ", the net's is " +
                    ShapeText(to.sizes()) + anew);
      }
      if (const std::int64_t given = NumbersIn(saved.blobs(i)); given != to.numel()) {
        return fail("blob " + std::to_string(i) + " holds " + std::to_string(given) +
                    " numbers, its shape asks for " + std::to_string(to.numel()));
      }
      CopyNumbers(saved.blobs(i), to);
    }
  }
  return OkStatus();
}

NetParameter Net::ToProto(bool diffs) const {
  NetParameter proto;
  proto.set_name(name_);
  for (const auto& made : layers_) {
    LayerParameter* saved = proto.add_layer();
    *saved = made->param();
    for (const Blob& blob : made->blobs()) {
      BlobProto* const proto_blob = saved->add_blobs();
      ToBlobProto(blob.data, proto_blob);
      if (diffs && blob.diff.defined()) AddDiff(blob.diff, proto_blob);
    }
  }
  return proto;
}

}  // namespace poseidon::caffe
