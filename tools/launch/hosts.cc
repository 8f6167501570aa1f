// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/hosts.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <charconv>
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

enum class Reach { kUnknown, kLoopback, kNetwork };

// Where connections to `name` go from here; unknown for names that only ssh knows.
Reach ReachOf(const std::string& name) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0 || found == nullptr) {
    return Reach::kUnknown;
  }
  const auto* address = reinterpret_cast<const sockaddr_in*>(found->ai_addr);
  const bool loopback = (ntohl(address->sin_addr.s_addr) >> 24) == 127;
  freeaddrinfo(found);
  return loopback ? Reach::kLoopback : Reach::kNetwork;
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

bool IsLocal(const std::string& name, const std::string& own_name) {
  return name == "localhost" || name == "127.0.0.1" || name == "::1" || name == own_name;
}

Status CheckReachable(const std::vector<Host>& hosts) {
  const Host* loopback = nullptr;
  const Host* network = nullptr;
  for (const Host& host : hosts) {
    const Reach reach = ReachOf(host.name);
    if (reach == Reach::kLoopback && loopback == nullptr) loopback = &host;
    if (reach == Reach::kNetwork && network == nullptr) network = &host;
  }
  if (loopback == nullptr || network == nullptr) return OkStatus();
  return InvalidArgument("host " + loopback->name + " is a loopback address, which host " +
                         network->name +
                         " cannot reach; name it by its address in the network");
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
