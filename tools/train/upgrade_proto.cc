// SPDX-License-Identifier: Apache-2.0
// `poseidon upgrade_net_proto_text`, `upgrade_net_proto_binary` and `upgrade_solver_proto_text`: old files of Caffe's in today's form.
#include <iostream>
#include <memory>
#include <string>

#include "frontends/caffe/proto/read.h"
#include "frontends/caffe/proto/upgrade.h"
#include "poseidon/base/file.h"
#include "tools/console/fail.h"
#include "tools/console/values.h"
#include "tools/train/commands.h"

namespace poseidon::tools {
namespace {

struct UpgradeFlags {
  std::string input, output;
};

// Has `upgrade` change `message`, which was read from the input, and says where there was nothing to change.
template <typename Message>
void Upgrade(const UpgradeFlags& flags, Status (*upgrade)(const std::string&, Message*), Message* message) {
  const std::string before = message->SerializeAsString();
  OrFail(upgrade(flags.input, message));
  if (message->SerializeAsString() == before) std::cout << "File already in latest proto format: " << flags.input << "\n";
}

void NetText(const UpgradeFlags& flags) {
  caffe::NetParameter net;
  OrFail(caffe::ReadTextFile(flags.input, &net));
  Upgrade(flags, caffe::UpgradeNet, &net);
  OrFail(WriteFileAtomically(caffe::ToText(net), flags.output));
  std::cout << "Wrote upgraded NetParameter text proto to " << flags.output << std::endl;
}

void NetBinary(const UpgradeFlags& flags) {
  caffe::NetParameter net;
  OrFail(caffe::ReadBinaryFile(flags.input, &net));
  Upgrade(flags, caffe::UpgradeNet, &net);
  OrFail(caffe::WriteBinaryFile(net, flags.output));
  std::cout << "Wrote upgraded NetParameter binary proto to " << flags.output << std::endl;
}

void SolverText(const UpgradeFlags& flags) {
  caffe::SolverParameter solver = OrFail(caffe::ReadSolverText(flags.input));
  Upgrade(flags, caffe::UpgradeSolver, &solver);
  OrFail(WriteFileAtomically(caffe::ToText(solver), flags.output));
  std::cout << "Wrote upgraded SolverParameter text proto to " << flags.output << std::endl;
}

void AddUpgrade(CLI::App& app, const std::string& name, const std::string& of, const std::string& files, void (*run)(const UpgradeFlags&)) {
  auto flags = std::make_shared<UpgradeFlags>();
  CLI::App* c = app.add_subcommand(name, "Write an old " + of + " in today's form");
  c->footer("  poseidon " + name + " " + files);
  c->add_option("input", flags->input, "File in any of Caffe's forms")->required()->check(InputFile());
  c->add_option("output", flags->output, "File in today's form")->required()->check(OutputFile());
  c->callback([flags, run] { run(*flags); });
}

}  // namespace

void AddUpgradeProto(CLI::App& app) {
  AddUpgrade(app, "upgrade_net_proto_text", "net prototxt", "old.prototxt new.prototxt", NetText);
  AddUpgrade(app, "upgrade_net_proto_binary", "caffemodel", "old.caffemodel new.caffemodel", NetBinary);
  AddUpgrade(app, "upgrade_solver_proto_text", "solver prototxt", "old.prototxt new.prototxt", SolverText);
}

}  // namespace poseidon::tools
