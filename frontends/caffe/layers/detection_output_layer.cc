// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "frontends/caffe/layers/boxes.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

// SSD's detections: boxes are decoded from the predictions (bottom 0) and priors (bottom 2), and of those that overlap the one
// with the highest confidence (bottom 1) is kept, class by class. The top, 1 x 1 x K x 7, has a row for each: image, class,
// confidence, corners. With none at all it has a row of -1 for each image. How many there are is known in the forward pass only.
class DetectionOutputLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {3, 3, 1, 1}; }
  bool computes_on_device() const override { return false; }
  bool differentiable() const override { return false; }

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const auto& options = param().detection_output_param();
    const auto& nms = options.nms_param();
    if (options.num_classes() == 0) return InvalidArgument("needs num_classes");
    if (!(nms.nms_threshold() >= 0)) return InvalidArgument("nms_threshold is below 0");
    if (!(nms.eta() > 0 && nms.eta() <= 1)) return InvalidArgument("eta is " + std::to_string(nms.eta()) + ", expected above 0, at most 1");
    classes_ = options.num_classes();
    box_classes_ = options.share_location() ? 1 : classes_;
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto priors = bottom[2]->data.dim() > 2 ? bottom[2]->data.size(2) / 4 : 0;
    const std::int64_t images = bottom[0]->data.dim() > 0 ? bottom[0]->data.size(0) : 0;
    const auto fits = [&](const Blob& blob, std::int64_t each) {
      return blob.data.dim() > 0 && blob.data.size(0) == images && blob.count() / std::max<std::int64_t>(1, priors) == images * each &&
             blob.count() == images * each * priors;
    };
    if (!fits(*bottom[0], box_classes_ * 4) || !fits(*bottom[1], classes_)) {
      return InvalidArgument("has bottoms of shape " + ShapeText(bottom[0]->data.sizes()) + " and " +
                             ShapeText(bottom[1]->data.sizes()) + " for " + std::to_string(priors) + " priors, expected " +
                             std::to_string(box_classes_ * 4) + " and " + std::to_string(classes_) + " numbers for each");
    }
    SetShape(top[0], {1, 1, 1, 7}, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    return options().dtype() == at::kDouble ? Detect<double>(bottom, top[0]) : Detect<float>(bottom, top[0]);
  }

 private:
  struct Found {
    std::int64_t label = 0;
    std::size_t prior = 0;
    double score = 0;
  };

  template <typename T>
  Status Detect(const Blobs& bottom, Blob* top) const {
    const auto& options = param().detection_output_param();
    POSEIDON_ASSIGN_OR_RETURN(const Priors<T> priors, ReadPriors<T>(bottom[2]->data, options.code_type()));
    const std::int64_t images = bottom[0]->data.size(0);
    const T* places = bottom[0]->data.const_data_ptr<T>();
    const T* scores = bottom[1]->data.const_data_ptr<T>();
    std::vector<T> rows;
    for (std::int64_t image = 0; image < images; ++image) {
      std::map<std::int64_t, std::vector<Box<T>>> boxes;  // by class; 0 for all where they share
      const std::vector<Found> found = FindIn<T>(priors, places, scores, &boxes);
      for (const Found& one : found) {
        const Box<T>& box = boxes[options.share_location() ? 0 : one.label][one.prior];
        rows.insert(rows.end(), {static_cast<T>(image), static_cast<T>(one.label), static_cast<T>(one.score), box.x1, box.y1, box.x2, box.y2});
      }
      places += static_cast<std::int64_t>(priors.boxes.size()) * box_classes_ * 4;
      scores += static_cast<std::int64_t>(priors.boxes.size()) * classes_;
    }
    if (rows.empty()) {
      rows.assign(static_cast<std::size_t>(images) * 7, T{-1});
      for (std::int64_t image = 0; image < images; ++image) At(rows, image * 7) = static_cast<T>(image);
    }
    SetShape(top, {1, 1, static_cast<std::int64_t>(rows.size()) / 7, 7}, this->options());
    std::copy(rows.begin(), rows.end(), top->data.template mutable_data_ptr<T>());
    return OkStatus();
  }

  // The detections of one image, by class, and within a class from the most confident.
  template <typename T>
  std::vector<Found> FindIn(const Priors<T>& priors, const T* places, const T* scores,
                            std::map<std::int64_t, std::vector<Box<T>>>* boxes) const {
    const auto& options = param().detection_output_param();
    const BoxCode code{options.code_type(), options.variance_encoded_in_target()};
    std::vector<Found> found;
    for (std::int64_t label = 0; label < classes_; ++label) {
      if (label == options.background_label_id()) continue;
      const std::int64_t place = options.share_location() ? 0 : label;
      std::vector<Box<T>>& decoded = (*boxes)[place];
      for (std::size_t i = decoded.size(); i < priors.boxes.size(); ++i) {
        decoded.push_back(Decode(code, priors, i, places + (static_cast<std::int64_t>(i) * box_classes_ + place) * 4));
      }
      for (const std::size_t prior : Suppress(decoded, scores + label)) {
        found.push_back({label, prior, static_cast<double>(scores[static_cast<std::int64_t>(prior) * classes_ + label])});
      }
    }
    KeepTop(&found);
    return found;
  }

  // The priors that are kept, from the most confident; `scores` are those of the class, `classes_` apart.
  template <typename T>
  std::vector<std::size_t> Suppress(const std::vector<Box<T>>& boxes, const T* scores) const {
    const auto& options = param().detection_output_param();
    const auto score = [&](std::size_t i) { return scores[static_cast<std::int64_t>(i) * classes_]; };
    const T least = options.has_confidence_threshold() ? static_cast<T>(options.confidence_threshold()) : std::numeric_limits<T>::lowest();
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      if (score(i) > least) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return score(a) > score(b); });
    const bool limited = options.nms_param().has_top_k() && options.nms_param().top_k() >= 0;
    if (limited && order.size() > static_cast<std::size_t>(options.nms_param().top_k())) {
      order.resize(static_cast<std::size_t>(options.nms_param().top_k()));
    }
    T threshold = static_cast<T>(options.nms_param().nms_threshold());
    const T eta = static_cast<T>(options.nms_param().eta());
    std::vector<std::size_t> kept;
    for (const std::size_t i : order) {
      if (std::any_of(kept.begin(), kept.end(), [&](std::size_t j) { return Overlap(boxes[i], boxes[j]) > threshold; })) continue;
      kept.push_back(i);
      if (eta < 1 && threshold > T{0.5}) threshold *= eta;
    }
    return kept;
  }

  void KeepTop(std::vector<Found>* found) const {
    const std::int32_t most = param().detection_output_param().keep_top_k();
    if (most < 0 || found->size() <= static_cast<std::size_t>(most)) return;
    std::stable_sort(found->begin(), found->end(), [](const Found& a, const Found& b) { return a.score > b.score; });
    found->resize(static_cast<std::size_t>(most));
    std::stable_sort(found->begin(), found->end(), [](const Found& a, const Found& b) { return a.label < b.label; });
  }

  std::int64_t classes_ = 0;
  std::int64_t box_classes_ = 0;  // for how many classes a place has boxes
};

}  // namespace

std::unique_ptr<Layer> MakeDetectionOutputLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<DetectionOutputLayer>(param, context);
}

}  // namespace poseidon::caffe
