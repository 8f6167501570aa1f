// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/train/loss_watch.h"

#include <cmath>
#include <limits>

#include "frontends/caffe/train/numbers.h"

namespace poseidon::caffe {
namespace {

// The loss of a label whose probability is 0, which SoftmaxWithLoss bounds: -log(1.18e-38) = 87.3365.
const double kNoProbability = -std::log(static_cast<double>(std::numeric_limits<float>::min()));
// A loss so many times the first one, in so many displayed iterations in a row, does not come back.
constexpr double kFarAbove = 4;
constexpr int kInARow = 2;

std::string Hint(const IterationReport& report, double loss, const std::string& why) {
  return "the loss is " + NumberText("%.6g", loss) + " at iteration " + std::to_string(report.iteration) + ", " + why +
         ": training seems to diverge, which a base_lr below " + NumberText("%.6g", report.rate) + " most often mends";
}

}  // namespace

std::string LossWatch::Take(const IterationReport& report) {
  if (!first_) first_ = report.loss;
  if (told_ || report.closing || !std::isfinite(report.loss)) return "";
  if (std::abs(report.loss - kNoProbability) < 1e-3) {
    told_ = true;
    return Hint(report, report.loss, "the bound that is reached where no label has any probability");
  }
  if (!report.display || *first_ <= 0) return "";
  const double times = report.smoothed_loss / *first_;
  above_ = times > kFarAbove ? above_ + 1 : 0;
  if (above_ < kInARow) return "";
  told_ = true;
  return Hint(report, report.smoothed_loss, NumberText("%.1f times the first one", times));
}

}  // namespace poseidon::caffe
