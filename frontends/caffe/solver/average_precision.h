// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_SOLVER_AVERAGE_PRECISION_H_
#define POSEIDON_FRONTENDS_CAFFE_SOLVER_AVERAGE_PRECISION_H_

#include <map>
#include <span>
#include <string>
#include <vector>

#include "poseidon/base/result.h"

namespace poseidon::caffe {

// How precision is summed over recall, by SSD's names.
enum class ApVersion {
  kIntegral,     // "Integral": the precision at every detection that raises recall
  kMaxIntegral,  // "MaxIntegral": the greatest precision at that recall or beyond (PASCAL VOC from 2010 on)
  k11Point,      // "11point": its mean at the recalls 0, 0.1 ... 1 (PASCAL VOC 2007)
};
Result<ApVersion> ParseApVersion(const std::string& name);

// The average precision of detections over a whole test, from the rows that DetectionEvaluate makes of its batches: what SSD's solver
// computes with eval_type: "detection". Memory grows with the number of detections. Thread: one.
class AveragePrecision {
 public:
  static constexpr std::size_t kColumns = 5;
  // (-1, class, its objects, -1, -1), or (image, class, confidence, right, wrong). A detection that is neither right nor wrong counts for nothing.
  void Add(std::span<const double, kColumns> row);
  // By class, of those that rows of objects named; 0 for one without objects or without detections. Of equal confidences the row that was
  // added first comes first.
  std::map<int, double> OfClasses(ApVersion version) const;
  // The mean of what OfClasses returns; 0 without classes.
  static double Mean(const std::map<int, double>& classes);

 private:
  struct Detection {
    double confidence;
    bool right;
  };
  std::map<int, double> objects_;
  std::map<int, std::vector<Detection>> detections_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_SOLVER_AVERAGE_PRECISION_H_
