// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/case.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>

#include "frontends/caffe/data/npy_file.h"
#include "frontends/caffe/net/layer.h"
#include "frontends/caffe/net/placement.h"

namespace poseidon::caffe {
namespace {

std::string Short(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", x);
  return text;
}

}  // namespace

Result<GoldenCase> ReadCase(const std::string& folder) {
  GoldenCase read;
  read.folder = folder;
  std::ifstream file(read.Path("case.json"));
  if (!file) return NotFound("cannot open " + read.Path("case.json"));
  read.json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!read.json.is_object() || !read.json.contains("name") || !read.json.contains("kind")) {
    return DataLoss(read.Path("case.json") + " is not a case");
  }
  read.name = read.json["name"].get<std::string>();
  return read;
}

Result<at::Tensor> ReadTensor(const std::string& path) {
  POSEIDON_ASSIGN_OR_RETURN(const NpyArray array, ReadNpy(path));
  at::Tensor tensor = at::empty(array.shape, at::kFloat);
  std::copy(array.values.begin(), array.values.end(), tensor.data_ptr<float>());
  return tensor;
}

void Comparison::Note(const std::string& what, double deviation, const std::string& detail) {
  if (!(deviation <= worst_)) {
    worst_ = std::isnan(deviation) ? std::numeric_limits<double>::infinity() : deviation;
    worst_what_ = what + detail;
  }
}

void Comparison::Compare(const std::string& what, const at::Tensor& got, const at::Tensor& want,
                         double abs) {
  if (!got.defined()) return Fail(what + " was not computed");
  if (got.sizes() != want.sizes()) {
    return Fail(what + " has shape " + ShapeText(got.sizes()) + ", expected " +
                ShapeText(want.sizes()));
  }
  const at::Tensor got64 = OnHost(got).to(at::kDouble).contiguous();
  const at::Tensor want64 = want.to(at::kDouble).contiguous();
  const double* g = got64.const_data_ptr<double>();
  const double* w = want64.const_data_ptr<double>();
  for (std::int64_t i = 0; i < got64.numel(); ++i) {
    if (g[i] == w[i] || (std::isnan(g[i]) && std::isnan(w[i]))) continue;
    const double deviation = std::fabs(g[i] - w[i]) / (abs + rel_ * std::fabs(w[i]));
    if (deviation <= worst_) continue;
    Note(what, deviation,
         " at " + std::to_string(i) + ": " + Short(g[i]) + ", expected " + Short(w[i]));
  }
  if (worst_what_ == "nothing") worst_what_ = what;
}

void Comparison::CompareNumber(const std::string& what, double got, double want, double abs) {
  Note(what, std::fabs(got - want) / (abs + rel_ * std::fabs(want)),
       ": " + Short(got) + ", expected " + Short(want));
}

void Comparison::Fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
}

CaseOutcome Comparison::Outcome() const {
  if (!failure_.empty()) return {Verdict::kFail, failure_};
  const std::string worst = "worst deviation " + Short(worst_) + " of the limit, " + worst_what_;
  return {worst_ <= 1 ? Verdict::kPass : Verdict::kFail, worst};
}

}  // namespace poseidon::caffe
