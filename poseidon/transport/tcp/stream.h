// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_STREAM_H_
#define POSEIDON_TRANSPORT_TCP_STREAM_H_

#include <cstddef>
#include <memory>
#include <string>

#include "poseidon/transport/tcp/codec.h"
#include "poseidon/transport/tcp/descriptor.h"
#include "poseidon/transport/transport.h"

namespace poseidon::transport::tcp {

// A connected socket, the codec of its bytes, and who is at the other end.
struct Link {
  std::unique_ptr<Descriptor> socket;
  std::unique_ptr<Codec> codec;
  std::string peer;
};

// Bytes that one connection may move in one direction before the others have their turn: a frame of
// the default size and the headers around it.
inline constexpr std::size_t kBytesPerTurn = std::size_t{260} << 10;

// The connection over a link whose codec has authenticated the peer.
std::unique_ptr<Connection> NewConnection(IoExecutor& executor, Link link);

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_STREAM_H_
