// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/socket.h"

#include <linux/socket.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include "poseidon/transport/tcp/forked.h"

namespace poseidon::transport::tcp {
namespace {

#ifndef TCP_RTO_MAX_MS  // older headers
constexpr int TCP_RTO_MAX_MS = 44;
#endif

void SetOption(int fd, int level, int name, int value) {
  // None of these options is needed for correctness; a system without one is served all the same.
  static_cast<void>(::setsockopt(fd, level, name, &value, sizeof value));
}

int GetOption(int fd, int level, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  static_cast<void>(::getsockopt(fd, level, name, &value, &size));
  return value;
}

Result<SocketAddress> Unknown(int error) {
  return Unavailable("the address of a socket is gone (" + ErrnoText(error) + ")");
}

// The system doubles the pause between two attempts at a lost segment, to two minutes: after an outage of twenty seconds
// it can stay silent for twenty more. With shorter pauses its usual number of attempts is soon used up; the time that
// TCP_USER_TIMEOUT gives counts instead of them.
void SurviveOutages(int fd, Duration outage) {
  const auto ms = [](Duration d) {
    return static_cast<int>(std::min<std::int64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(d).count(), 1 << 30));
  };
  // Twice the outage, because the connection has to survive it (SocketOptions::outage). The bounds are those that the
  // system takes for TCP_RTO_MAX_MS, one second to two minutes.
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, ms(2 * outage));
  SetOption(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, std::clamp(ms(outage / 10), 1'000, 120'000));
}

}  // namespace

Result<SocketAddress> SocketAddress::Parse(const Address& address) {
  const std::string host = address.host.empty() ? "127.0.0.1" : address.host;
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  // Numbers only: to look up a name would block the executor, on which every connection of the process lives.
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(address.port).c_str(), &hints, &found) != 0) {
    return InvalidArgument("'" + host + "' is not a numeric address such as 10.0.0.2");
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  SocketAddress parsed;
  std::memcpy(&parsed.storage_, found->ai_addr, found->ai_addrlen);
  parsed.size_ = found->ai_addrlen;
  return parsed;
}

Result<SocketAddress> SocketAddress::OfListener(int fd) {
  SocketAddress address;
  address.size_ = sizeof address.storage_;
  auto* raw = reinterpret_cast<sockaddr*>(&address.storage_);
  if (::getsockname(fd, raw, &address.size_) != 0) return Unknown(errno);
  return address;
}

Result<SocketAddress> SocketAddress::OfPeer(int fd) {
  SocketAddress address;
  address.size_ = sizeof address.storage_;
  auto* raw = reinterpret_cast<sockaddr*>(&address.storage_);
  if (::getpeername(fd, raw, &address.size_) != 0) return Unknown(errno);
  return address;
}

Address SocketAddress::ToAddress() const {
  char host[NI_MAXHOST] = "?";
  char port[NI_MAXSERV] = "0";
  static_cast<void>(::getnameinfo(get(), size_, host, sizeof host, port, sizeof port,
                                  NI_NUMERICHOST | NI_NUMERICSERV));
  return {.host = host, .port = static_cast<std::uint16_t>(std::stoi(port))};
}

// By host and port: the raw storage also has fields that do not name the address, such as the flow label of IPv6.
bool operator==(const SocketAddress& a, const SocketAddress& b) {
  return a.ToAddress() == b.ToAddress();
}

Result<UniqueFd> OpenSocket(const SocketAddress& address, const SocketOptions& options) {
  UniqueFd fd(OpenListed([&] {
    return ::socket(address.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  }));
  if (!fd.valid()) {
    return ResourceExhausted("the system gives no socket (" + ErrnoText(errno) + ")");
  }
  SetSocketOptions(fd.get(), options);
  return fd;
}

void SetSocketOptions(int fd, const SocketOptions& options) {
  // Frames are gathered already. Nagle's algorithm (RFC 896) would hold a small one, such as a heartbeat, until the
  // peer has acknowledged what was sent before.
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (options.send_buffer_bytes > 0) {
    SetSendBuffer(fd, options.send_buffer_bytes);
  }
  if (options.receive_buffer_bytes > 0) {
    SetOption(fd, SOL_SOCKET, SO_RCVBUF, options.receive_buffer_bytes);
  }
  if (options.outage > Duration::zero()) SurviveOutages(fd, options.outage);
  if (!options.congestion_control.empty()) {
    const std::string& name = options.congestion_control;
    static_cast<void>(::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                                   static_cast<socklen_t>(name.size())));
  }
}

// Linux doubles the size it is given, for what it keeps beside the bytes; of full segments that is little. It stops at
// net.core.wmem_max, and a buffer that was set no longer grows with its connection, which may take it further
// (net.ipv4.tcp_wmem): where we get less than we want, it shall grow again.
void SetSendBuffer(int fd, int bytes) {
  SetOption(fd, SOL_SOCKET, SO_SNDBUF, bytes / 2);
  if (GetOption(fd, SOL_SOCKET, SO_SNDBUF) >= bytes / 2 * 2) return;
  SetOption(fd, SOL_SOCKET, SO_BUF_LOCK, GetOption(fd, SOL_SOCKET, SO_BUF_LOCK) & ~SOCK_SNDBUF_LOCK);
}

