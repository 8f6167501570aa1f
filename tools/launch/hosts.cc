// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/hosts.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace poseidon::launch {
namespace {

std::optional<std::uint16_t> Number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() ||
      value > std::numeric_limits<std::uint16_t>::max()) {
    return std::nullopt;
  }
  return static_cast<std::uint16_t>(value);
}

// "name" or "name:slots". A name never begins with '-': it would be an option of ssh.
Result<Host> ParseHost(std::string_view entry) {
  const std::size_t colon = entry.rfind(':');
  Host host;
  host.name = std::string(entry.substr(0, colon));
  if (host.name.empty() || host.name.front() == '-') {
    return InvalidArgument("host '" + std::string(entry) + "' is not a name, expected NAME:SLOTS");
  }
  if (colon == std::string_view::npos) return host;
  const std::optional<std::uint16_t> slots = Number(entry.substr(colon + 1));
  if (!slots || *slots == 0) {
    return InvalidArgument("host '" + std::string(entry) +
                           "' has no number of workers behind the colon, expected NAME:SLOTS");
  }
  host.slots = *slots;
  return host;
}

Result<Host> ParseLine(const std::vector<std::string>& words, std::size_t hosts_so_far) {
  if (words.size() == 3 && Number(words[0]) && Number(words[2])) {
    if (*Number(words[0]) != hosts_so_far) {
      return InvalidArgument("id " + words[0] + " is out of order, expected id " +
                             std::to_string(hosts_so_far));
    }
    return Host{words[1], 1, *Number(words[2])};
  }
  if (words.size() == 2 && words[1].starts_with("slots=")) {
    const auto slots = Number(std::string_view(words[1]).substr(6));
    if (slots && *slots > 0) return Host{words[0], *slots, 0};
  }
  if (words.size() == 1) return ParseHost(words[0]);
  return InvalidArgument("expected 'NAME', 'NAME:SLOTS', 'NAME slots=N' or 'ID IP PORT'");
}

std::string Numeric(const in_addr& address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &address, text.data(), text.size());
  return text.data();
}

bool IsLoopback(const in_addr& address) { return (ntohl(address.s_addr) >> 24) == 127; }

Result<in_addr> Resolve(const std::string& name) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(name.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return InvalidArgument("host '" + name + "' has no IPv4 address here (" + gai_strerror(error) +
                           "); name it by its address");
  }
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof(address));
  freeaddrinfo(found);
  return address.sin_addr;
}

// The address with which this machine reaches `peer`; nothing is sent to learn it.
Result<in_addr> AddressTowards(const in_addr& peer) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr = peer;
  address.sin_port = htons(9);
  socklen_t size = sizeof(address);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const bool known = fd >= 0 && connect(fd, generic, size) == 0 &&
                     getsockname(fd, generic, &size) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (known) return address.sin_addr;
  return Unavailable("there is no way to host " + Numeric(peer) + ": " + ErrnoText(error));
}

}  // namespace

Result<std::vector<Host>> ParseHosts(std::string_view text) {
  std::vector<Host> hosts;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    POSEIDON_ASSIGN_OR_RETURN(Host host, ParseHost(text.substr(0, comma)));
    hosts.push_back(std::move(host));
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  if (hosts.empty()) return InvalidArgument("the list of hosts is empty, expected a:2,b:2");
  return hosts;
}

Result<std::vector<Host>> ReadHostFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return NotFound("host file " + path + " cannot be read");
  std::vector<Host> hosts;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    line = line.substr(0, line.find('#'));
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    if (words.empty()) continue;
    Result<Host> host = ParseLine(words, hosts.size());
    if (!host.ok()) return host.status().WithPrefix(path + ":" + std::to_string(number));
    hosts.push_back(*std::move(host));
  }
  if (hosts.empty()) return InvalidArgument("host file " + path + " names no host");
  return hosts;
}

std::string OwnName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

bool IsLocal(const std::string& name, const std::string& own_name) {
  return name == "localhost" || name == "127.0.0.1" || name == "::1" || name == own_name;
}

Result<std::vector<std::string>> AddressesOf(const std::vector<Host>& hosts,
                                             const std::string& own_name) {
  std::vector<in_addr> resolved;
  std::optional<in_addr> network;  // one that is not loopback
  for (const Host& host : hosts) {
    POSEIDON_ASSIGN_OR_RETURN(const in_addr address, Resolve(host.name));
    if (!IsLoopback(address)) network = address;
    resolved.push_back(address);
  }
  std::vector<std::string> addresses;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (network && IsLoopback(resolved[i])) {
      if (!IsLocal(hosts[i].name, own_name)) {
        return InvalidArgument("host '" + hosts[i].name + "' is the loopback address " +
                               Numeric(resolved[i]) + " here, which host " + Numeric(*network) +
                               " cannot reach; name it by its address in the network");
      }
      POSEIDON_ASSIGN_OR_RETURN(resolved[i], AddressTowards(*network));
    }
    addresses.push_back(Numeric(resolved[i]));
  }
  return addresses;
}

Result<std::vector<Host>> PlaceMembers(const std::vector<Host>& hosts, std::size_t count) {
  std::vector<Host> placed;
  for (const Host& host : hosts) {
    for (std::uint16_t slot = 0; slot < host.slots && placed.size() < count; ++slot) {
      Host one = host;
      if (one.port != 0) one.port = static_cast<std::uint16_t>(one.port + slot);
      placed.push_back(std::move(one));
    }
  }
  if (placed.size() < count) {
    return InvalidArgument("the hosts have " + std::to_string(placed.size()) + " slots for " +
                           std::to_string(count) + " workers");
  }
  return placed;
}

}  // namespace poseidon::launch
