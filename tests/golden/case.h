// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TESTS_GOLDEN_CASE_H_
#define POSEIDON_TESTS_GOLDEN_CASE_H_

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <string>

#include "poseidon/base/result.h"

namespace poseidon::caffe {

// A folder with a net, the arrays that go in and the arrays a trusted implementation got out.
struct GoldenCase {
  std::string name;
  std::string folder;
  nlohmann::json json;  // case.json

  std::string Path(const std::string& file) const { return folder + "/" + file; }
};

Result<GoldenCase> ReadCase(const std::string& folder);

// A NumPy file (data/npy_file.h) as a float tensor.
Result<at::Tensor> ReadTensor(const std::string& path);

enum class Verdict { kPass, kFail, kUnsupported };

// The outcome of a case, with the line's rest: the worst deviation, what is missing, the refusal.
struct CaseOutcome {
  Verdict verdict = Verdict::kPass;
  std::string detail;
};

// Collects comparisons of arrays, each element held to |got - want| <= abs + rel * |want|, and
// remembers the worst: a deviation of 1 is just allowed.
class Comparison {
 public:
  explicit Comparison(double rel) : rel_(rel) {}

  // `what` names the array in the outcome: "blob fc1", "gradient of ip1[0]".
  void Compare(const std::string& what, const at::Tensor& got, const at::Tensor& want, double abs);
  void CompareNumber(const std::string& what, double got, double want, double abs);
  // Something that no comparison of numbers can express, such as a missing blob.
  void Fail(const std::string& what);

  CaseOutcome Outcome() const;

 private:
  void Note(const std::string& what, double deviation, const std::string& detail);

  double rel_;
  double worst_ = 0;
  std::string worst_what_ = "nothing";
  std::string failure_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_TESTS_GOLDEN_CASE_H_
