// SPDX-License-Identifier: Apache-2.0
#include "tools/train/task_json.h"

#include "tools/launch/task_text.h"

namespace poseidon::tools {

using nlohmann::json;
using transport::tcp::Token;

json TaskJson(const caffe::MemberTask& task, const Token& token) {
  return {{"server", task.server},
          {"rank", task.rank},
          {"host", task.host},
          {"listen_host", task.listen_host},
          {"listen_port", task.listen_port},
          {"one_machine", task.one_machine},
          {"local_members", task.local_members},
          {"local_worker", task.local_worker},
          {"tells_figures", task.tells_figures},
          {"options", task.options},
          {"token", ToHex(token.bytes())}};
}

Result<MemberInput> ParseMemberInput(const std::string& line) {
  try {
    const json input = launch::DecodeTask(line);
    caffe::MemberTask task;
    task.server = input.at("server");
    task.rank = input.at("rank");
    task.host = input.at("host");
    task.listen_host = input.at("listen_host");
    task.listen_port = input.at("listen_port");
    task.one_machine = input.at("one_machine");
    task.local_members = input.at("local_members");
    task.local_worker = input.at("local_worker");
    task.tells_figures = input.at("tells_figures");
    task.options = input.at("options");
    if (input.contains("coordinator")) {
      task.coordinator_host = input.at("coordinator").at("host");
      task.coordinator_port = input.at("coordinator").at("port");
    }
    POSEIDON_ASSIGN_OR_RETURN(Token token, Token::FromHex(input.at("token").get<std::string>()));
    return MemberInput{std::move(task), std::move(token)};
  } catch (const json::exception& error) {
    return InvalidArgument(std::string("the task cannot be read: ") + error.what());
  }
}

}  // namespace poseidon::tools
