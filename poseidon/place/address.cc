// SPDX-License-Identifier: Apache-2.0
#include "poseidon/place/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>

namespace poseidon::place {
namespace {

constexpr const char* kHere = "127.0.0.1";
constexpr const char* kElsewhere = "192.0.2.1";  // of nobody (RFC 5737): the way there is the way to other machines

bool IsLoopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> Lookup(const std::string& host, const char* port, int type) {
  addrinfo hints{};
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port, &hints, &found);
  if (error == 0) return Addresses(found);
  return NotFound("host " + host + " has no address: " +
                  (error == EAI_SYSTEM ? ErrnoText(errno) : std::string(gai_strerror(error))));
}

std::string NumericText(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

Result<std::string> SystemAddressOf(const std::string& host) {
  POSEIDON_ASSIGN_OR_RETURN(const Addresses found, Lookup(host, nullptr, SOCK_STREAM));
  const addrinfo* chosen = found.get();
  // A name may mean addresses of both kinds, in an order that differs between machines. All processes choose alike.
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    if (one->ai_family != AF_INET) continue;
    chosen = one;
    break;
  }
  return NumericText(chosen->ai_addr, chosen->ai_addrlen);
}

Result<std::string> SystemAddressTowards(const std::string& peer) {
  POSEIDON_ASSIGN_OR_RETURN(const Addresses found, Lookup(peer, "9", SOCK_DGRAM));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  auto* const generic = reinterpret_cast<sockaddr*>(&own);
  const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool known = fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 && getsockname(fd, generic, &size) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (known) return NumericText(generic, size);
  return Unavailable("rank 0's host " + peer + " cannot be reached: " + ErrnoText(error));
}

// Rank 0's address for all processes. A machine may know its own name as one of its loopback addresses (Debian writes
// 127.0.1.1), at which nothing listens and which other machines cannot call. What is an address already, and 127.0.0.1, is
// what its user wanted.
Result<std::string> ReachableAddress(const std::string& host, bool all_here, const Resolver& resolver) {
  POSEIDON_ASSIGN_OR_RETURN(const std::string address, resolver.address_of(host));
  if (address == host || address == kHere || !address.starts_with("127.")) return address;
  if (all_here) return std::string(kHere);
  const Result<std::string> own = resolver.own_address_towards(kElsewhere);
  return own.ok() ? *own : std::string(kHere);  // without a network all processes are here
}

}  // namespace

Resolver SystemResolver() {
  std::array<char, 256> name{};
  const bool named = gethostname(name.data(), name.size() - 1) == 0;
  return {SystemAddressOf, SystemAddressTowards, named ? name.data() : "localhost"};
}

Status Locate(const Resolver& resolver, Place* place) {
  const bool all_here = !place->local || place->one_host();
  if (place->coordinator.empty() && !all_here) return OkStatus();
  const std::string host = place->coordinator.empty() ? kHere : place->coordinator;
  POSEIDON_ASSIGN_OR_RETURN(const std::string address, ReachableAddress(host, all_here, resolver));
  return MeetAt(address, place->port, resolver, place);
}

Status MeetAt(const std::string& coordinator, int port, const Resolver& resolver, Place* place) {
  if (place->listen.empty()) {
    POSEIDON_ASSIGN_OR_RETURN(place->listen, resolver.own_address_towards(coordinator));
  }
  place->coordinator = coordinator;
  place->port = port;
  return OkStatus();
}

Result<std::string> NetworkAddress(const Resolver& resolver) {
  const Result<std::string> named = resolver.address_of(resolver.own_name);
  if (named.ok() && !IsLoopback(*named)) return *named;
  const Result<std::string> own = resolver.own_address_towards(kElsewhere);
  if (own.ok() && !IsLoopback(*own)) return *own;
  return Unavailable("neither the name of this machine, " + resolver.own_name +
                     ", nor its way to others tells an address at which they can call it, expected MASTER_ADDR or "
                     "coordinator= to name one");
}

}  // namespace poseidon::place
