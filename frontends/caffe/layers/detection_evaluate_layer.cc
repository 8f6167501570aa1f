// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "frontends/caffe/data/box.h"
#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

constexpr std::int64_t kColumns = 5;  // image, class, score, right, wrong

// Which of the detections (bottom 0, as DetectionOutput gives them) meet an object (bottom 1, as AnnotatedData gives them), SSD's first
// step to an average precision. The top, 1 x 1 x K x 5, has a row (-1, class, its objects, -1, -1) for each class but the background, then a row
// for each detection: image, class, confidence, and 1 and 0 where it is right, 0 and 1 where it is wrong. It is right where the object of its
// class that it shares most with shares overlap_threshold, and nothing more confident has met that object. Where that object is difficult, and
// those are not evaluated, both are 0.
class DetectionEvaluateLayer final : public Layer {
 public:
  using Layer::Layer;
  Arity arity() const override { return {2, 2, 1, 1}; }
  bool computes_on_device() const override { return false; }
  bool differentiable() const override { return false; }

  Status SetUp(const Blobs& /*bottom*/, const Blobs& /*top*/) override {
    const DetectionEvaluateParameter& options = param().detection_evaluate_param();
    if (options.num_classes() == 0) return InvalidArgument("needs num_classes");
    if (!(options.overlap_threshold() > 0)) return InvalidArgument("overlap_threshold is not above 0");
    if (options.has_name_size_file() || options.has_resize_param()) {
      return InvalidArgument("has name_size_file or resize_param, expected none: boxes are compared in parts of the image");
    }
    return OkStatus();
  }

  Status Reshape(const Blobs& bottom, const Blobs& top) override {
    const auto found = bottom[0]->data.sizes(), objects = bottom[1]->data.sizes();
    if (found.size() != 4 || found[3] != 7 || objects.size() != 4 || objects[3] != 8) {
      return InvalidArgument("has bottoms of shape " + ShapeText(found) + " and " + ShapeText(objects) +
                             ", expected rows of 7 numbers for each detection and of 8 for each object");
    }
    SetShape(top[0], {1, 1, std::max<std::int64_t>(1, classes()), kColumns}, options());
    return OkStatus();
  }

  Status Forward(const Blobs& bottom, const Blobs& top) override {
    const at::Tensor detections = bottom[0]->data.to(at::kDouble).contiguous(), objects = bottom[1]->data.to(at::kDouble).contiguous();
    std::map<Key, std::vector<Object>> wanted;
    std::map<std::int64_t, std::int64_t> counts;
    const double* row = objects.const_data_ptr<double>();
    for (std::int64_t i = 0; i < objects.numel() / 8; ++i, row += 8) {
      if (row[0] < 0) continue;  // a batch without objects
      POSEIDON_RETURN_IF_ERROR(CheckLabel(row[1], "object", i));
      const Object object{{row[3], row[4], row[5], row[6]}, row[7] != 0, false};
      wanted[{row[0], row[1]}].push_back(object);
      if (counts_difficult() || !object.difficult) ++counts[static_cast<std::int64_t>(row[1])];
    }
    std::map<Key, std::vector<Found>> found;
    row = detections.const_data_ptr<double>();
    for (std::int64_t i = 0; i < detections.numel() / 7; ++i, row += 7) {
      if (row[1] == -1) continue;  // an image without detections
      POSEIDON_RETURN_IF_ERROR(CheckLabel(row[1], "detection", i));
      found[{row[0], row[1]}].push_back({row[2], {row[3], row[4], row[5], row[6]}});
    }
    std::vector<double> rows;
    for (std::int64_t label = 0; label < param().detection_evaluate_param().num_classes(); ++label) {
      if (label != background()) rows.insert(rows.end(), {-1, static_cast<double>(label), static_cast<double>(counts[label]), -1, -1});
    }
    for (auto& [key, some] : found) Judge(key, &some, &wanted[key], &rows);
    SetShape(top[0], {1, 1, static_cast<std::int64_t>(rows.size()) / kColumns, kColumns}, options());
    const at::Tensor out = top[0]->data.view({-1});
    for (std::size_t i = 0; i < rows.size(); ++i) out[static_cast<std::int64_t>(i)].fill_(rows[i]);
    return OkStatus();
  }

 private:
  using Key = std::pair<double, double>;  // image, class
  struct Object {
    Box<double> box;
    bool difficult, met;
  };
  struct Found {
    double score;
    Box<double> box;
  };

  std::int64_t background() const { return param().detection_evaluate_param().background_label_id(); }
  bool counts_difficult() const { return param().detection_evaluate_param().evaluate_difficult_gt(); }
  std::int64_t classes() const {
    const std::int64_t all = param().detection_evaluate_param().num_classes();
    return background() >= 0 && background() < all ? all - 1 : all;
  }

  Status CheckLabel(double label, const std::string& what, std::int64_t row) const {
    const double end = param().detection_evaluate_param().num_classes();
    if (label >= 0 && label < end && std::floor(label) == label && label != static_cast<double>(background())) return OkStatus();
    return InvalidArgument(what + " " + std::to_string(row) + " has label " + std::to_string(label) + ", expected one of the " +
                           std::to_string(static_cast<std::int64_t>(end)) + " classes and not the background");
  }

  // The detections of one image and class, from the most confident.
  void Judge(const Key& key, std::vector<Found>* found, std::vector<Object>* objects, std::vector<double>* rows) const {
    std::stable_sort(found->begin(), found->end(), [](const Found& a, const Found& b) { return a.score > b.score; });
    for (const Found& one : *found) {
      Object* nearest = nullptr;
      double most = -1;
      for (Object& object : *objects) {
        const double shared = Overlap(one.box, object.box);
        if (shared > most) std::tie(most, nearest) = std::pair(shared, &object);
      }
      bool right = false, counts = true;
      if (nearest != nullptr && most >= static_cast<double>(param().detection_evaluate_param().overlap_threshold())) {
        counts = counts_difficult() || !nearest->difficult;
        right = counts && !std::exchange(nearest->met, nearest->met || counts);
      }
      rows->insert(rows->end(), {key.first, key.second, one.score, right ? 1.0 : 0.0, counts && !right ? 1.0 : 0.0});
    }
  }
};

}  // namespace

std::unique_ptr<Layer> MakeDetectionEvaluateLayer(const LayerParameter& param, const LayerContext& context) {
  return std::make_unique<DetectionEvaluateLayer>(param, context);
}

}  // namespace poseidon::caffe
