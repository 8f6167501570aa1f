// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/update_rule.h"

#include <array>

#include "frontends/caffe/solver/sweep.h"
#include "poseidon/base/listed.h"

namespace poseidon::caffe {
namespace {

struct NamedRule {
  const char* type;
  RuleMaker make;
};
// A solver joins by one line here.
constexpr std::array<NamedRule, 6> kRules = {{{"SGD", MakeSgd},
                                              {"Nesterov", MakeNesterov},
                                              {"AdaGrad", MakeAdaGrad},
                                              {"RMSProp", MakeRmsProp},
                                              {"AdaDelta", MakeAdaDelta},
                                              {"Adam", MakeAdam}}};

}  // namespace

Result<std::unique_ptr<UpdateRule>> MakeUpdateRule(const SolverParameter& solver) {
  const std::string& kind = solver.regularization_type();
  if (kind != "L1" && kind != "L2") {
    return InvalidArgument("unknown regularization_type '" + kind + "', expected L1 or L2");
  }
  for (const NamedRule& rule : kRules) {
    if (solver.type() == rule.type) {
      return rule.make(solver, kind == "L1" ? Regularization::kL1 : Regularization::kL2);
    }
  }
  std::string known;
  for (const NamedRule& rule : kRules) AddListed(rule.type, &known);
  return InvalidArgument("unknown solver type '" + solver.type() + "', expected one of " + known);
}

}  // namespace poseidon::caffe
