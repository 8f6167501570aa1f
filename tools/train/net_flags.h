// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_NET_FLAGS_H_
#define POSEIDON_TOOLS_TRAIN_NET_FLAGS_H_

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "frontends/caffe/net/net.h"
#include "poseidon/base/result.h"

namespace poseidon::tools {

// The flags of commands that run a net without a solver.
struct NetFlags {
  std::string model;
  std::string weights;
  std::string phase;  // TRAIN or TEST
  int iterations = 50;
  int level = 0;
  std::string stage;
  std::string gpu;
  bool tf32 = false;
  int threads = 0;
};
void AddNetFlags(CLI::App& command, NetFlags& flags);

// Takes files of states or models, separated by commas; names what is there in the other format where one is not.
CLI::Validator SnapshotFiles();

// Adds --gpu, as Caffe's command lines have it.
void AddGpuFlag(CLI::App& command, std::string& gpu);
void AddTf32Flag(CLI::App& command, bool& tf32);

// Reads and builds the net. Sets the number of compute threads. The second one fails with a sentence.
Result<std::unique_ptr<caffe::Net>> TryBuildNet(const NetFlags& flags, const caffe::NetOptions& options = {});
std::unique_ptr<caffe::Net> BuildNet(const NetFlags& flags);

// Copies the weights of `flags` into `net`; returns which layers of the net and of the file found no partner, in words. The
// second one fails with a sentence, and says those words on standard error.
Result<std::string> TryLoadWeights(const NetFlags& flags, caffe::Net* net);
void LoadWeights(const NetFlags& flags, caffe::Net* net);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_NET_FLAGS_H_
