// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_CLUSTER_FLAGS_H_
#define POSEIDON_TOOLS_LAUNCH_CLUSTER_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "tools/launch/hosts.h"

namespace poseidon::launch {

// The file of this program; its name alone where /proc does not say.
std::string OwnProgram();

// The flags of commands that start processes on hosts.
struct ClusterFlags {
  std::string hosts;
  std::string hostfile;
  std::string ssh = "ssh";
  std::string program;  // where poseidon is on the other hosts; empty: where it is here

  bool given() const { return !hosts.empty() || !hostfile.empty(); }
};
void AddClusterFlags(CLI::App& command, ClusterFlags& flags);

// Returns the hosts that the flags name, none where they name none. Where they contradict each other or a file cannot
// be read it ends the program with a sentence.
std::vector<Host> HostsOf(const ClusterFlags& flags);

// Where each member of a job runs.
struct Placement {
  std::vector<Host> hosts;     // by member
  std::vector<std::string> addresses;  // by member: numeric, where it listens; loopback alone where no hosts were named
  std::vector<bool> local;             // by member: on this machine
  bool all_local = true;
  std::size_t OnHostOf(std::size_t member, std::size_t among) const;  // of the first `among` members
};
// Finds the addresses; where it cannot it ends the program with a sentence.
Placement PlaceOn(std::vector<Host> hosts);

// The command that starts `poseidon COMMAND` on `host`. Over ssh it changes to this folder first, so that relative
// paths mean the same; -T and BatchMode because nobody is there to type. `ssh_options` come beside them.
std::vector<std::string> CommandOn(const ClusterFlags& flags, const Host& host, bool local,
                                   const std::string& command, const std::vector<std::string>& ssh_options = {});

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_CLUSTER_FLAGS_H_
