// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/average_precision.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace poseidon::caffe {
namespace {

// Precision and recall once a detection is counted with all that are more confident.
struct Point {
  double precision;
  double recall;
};

// Sum over detections of precision times the step of recall that it brings.
double Integral(const std::vector<Point>& curve) {
  double area = 0, before = 0;
  for (const Point& at : curve) {
    area += at.precision * (at.recall - before);
    before = at.recall;
  }
  return area;
}

// The same with the greatest precision at that recall or a greater one.
double MaxIntegral(std::vector<Point> curve) {
  for (std::size_t i = curve.size() - 1; i-- > 0;) curve[i].precision = std::max(curve[i].precision, curve[i + 1].precision);
  return Integral(curve);
}

double ElevenPoints(const std::vector<Point>& curve) {
  std::array<double, 11> greatest{};
  for (const Point& at : curve) {
    for (std::size_t tenth = 0; tenth <= 10 && at.recall >= static_cast<double>(tenth) / 10; ++tenth) {
      greatest[tenth] = std::max(greatest[tenth], at.precision);
    }
  }
  double sum = 0;
  for (const double precision : greatest) sum += precision;
  return sum / 11;
}

}  // namespace

Result<ApVersion> ParseApVersion(const std::string& name) {
  if (name == "Integral") return ApVersion::kIntegral;
  if (name == "MaxIntegral") return ApVersion::kMaxIntegral;
  if (name == "11point") return ApVersion::k11Point;
  return InvalidArgument("the solver's ap_version is '" + name + "', expected Integral, MaxIntegral or 11point");
}

void AveragePrecision::Add(std::span<const double, kColumns> row) {
  const int label = static_cast<int>(row[1]);
  if (row[0] == -1) {
    objects_[label] += row[2];
  } else if (row[3] != 0 || row[4] != 0) {
    detections_[label].push_back({.confidence = row[2], .right = row[3] != 0});
  }
}

std::map<int, double> AveragePrecision::OfClasses(ApVersion version) const {
  std::map<int, double> values;
  for (const auto& [label, objects] : objects_) {
    double& value = values[label];
    const auto found = detections_.find(label);
    if (found == detections_.end() || objects == 0) continue;
    std::vector<Detection> detections = found->second;
    std::stable_sort(detections.begin(), detections.end(),
                     [](const Detection& a, const Detection& b) { return a.confidence > b.confidence; });
    std::vector<Point> curve;
    double right = 0;
    for (const Detection& detection : detections) {
      right += detection.right ? 1 : 0;
      curve.push_back({.precision = right / static_cast<double>(curve.size() + 1), .recall = right / objects});
    }
    value = version == ApVersion::kIntegral      ? Integral(curve)
            : version == ApVersion::kMaxIntegral ? MaxIntegral(std::move(curve))
                                                 : ElevenPoints(curve);
  }
  return values;
}

double AveragePrecision::Mean(const std::map<int, double>& classes) {
  if (classes.empty()) return 0;
  double sum = 0;
  for (const auto& [label, value] : classes) sum += value;
  return sum / static_cast<double>(classes.size());
}

}  // namespace poseidon::caffe
