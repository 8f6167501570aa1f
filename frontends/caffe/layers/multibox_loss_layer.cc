// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "frontends/caffe/layers/boxes.h"
#include "frontends/caffe/layers/labels.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// A box of the ground truth.
template <typename T>
struct Truth {
  Box<T> box;
  std::int64_t label = 0;
};

constexpr std::int64_t kNone = -1;     // no box of the truth is matched
constexpr std::int64_t kOutside = -2;  // the prior crosses the image's edge and takes no part

// Which box of the truth each prior predicts, and how far the two overlap.
template <typename T>
struct Matches {
  std::vector<std::int64_t> truth;
  std::vector<T> overlap;
};

// SSD's loss: bottoms are predictions of places (N x 4P) and of classes (N x P*classes), priors (PriorBox) and the ground
// truth, 1 x 1 x G x 8 with rows (image, class, instance, x1, y1, x2, y2, difficult).
//
// Every box of the truth takes the prior that overlaps it most; further priors that overlap one by overlap_threshold take it
// too. Of the priors that are left, those where the loss of the background class is greatest are its examples, neg_pos_ratio
// for each match. The loss is loc_weight * sum f(prediction - encoded truth) over matches, and the classes' loss over matches
// and examples, divided by the number of matches (loss_param).
class MultiBoxLossLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {4, 4, 1, 1}; }
  bool computes_on_device() const override { return false; }
  bool is_loss() const override { return true; }
  bool AllowForceBackward(int bottom) const override { return bottom < 2; }

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const auto& given = param().multibox_loss_param();
    if (given.num_classes() == 0) return InvalidArgument("needs num_classes");
    if (given.background_label_id() >= given.num_classes()) {
      return InvalidArgument("background_label_id is " + std::to_string(given.background_label_id()) + ", expected one of " +
                             std::to_string(given.num_classes()) + " classes");
    }
    if (given.has_do_neg_mining() && given.do_neg_mining() != mines()) {
      return InvalidArgument("do_neg_mining and mining_type contradict each other");
    }
    if (given.map_object_to_agnostic() && given.num_classes() != 2) return InvalidArgument("map_object_to_agnostic needs num_classes: 2");
    const std::string missing = !given.share_location()                                     ? "share_location: false"
                                : !given.use_prior_for_matching()                           ? "use_prior_for_matching: false"
                                : given.mining_type() == MultiBoxLossParameter::HARD_EXAMPLE ? "mining_type: HARD_EXAMPLE"
                                : given.has_nms_param()                                     ? "nms_param"
                                : given.conf_loss_type() == MultiBoxLossParameter::LOGISTIC && given.background_label_id() != 0
                                    ? "conf_loss_type: LOGISTIC with a background_label_id other than 0"
                                    : "";
    if (!missing.empty()) return Unimplemented(missing + " of SSD is not supported");
    classes_ = given.num_classes();
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const std::int64_t priors = bottom[2]->data.dim() > 2 ? bottom[2]->data.size(2) / 4 : 0;
    const auto fits = [&](const Blob& blob, std::int64_t each) {
      return blob.data.dim() > 0 && blob.data.size(0) > 0 && blob.count() % blob.data.size(0) == 0 && priors > 0 &&
             blob.count() / blob.data.size(0) / priors == each && blob.count() / blob.data.size(0) % priors == 0;
    };
    if (!fits(*bottom[0], 4) || !fits(*bottom[1], classes_) || bottom[0]->data.size(0) != bottom[1]->data.size(0)) {
      return InvalidArgument("has bottoms of shape " + ShapeText(bottom[0]->data.sizes()) + " and " +
                             ShapeText(bottom[1]->data.sizes()) + " for " + std::to_string(priors) + " priors, expected 4 and " +
                             std::to_string(classes_) + " numbers for each");
    }
    if (bottom[3]->data.dim() == 0 || bottom[3]->data.size(-1) != 8) {
      return InvalidArgument("has a ground truth of shape " + ShapeText(bottom[3]->data.sizes()) + ", expected rows of eight numbers");
    }
    images_ = bottom[0]->data.size(0);
    SetShape(top[0], {}, options());
    place_slope_ = at::empty(bottom[0]->shape(), options());
    class_slope_ = at::empty(bottom[1]->shape(), options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    return options().dtype() == at::kDouble ? Run<double>(bottom, top[0]) : Run<float>(bottom, top[0]);
  }

  Status Backward(const Blobs& top, const std::vector<bool>& propagate_down, const Blobs& bottom) override {
    for (std::size_t i = 2; i < 4; ++i) {
      if (propagate_down[i]) DiffOf(bottom[i]).zero_();  // priors and truth are what they are
    }
    const double scale = top[0]->diff.item<double>() / normalizer_;
    if (propagate_down[0]) DiffOf(bottom[0]).copy_(place_slope_).mul_(scale);
    if (propagate_down[1]) DiffOf(bottom[1]).copy_(class_slope_).mul_(scale);
    return OkStatus();
  }

 private:
  bool mines() const { return param().multibox_loss_param().mining_type() != MultiBoxLossParameter::NONE; }
  // Whether a part of the loss is there: a bottom that propagate_down rules out has none.
  bool counts(int bottom) const { return param().propagate_down_size() <= bottom || param().propagate_down(bottom); }

  // The gradients are made with the loss: both need the same terms.
  template <typename T>
  Status Run(const Blobs& bottom, Blob* top) {
    const auto& given = param().multibox_loss_param();
    POSEIDON_ASSIGN_OR_RETURN(const Priors<T> priors, ReadPriors<T>(bottom[2]->data, given.code_type()));
    POSEIDON_ASSIGN_OR_RETURN(const std::vector<std::vector<Truth<T>>> truths, ReadTruths<T>(bottom[3]->data));
    const auto count = static_cast<std::int64_t>(priors.boxes.size());
    T* const place_slopes = place_slope_.zero_().template mutable_data_ptr<T>();
    T* const class_slopes = class_slope_.zero_().template mutable_data_ptr<T>();
    const T* const places = bottom[0]->data.template const_data_ptr<T>();
    const T* const scores = bottom[1]->data.template const_data_ptr<T>();
    std::int64_t matched = 0;
    double place_loss = 0;
    double class_loss = 0;
    for (std::int64_t image = 0; image < images_; ++image) {
      const std::vector<Truth<T>>& truth = At(truths, image);
      const Matches<T> matches = Match(priors, truth);
      const T* const image_scores = scores + image * count * classes_;
      std::vector<bool> examples = Mine(matches, image_scores);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t match = At(matches.truth, i);
        if (match >= 0) {
          ++matched;
          place_loss += PlaceLoss(priors, static_cast<std::size_t>(i), At(truth, match).box, places + (image * count + i) * 4,
                                  place_slopes + (image * count + i) * 4);
        } else if (!At(examples, i)) {
          continue;
        }
        class_loss += ClassLoss(match >= 0 ? At(truth, match).label : kNone, image_scores + i * classes_,
                                class_slopes + (image * count + i) * classes_);
      }
    }
    const ClassView view{.axis = 1, .outer = images_, .classes = classes_, .inner = count};
    normalizer_ = Normalizer(param().loss_param(), LossParameter::VALID, view, matched);
    top->data.fill_(((counts(0) ? place_loss : 0) + (counts(1) ? class_loss : 0)) / normalizer_);
    return OkStatus();
  }

  // The boxes of the truth, by image. Rows of image -1 are padding.
  template <typename T>
  Result<std::vector<std::vector<Truth<T>>>> ReadTruths(const at::Tensor& blob) const {
    const auto& given = param().multibox_loss_param();
    const at::Tensor numbers = blob.contiguous();
    const T* row = numbers.template const_data_ptr<T>();
    std::vector<std::vector<Truth<T>>> truths(static_cast<std::size_t>(images_));
    for (std::int64_t i = 0; i < blob.numel() / 8; ++i, row += 8) {
      if (row[0] == T{-1}) continue;
      const auto where = [&] { return "row " + std::to_string(i) + " of the ground truth "; };
      if (!(row[0] >= 0 && row[0] < static_cast<T>(images_))) {
        return InvalidArgument(where() + "is of image " + std::to_string(row[0]) + ", expected one of " + std::to_string(images_));
      }
      if (!(row[1] >= 0 && row[1] < static_cast<T>(classes_)) || static_cast<std::uint32_t>(row[1]) == given.background_label_id()) {
        return InvalidArgument(where() + "has class " + std::to_string(row[1]) + ", expected one of " + std::to_string(classes_) +
                               " other than the background");
      }
      if (!std::all_of(row + 3, row + 7, [](T edge) { return std::isfinite(edge); })) {
        return InvalidArgument(where() + "has an edge that is not a finite number");
      }
      if (!given.use_difficult_gt() && row[7] != 0) continue;
      truths[static_cast<std::size_t>(row[0])].push_back({{row[3], row[4], row[5], row[6]}, static_cast<std::int64_t>(row[1])});
    }
    return truths;
  }

  template <typename T>
  Matches<T> Match(const Priors<T>& priors, const std::vector<Truth<T>>& truths) const {
    const auto& given = param().multibox_loss_param();
    constexpr T kLeast = static_cast<T>(1e-6);
    const std::size_t count = priors.boxes.size();
    Matches<T> matches{std::vector<std::int64_t>(count, kNone), std::vector<T>(count, T{0})};
    std::vector<std::vector<T>> overlaps(count);  // with each box of the truth; empty: with none
    for (std::size_t i = 0; i < count && !truths.empty(); ++i) {
      const Box<T>& prior = priors.boxes[i];
      const auto outside = [](T edge) { return edge < 0 || edge > 1; };
      if (given.ignore_cross_boundary_bbox() && (outside(prior.x1) || outside(prior.y1) || outside(prior.x2) || outside(prior.y2))) {
        matches.truth[i] = kOutside;
        continue;
      }
      std::vector<T> row;
      for (const Truth<T>& truth : truths) row.push_back(Overlap(prior, truth.box));
      const T most = *std::max_element(row.begin(), row.end());
      if (!(most > kLeast)) continue;
      matches.overlap[i] = most;
      overlaps[i] = std::move(row);
    }
    MatchBest(overlaps, truths.size(), &matches);
    if (given.match_type() == MultiBoxLossParameter::BIPARTITE) return matches;
    for (std::size_t i = 0; i < count; ++i) {
      if (matches.truth[i] != kNone || overlaps[i].empty()) continue;
      const auto best = std::max_element(overlaps[i].begin(), overlaps[i].end());
      if (*best > kLeast && *best >= static_cast<T>(given.overlap_threshold())) matches.truth[i] = best - overlaps[i].begin();
    }
    return matches;
  }

  // Box by box of the truth, the pair that overlaps most first.
  template <typename T>
  static void MatchBest(const std::vector<std::vector<T>>& overlaps, std::size_t truths, Matches<T>* matches) {
    std::vector<bool> taken(truths, false);
    for (std::size_t round = 0; round < truths; ++round) {
      T most = static_cast<T>(1e-6);
      std::size_t prior = overlaps.size();
      std::size_t truth = 0;
      for (std::size_t i = 0; i < overlaps.size(); ++i) {
        if (matches->truth[i] != kNone || overlaps[i].empty()) continue;
        for (std::size_t j = 0; j < truths; ++j) {
          if (taken[j] || !(overlaps[i][j] > most)) continue;
          most = overlaps[i][j];
          prior = i;
          truth = j;
        }
      }
      if (prior == overlaps.size()) return;
      matches->truth[prior] = static_cast<std::int64_t>(truth);
      matches->overlap[prior] = most;
      taken[truth] = true;
    }
  }

  // Which priors are examples of the background: all without a match, or where mined the hardest of those that overlap little.
  template <typename T>
  std::vector<bool> Mine(const Matches<T>& matches, const T* scores) const {
    const auto& given = param().multibox_loss_param();
    if (!mines()) return std::vector<bool>(matches.truth.size(), true);
    std::vector<bool> examples(matches.truth.size(), false);
    std::vector<std::pair<T, std::size_t>> losses;
    std::int64_t matched = 0;
    for (std::size_t i = 0; i < matches.truth.size(); ++i) {
      if (matches.truth[i] >= 0) ++matched;
      if (matches.truth[i] != kNone || !(matches.overlap[i] < static_cast<T>(given.neg_overlap()))) continue;
      losses.emplace_back(BackgroundLoss(scores + static_cast<std::int64_t>(i) * classes_), i);
    }
    const double wanted = std::max(0.0, static_cast<double>(matched) * static_cast<double>(given.neg_pos_ratio()));
    const auto most = static_cast<std::size_t>(std::min(std::floor(wanted), static_cast<double>(losses.size())));
    // One that is no number comes first, so that the net's loss says it.
    const auto hardness = [](T loss) { return std::isnan(loss) ? std::numeric_limits<T>::infinity() : loss; };
    std::stable_sort(losses.begin(), losses.end(), [&](const auto& a, const auto& b) { return hardness(a.first) > hardness(b.first); });
    for (std::size_t i = 0; i < most; ++i) examples[losses[i].second] = true;
    return examples;
  }

  // sum over the four of f(prediction - target), and its gradient.
  template <typename T>
  double PlaceLoss(const Priors<T>& priors, std::size_t index, const Box<T>& truth, const T* prediction, T* slope) const {
    const auto& given = param().multibox_loss_param();
    const BoxCode code{given.code_type(), given.encode_variance_in_target()};
    const std::array<T, 4> target = Encode(code, priors, index, truth);
    const Box<T>& prior = priors.boxes[index];
    const std::array<T, 4> edges = {prior.x1, prior.y1, prior.x2, prior.y2};
    const bool quadratic = given.loc_loss_type() == MultiBoxLossParameter::L2;
    double loss = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      if (given.bp_inside() && (edges[i] < 0 || edges[i] > 1)) continue;  // that edge is not learned
      const T unit = code.variance_in_target ? priors.variances[index][i] : T{1};
      const T difference = (prediction[i] - target[i]) / unit;
      const bool inside = quadratic || std::fabs(difference) < 1;
      loss += static_cast<double>(inside ? difference * difference / 2 : std::fabs(difference) - T{0.5});
      const T step = inside ? difference : std::copysign(T{1}, difference);
      slope[i] = static_cast<T>(given.loc_weight()) * step / unit;
    }
    return static_cast<double>(given.loc_weight()) * loss;
  }

  template <typename T>
  T BackgroundLoss(const T* scores) const {
    const auto background = static_cast<std::int64_t>(param().multibox_loss_param().background_label_id());
    if (param().multibox_loss_param().conf_loss_type() == MultiBoxLossParameter::SOFTMAX) return SoftmaxLoss(scores, background);
    T loss = 0;
    for (std::int64_t c = 0; c < classes_; ++c) loss += LogisticLoss(scores[c], c == background);
    return loss;
  }

  // The loss of one prior's classes, and its gradient. `label` is kNone for the background.
  template <typename T>
  double ClassLoss(std::int64_t label, const T* scores, T* slope) const {
    const auto& given = param().multibox_loss_param();
    const auto background = static_cast<std::int64_t>(given.background_label_id());
    if (label != kNone && given.map_object_to_agnostic()) label = background + 1;
    if (given.conf_loss_type() == MultiBoxLossParameter::SOFTMAX) {
      const std::int64_t target = label == kNone ? background : label;
      const T most = *std::max_element(scores, scores + classes_);
      T sum = 0;
      for (std::int64_t c = 0; c < classes_; ++c) sum += std::exp(scores[c] - most);
      for (std::int64_t c = 0; c < classes_; ++c) slope[c] = std::exp(scores[c] - most) / sum - (c == target ? T{1} : T{0});
      return static_cast<double>(SoftmaxLoss(scores, target));
    }
    // Without mining SSD gives the background's priors no class at all.
    const std::int64_t target = label != kNone ? label : mines() ? background : kNone;
    T loss = 0;
    for (std::int64_t c = 0; c < classes_; ++c) {
      loss += LogisticLoss(scores[c], c == target);
      slope[c] = 1 / (1 + std::exp(-scores[c])) - (c == target ? T{1} : T{0});
    }
    return static_cast<double>(loss);
  }

  // The smallest normal float bounds it, as in SoftmaxWithLoss.
  template <typename T>
  T SoftmaxLoss(const T* scores, std::int64_t label) const {
    const T most = *std::max_element(scores, scores + classes_);
    T sum = 0;
    for (std::int64_t c = 0; c < classes_; ++c) sum += std::exp(scores[c] - most);
    return -std::log(std::max(std::exp(scores[label] - most) / sum, static_cast<T>(std::numeric_limits<float>::min())));
  }
  template <typename T>
  static T LogisticLoss(T score, bool target) {
    const T positive = score >= 0 ? T{1} : T{0};
    return std::log(1 + std::exp(score - 2 * score * positive)) - score * ((target ? T{1} : T{0}) - positive);
  }

  std::int64_t classes_ = 0;
  std::int64_t images_ = 0;
  double normalizer_ = 1;
  at::Tensor place_slope_;  // gradients of the undivided loss
  at::Tensor class_slope_;
};

}  // namespace

std::unique_ptr<Layer> MakeMultiBoxLossLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<MultiBoxLossLayer>(param, context);
}

}  // namespace poseidon::caffe
