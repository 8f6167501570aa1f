// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_SOCKET_H_
#define POSEIDON_TRANSPORT_TCP_SOCKET_H_

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "poseidon/base/bytes.h"
#include "poseidon/base/executor.h"
#include "poseidon/base/result.h"
#include "poseidon/transport/tcp/descriptor.h"
#include "poseidon/transport/transport.h"

// Wraps the system's socket calls. Every descriptor is non-blocking and closed on exec.
namespace poseidon::transport::tcp {

struct SocketOptions {
  // Congestion control of each socket; one that the system lacks leaves its default.
  std::string congestion_control = "cubic";
  // Bytes of the stream; 0 leaves the system's choice. A small send buffer is what lets an urgent
  // gradient overtake: bytes in the kernel can no longer be reordered.
  int send_buffer_bytes = 128 * 1024;
  int receive_buffer_bytes = 0;
  // How long an outage a connection has to survive: the system gives up later than that, and, where it has an
  // option for it (Linux 6.15), tries again at least ten times in it, instead of ever more rarely. 0 leaves the
  // system's choice.
  Duration outage{0};
};

// A numeric address as the system wants it.
class SocketAddress {
 public:
  // An empty host means 127.0.0.1. kInvalidArgument when the host is a name.
  static Result<SocketAddress> Parse(const Address& address);
  static Result<SocketAddress> OfListener(int fd);
  static Result<SocketAddress> OfPeer(int fd);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }
  Address ToAddress() const;
  friend bool operator==(const SocketAddress& a, const SocketAddress& b);

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

Result<UniqueFd> OpenSocket(const SocketAddress& address, const SocketOptions& options);
// For sockets that came from accept and do not inherit everything.
void SetSocketOptions(int fd, const SocketOptions& options);
// The send buffer alone, in bytes of the stream; where the system sets less, it grows with the connection.
void SetSendBuffer(int fd, int bytes);

// The result of a call on a socket: `bytes` moved, or an errno (EAGAIN: it would block).
struct SocketCall {
  std::size_t bytes = 0;
  int error = 0;
  bool would_block() const;
};
SocketCall Receive(int fd, MutableBytes into);
SocketCall Send(int fd, ConstBytes from);

// The same with many buffers in order, as far as `limit` and one call reach: `offered` bytes.
struct GatheredCall : SocketCall {
  std::size_t offered = 0;
};
// Whether a read of `bytes` that had room for `offered` has emptied the system's buffer, and still has when its bytes have been
// dealt with: that takes long enough for more to come where they are many.
inline bool LeavesNothing(std::size_t bytes, std::size_t offered) {
  return bytes < offered && bytes <= std::size_t{16} << 10;
}
// What arrives beyond the limit lands in `behind`.
GatheredCall Receive(int fd, std::span<const MutableBytes> into, std::size_t limit, MutableBytes behind = {});
GatheredCall Send(int fd, std::span<const ConstBytes> from, std::size_t limit);

// From now on the system spreads what it sends over time, at most at this rate; 0: at none.
void SetPace(int fd, double bytes_per_second);

// After the end was sent (shutdown): whether the peer's system has it and everything before it.
bool EverythingArrived(int fd);
// Reads and drops what has arrived, so that closing sends an end and not a reset. True when more
// may come, false at the end of the stream or a failure.
bool Discard(int fd);

// "connection to 10.0.0.2:4711 was reset" and the like, scope connection.
Status ConnectionFailure(const std::string& peer, int error);
Status ConnectionEnded(const std::string& peer);

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_SOCKET_H_
