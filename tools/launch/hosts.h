// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_HOSTS_H_
#define POSEIDON_TOOLS_LAUNCH_HOSTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "poseidon/base/result.h"

namespace poseidon::launch {

// A machine and how many workers run there.
struct Host {
  std::string name;        // as ssh knows it
  std::uint16_t slots = 1;
  std::uint16_t port = 0;  // where its first member listens; 0: any
  friend bool operator==(const Host&, const Host&) = default;
};

// "a:2,b:2": names with slots (default 1). kInvalidArgument naming the entry that is wrong.
Result<std::vector<Host>> ParseHosts(std::string_view text);

// A host file: one host a line, "NAME", "NAME slots=N", "NAME:N", or the old form "ID IP PORT"
// whose ids count from 0; '#' begins a comment. Errors name file and line.
Result<std::vector<Host>> ReadHostFile(const std::string& path);

// This machine's name; "localhost" where it has none.
std::string OwnName();

// True for names of this machine: localhost, 127.0.0.1, ::1, its own host name.
bool IsLocal(const std::string& name, const std::string& own_name);

// The numeric address of every host, where its members listen and the others reach them: what its
// name means here. This machine, where its own name means loopback (as many systems have it) and
// other hosts are on the network, gets its address towards them. kInvalidArgument for a name
// without address, and for another host on loopback that the rest cannot reach.
Result<std::vector<std::string>> AddressesOf(const std::vector<Host>& hosts,
                                             const std::string& own_name);

// The host of each of `count` members: slots filled host by host. kInvalidArgument when there are
// fewer slots than members.
Result<std::vector<Host>> PlaceMembers(const std::vector<Host>& hosts, std::size_t count);

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_HOSTS_H_
