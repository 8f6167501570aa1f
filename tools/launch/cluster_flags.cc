// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/cluster_flags.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>

#include "tools/console/fail.h"
#include "tools/console/values.h"

namespace poseidon::launch {
namespace {

using tools::Fail;
using tools::FailUsage;

std::string OwnFolder() {
  std::error_code error;
  const auto path = std::filesystem::current_path(error);
  if (error) Fail("the working directory is gone: " + error.message());
  return path.string();
}

std::string ShellQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

std::string OwnProgram() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "poseidon" : path.string();
}

void AddClusterFlags(CLI::App& command, ClusterFlags& flags) {
  command.add_option("--hosts", flags.hosts, "Hosts and workers on each, as in a:2,b:2")->type_name("HOSTS");
  command.add_option("--hostfile", flags.hostfile, "File with a host a line: NAME, NAME:N, NAME slots=N or ID IP PORT")
      ->type_name("FILE")
      ->check(tools::InputFile());
  command.add_option("--ssh", flags.ssh, "Command that reaches another host")->type_name("COMMAND");
  command.add_option("--program", flags.program, "Path of poseidon on the other hosts; without it the path here")->type_name("FILE");
}

std::vector<Host> HostsOf(const ClusterFlags& flags) {
  if (!flags.given()) return {};
  if (!flags.hosts.empty() && !flags.hostfile.empty()) FailUsage("give --hosts or --hostfile, not both");
  Result<std::vector<Host>> hosts =
      flags.hosts.empty() ? ReadHostFile(flags.hostfile) : ParseHosts(flags.hosts);
  if (!hosts.ok()) FailUsage(hosts.status().message());
  return *std::move(hosts);
}

std::size_t Placement::OnHostOf(std::size_t member, std::size_t among) const {
  return static_cast<std::size_t>(
      std::count_if(hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(among),
                    [&](const Host& host) { return host.name == hosts[member].name; }));
}

Placement PlaceOn(std::vector<Host> hosts) {
  const std::string own = OwnName();
  Placement placement;
  for (const Host& host : hosts) {
    placement.local.push_back(IsLocal(host.name, own));
    placement.all_local &= placement.local.back();
  }
  placement.addresses.assign(hosts.size(), "127.0.0.1");
  if (!placement.all_local) {
    Result<std::vector<std::string>> found = AddressesOf(hosts, own);
    if (!found.ok()) Fail(found.status().message());
    placement.addresses = *std::move(found);
  }
  placement.hosts = std::move(hosts);
  return placement;
}

std::vector<std::string> CommandOn(const ClusterFlags& flags, const Host& host, bool local,
                                   const std::string& command, const std::vector<std::string>& ssh_options) {
  if (local) return {OwnProgram(), command};
  std::vector<std::string> argv;
  std::istringstream words(flags.ssh);
  for (std::string word; words >> word;) argv.push_back(word);
  if (argv.empty()) FailUsage("--ssh is empty, expected the command that reaches another host");
  const std::string program = flags.program.empty() ? OwnProgram() : flags.program;
  argv.insert(argv.end(), {"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"});
  argv.insert(argv.end(), ssh_options.begin(), ssh_options.end());
  // Where torch is outside the folder in which a trainer from a wheel looks for it.
  const char* const libraries = std::getenv("LD_LIBRARY_PATH");
  const std::string with = libraries != nullptr ? "env LD_LIBRARY_PATH=" + ShellQuoted(libraries) + " " : "";
  argv.insert(argv.end(), {host.name, "--",
                           "cd " + ShellQuoted(OwnFolder()) + " && exec " + with + ShellQuoted(program) + " " + command});
  return argv;
}

}  // namespace poseidon::launch
