// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/case.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <vector>

#include "frontends/caffe/net/layer.h"

namespace poseidon::caffe {
namespace {

std::string Short(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", x);
  return text;
}

// The shape in a NumPy header such as {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
Result<Shape> ShapeOfHeader(const std::string& header) {
  if (header.find("'descr': '<f4'") == std::string::npos ||
      header.find("'fortran_order': False") == std::string::npos) {
    return DataLoss("is not a little-endian float32 array in C order");
  }
  const auto key = header.find("'shape': (");
  const auto end = key == std::string::npos ? key : header.find(')', key);
  if (end == std::string::npos) return DataLoss("has no shape");
  Shape shape;
  std::int64_t number = -1;
  for (std::size_t i = key + 10; i <= end; ++i) {
    const char c = header[i];
    if (c >= '0' && c <= '9') {
      number = std::max<std::int64_t>(number, 0) * 10 + (c - '0');
      if (number > (std::int64_t{1} << 40)) return DataLoss("has an absurd shape");
    } else if (number >= 0) {
      shape.push_back(number);
      number = -1;
    }
  }
  return shape;
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

Result<at::Tensor> ReadNpy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound("cannot open " + path);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (bytes.size() < 10 || bytes.compare(0, 6, "\x93NUMPY") != 0 || bytes[6] != 1) {
    return DataLoss(path + " is not a NumPy file of format 1.0");
  }
  const std::size_t begin = 10 + static_cast<unsigned char>(bytes[8]) +
                            256 * static_cast<std::size_t>(static_cast<unsigned char>(bytes[9]));
  if (begin > bytes.size()) return DataLoss(path + " is truncated");
  auto shape = ShapeOfHeader(bytes.substr(10, begin - 10));
  if (!shape.ok()) return DataLoss(path + " " + shape.status().message());
  const std::int64_t count = CountOf(*shape, 0, static_cast<std::int64_t>(shape->size()));
  if (bytes.size() - begin != static_cast<std::size_t>(count) * sizeof(float)) {
    return DataLoss(path + " does not hold the numbers of its shape");
  }
  at::Tensor tensor = at::empty(*shape, at::kFloat);
  std::memcpy(tensor.data_ptr<float>(), bytes.data() + begin, bytes.size() - begin);
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
  const at::Tensor got64 = got.to(at::kDouble).contiguous();
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
