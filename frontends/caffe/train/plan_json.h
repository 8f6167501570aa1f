// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_PLAN_JSON_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_PLAN_JSON_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "poseidon/base/result.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/plan.h"

// plan.json: what was decided for every layer, and why. Written into the run directory and beside
// every snapshot; --plan FILE pins its schemes.
namespace poseidon::caffe {

nlohmann::json PlanToJson(const plan::Plan& plan, const std::vector<plan::LayerSpec>& layers);

// The scheme of every layer a plan file names. kNotFound, or kInvalidArgument naming the file and
// what is wrong in it.
Result<std::map<std::string, plan::Scheme>> ReadPlanSchemes(const std::string& path);

// Writes `text` to `path` by way of a temporary name, synced. kUnavailable with path and reason.
Status WriteTextFile(const std::string& path, const std::string& text);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_PLAN_JSON_H_
