// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_TASK_JSON_H_
#define POSEIDON_TOOLS_TRAIN_TASK_JSON_H_

#include <nlohmann/json.hpp>
#include <string>

#include "frontends/caffe/train/options.h"
#include "poseidon/base/result.h"
#include "poseidon/transport/tcp/token.h"

namespace poseidon::tools {

// A member's task as its launcher writes it: everything but the coordinator's address, which the
// launcher adds when rank 0 has reported it.
nlohmann::json TaskJson(const caffe::MemberTask& task, const transport::tcp::Token& token);

struct MemberInput {
  caffe::MemberTask task;
  transport::tcp::Token token;
};
Result<MemberInput> ParseMemberInput(const std::string& line);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_TASK_JSON_H_
