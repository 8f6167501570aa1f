// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_COMMANDS_H_
#define POSEIDON_TOOLS_TRAIN_COMMANDS_H_

#include <CLI/CLI.hpp>

// The trainer's commands, one file each. Each adds its flags to `app` and sets a callback that throws CLI::RuntimeError
// with the exit code.
namespace poseidon::tools {

void AddTrain(CLI::App& app);
void AddTest(CLI::App& app);
void AddTime(CLI::App& app);
void AddDeviceQuery(CLI::App& app);
void AddConvertMnist(CLI::App& app);  // convert-mnist, convert_mnist_data
void AddConvertCifarData(CLI::App& app);
void AddConvertImageset(CLI::App& app);
void AddComputeImageMean(CLI::App& app);
void AddPartitionData(CLI::App& app);
void AddExtractFeatures(CLI::App& app);
void AddClassify(CLI::App& app);
void AddDetect(CLI::App& app);
void AddUpgradeProto(CLI::App& app);  // upgrade_net_proto_text, upgrade_net_proto_binary, upgrade_solver_proto_text
void AddExport(CLI::App& app);
void AddMember(CLI::App& app);  // started by train; reads its task from standard input

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_COMMANDS_H_
