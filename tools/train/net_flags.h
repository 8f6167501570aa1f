// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_NET_FLAGS_H_
#define POSEIDON_TOOLS_TRAIN_NET_FLAGS_H_

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "frontends/caffe/net/net.h"

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
  int threads = 0;
};
void AddNetFlags(CLI::App& command, NetFlags& flags);

// Takes files of states or models, separated by commas; names what is there in the other format where one is not.
CLI::Validator SnapshotFiles();

// Adds --gpu, which Caffe's command lines have. RefuseGpu fails with a sentence where it was given.
void AddGpuFlag(CLI::App& command, std::string& gpu);
void RefuseGpu(const std::string& gpu);

// Reads and builds the net; fails with a sentence. Sets the number of compute threads.
std::unique_ptr<caffe::Net> BuildNet(const NetFlags& flags);

// Copies the weights of `flags` into `net`; fails with a sentence, and says on standard error which layers of the net
// and of the file found no partner.
void LoadWeights(const NetFlags& flags, caffe::Net* net);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_NET_FLAGS_H_
