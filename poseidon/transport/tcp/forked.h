// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_FORKED_H_
#define POSEIDON_TRANSPORT_TCP_FORKED_H_

#include <cstdint>
#include <functional>

// Keeps a forked process from inheriting our connections. A peer learns of a killed process because the system
// ends its connections, and the system ends a connection when the last process that holds its descriptor is
// gone. A program that forks (a data loader with workers) would keep the
// connections of its dead parent open. So the descriptors of this folder are listed, and a child closes its
// copies of them before fork returns in it.
//
// This list is the one global of the core: the system's handlers of fork (pthread_atfork) take no argument.
// Thread: any. Not seen: children of a bare clone(), and of vfork, which have to exec at once; exec closes.
namespace poseidon::transport::tcp {

// Runs `open`, which returns a new descriptor or -1 with errno, and lists what it returns; no fork comes between.
int OpenListed(const std::function<int()>& open);
// Takes the descriptor off the list, if it is on it, and runs `close`, which closes it; no fork comes between.
// `close` neither opens nor closes listed descriptors.
void CloseListed(int fd, const std::function<void()>& close);

// How often this process has come out of a fork: what began under another number belongs to a parent, whose
// threads are not here.
std::uint64_t ForkGeneration();

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_FORKED_H_
