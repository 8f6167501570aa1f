// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLACE_ADDRESS_H_
#define POSEIDON_PLACE_ADDRESS_H_

#include <functional>
#include <string>

#include "poseidon/base/result.h"
#include "poseidon/place/place.h"

// From hosts as they were said to the numeric addresses that the core wants.
namespace poseidon::place {

// What this machine knows of names and ways.
struct Resolver {
  // The numeric address of a host's name, of IPv4 where there is one; an address stays what it is. kNotFound.
  std::function<Result<std::string>(const std::string& host)> address_of;
  // The address of this machine from which `peer`, which is numeric, is reached. kUnavailable where no way leads there.
  std::function<Result<std::string>(const std::string& peer)> own_address_towards;
  std::string own_name;
};

// The system's. May ask a name server, which blocks; nothing is sent to learn an own address. Thread: any.
Resolver SystemResolver();

// Makes rank 0's host in `place` a numeric address that all processes reach, and sets where this process listens, as far as
// that is known before they meet. Changes nothing in a place that has been located. kNotFound, kUnavailable with the host.
Status Locate(const Resolver& resolver, Place* place);

// Rank 0's numeric address becomes known; with it where this process listens. kUnavailable with the host.
Status MeetAt(const std::string& coordinator, int port, const Resolver& resolver, Place* place);

// Returns the address at which other machines may call this one: its name's, or where that means loopback, the one from
// which the rest of the world is reached. kUnavailable where it has none.
Result<std::string> NetworkAddress(const Resolver& resolver);

}  // namespace poseidon::place

#endif  // POSEIDON_PLACE_ADDRESS_H_
