// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_PLAN_FILE_PLAN_JSON_H_
#define POSEIDON_FRONTENDS_PLAN_FILE_PLAN_JSON_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "poseidon/base/result.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/plan.h"

// plan.json: what was decided for every layer, and why. Written into the run directory and into
// every snapshot; --plan FILE pins its schemes.
namespace poseidon::plan_file {

// `members`, where given: for each layer the names of the net's layers that it is; written where they are several.
nlohmann::json PlanToJson(const plan::Plan& plan, const std::vector<plan::LayerSpec>& layers,
                          const std::vector<std::vector<std::string>>& members = {});

// Of what PlanToJson gives, as a file has it. Bytes of a name that are no UTF-8 become U+FFFD.
std::string PlanText(const nlohmann::json& plan);

// The contents of a plan file that a run follows.
struct PinnedPlan {
  std::map<std::string, plan::Scheme> schemes;  // of every layer that it names
  // The net's layers of each layer that is several; the first is its name in `schemes`.
  std::vector<std::vector<std::string>> joined;
  std::uint64_t workers = 0;                    // of the job it was made for; 0 where it does not say
};
// kNotFound, or kInvalidArgument naming the file and what is wrong in it.
Result<PinnedPlan> ReadPlan(const std::string& path);
// The same of a text, which the error calls `name`.
Result<PinnedPlan> ParsePlan(const std::string& text, const std::string& name);

}  // namespace poseidon::plan_file

#endif  // POSEIDON_FRONTENDS_PLAN_FILE_PLAN_JSON_H_