bool SocketCall::would_block() const { return error == EAGAIN || error == EWOULDBLOCK; }

SocketCall Receive(int fd, MutableBytes into) {
  for (;;) {
    const ssize_t n = ::recv(fd, into.data(), into.size(), 0);
    if (n >= 0) return {.bytes = static_cast<std::size_t>(n)};
    if (errno != EINTR) return {.error = errno};
  }
}

SocketCall Send(int fd, ConstBytes from) {
  for (;;) {
    const ssize_t n = ::send(fd, from.data(), from.size(), MSG_NOSIGNAL);
    if (n >= 0) return {.bytes = static_cast<std::size_t>(n)};
    if (errno != EINTR) return {.error = errno};
  }
}

namespace {

// More buffers than a frame or a batch of small ones has; the rest waits for the next call.
constexpr std::size_t kVectors = 64;

struct Vectors {
  std::array<iovec, kVectors + 1> entries;
  msghdr message{};
  std::size_t bytes = 0;

  template <typename Bytes>
  Vectors(std::span<const Bytes> buffers, std::size_t limit) {
    message.msg_iov = entries.data();
    for (const Bytes& buffer : buffers) {
      if (message.msg_iovlen == kVectors || bytes == limit) break;
      Add(buffer.first(std::min(buffer.size(), limit - bytes)));
    }
  }
  void Add(ConstBytes buffer) {
    // sendmsg takes the same struct as recvmsg but only reads what it points to.
    entries[message.msg_iovlen++] = {.iov_base = const_cast<std::byte*>(buffer.data()), .iov_len = buffer.size()};
    bytes += buffer.size();
  }
};

// Calls `move` until no signal has come between.
template <typename Move>
GatheredCall Called(const Vectors& vectors, Move&& move) {
  GatheredCall call;
  call.offered = vectors.bytes;
  for (;;) {
    const ssize_t n = move();
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      call.error = errno;
    } else {
      call.bytes = static_cast<std::size_t>(n);
    }
    return call;
  }
}

}  // namespace

GatheredCall Receive(int fd, std::span<const MutableBytes> into, std::size_t limit, MutableBytes behind) {
  Vectors vectors(into, limit);
  // Behind buffers that are not all in this call would be the wrong place.
  const bool all = vectors.message.msg_iovlen == into.size();
  if (all && !behind.empty()) vectors.Add(behind);
  return Called(vectors, [&] { return ::recvmsg(fd, &vectors.message, 0); });
}

GatheredCall Send(int fd, std::span<const ConstBytes> from, std::size_t limit) {
  Vectors vectors(from, limit);
  return Called(vectors, [&] { return ::sendmsg(fd, &vectors.message, MSG_NOSIGNAL); });
}

// TCP itself paces a socket that has such a rate (Linux 4.13), whatever queues its interface has.
void SetPace(int fd, double bytes_per_second) {
  // All bits are no limit (tcp(7), SO_MAX_PACING_RATE).
  const int rate = bytes_per_second > 0 ? static_cast<int>(std::clamp(bytes_per_second, 1e5, 2e9)) : -1;
  SetOption(fd, SOL_SOCKET, SO_MAX_PACING_RATE, rate);
}

bool EverythingArrived(int fd) {
  tcp_info state{};
  socklen_t size = sizeof state;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &state, &size) != 0) return true;
  // FIN_WAIT2: the end is acknowledged, and with it every byte before. CLOSE: there is no connection any more.
  return state.tcpi_state == TCP_FIN_WAIT2 || state.tcpi_state == TCP_CLOSE;
}

bool Discard(int fd) {
  // A peer that goes on sending must not hold the executor: 16 calls of 16 KiB are about a turn (kBytesPerTurn).
  constexpr int kCalls = 16;
  std::array<std::byte, 16'384> bin;
  for (int i = 0; i < kCalls; ++i) {
    const SocketCall call = Receive(fd, bin);
    if (call.would_block()) return true;
    if (call.error != 0 || call.bytes == 0) return false;
  }
  return true;
}

Status ConnectionFailure(const std::string& peer, int error) {
  const auto failure = [&](StatusCode code, const std::string& what) {
    return Status(code, "the connection to " + peer + " " + what, StatusScope::kConnection);
  };
  switch (error) {
    case ECONNRESET:
    case EPIPE:
      return failure(StatusCode::kUnavailable, "was reset");
    case ETIMEDOUT:
      return failure(StatusCode::kUnavailable, "timed out");
    case EBADMSG:
      return failure(StatusCode::kDataLoss, "carried bytes that fail their check");
    default:
      return failure(StatusCode::kUnavailable, "failed (" + ErrnoText(error) + ")");
  }
}

Status ConnectionEnded(const std::string& peer) {
  return {StatusCode::kUnavailable, peer + " ended the connection", StatusScope::kConnection};
}

}  // namespace poseidon::transport::tcp
