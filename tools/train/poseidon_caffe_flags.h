// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_TRAIN_POSEIDON_CAFFE_FLAGS_H_
#define POSEIDON_TOOLS_TRAIN_POSEIDON_CAFFE_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <string>

#include "frontends/caffe/train/options.h"
#include "frontends/caffe/train/output.h"

// The flags of Poseidon-Caffe (2015), its caffe_main and the parameter server below it, so that its users' scripts go on working:
// each is followed, has no effect here, or is refused in a sentence that says what to write instead. docs/caffe/from-poseidon-caffe.md
// is the table for people.
namespace poseidon::tools {

struct PoseidonCaffeFlags {
  std::map<std::string, std::string> given;  // those that only some values are taken of, or that have no effect, by name
  bool svb = true;
  bool init_thread_access_table = false;
  int num_clients = 1;
  int client_id = 0;
  int num_table_threads = 1;
  std::string net_outputs;
  CLI::App* command = nullptr;
};

// Adds them to `train`. The help shows those that a new user may want too.
void AddPoseidonCaffeFlags(CLI::App& command, PoseidonCaffeFlags& flags);

// Workers that every client has: its table threads but one.
std::uint16_t WorkersPerClient(const PoseidonCaffeFlags& flags);

enum class ClientPart {
  kStarts,   // this process starts the job
  kNothing,  // it is a client that the first one starts, and has been told so
};

// Applies them to the options, and says through `output` which have no effect. Ends the program with a sentence where one is refused.
ClientPart ApplyPoseidonCaffe(const PoseidonCaffeFlags& flags, caffe::TrainOptions& options, caffe::Output& output);

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_TRAIN_POSEIDON_CAFFE_FLAGS_H_
