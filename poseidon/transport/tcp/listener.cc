// SPDX-License-Identifier: Apache-2.0
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <list>
#include <utility>

#include "poseidon/transport/tcp/endpoint.h"
#include "poseidon/transport/tcp/forked.h"
#include "poseidon/transport/tcp/introduction.h"
#include "poseidon/transport/tcp/socket.h"
#include "poseidon/transport/tcp/stream.h"

namespace poseidon::transport::tcp {
namespace {

// Connections taken from the system per turn, so that a flood leaves turns to those before it.
constexpr int kAcceptsPerTurn = 16;
// The time that a stranger has at least before newer ones may push it out: many round trips, and little enough
// that a thousand idle connections are through in a third of a second.
constexpr Duration kLeastStay = std::chrono::milliseconds(20);

bool Exhausted(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

// Holds strangers from accept until they are members or turned away. Shared with the tasks that
// wait for its sockets.
class Door : public std::enable_shared_from_this<Door> {
 public:
  Door(std::shared_ptr<const Endpoint> endpoint, Address address, AcceptCallback accept)
      : endpoint_(std::move(endpoint)), address_(std::move(address)), accept_(std::move(accept)) {}

  void Open(std::unique_ptr<Descriptor> socket) {
    socket_ = std::move(socket);
    Wait();
  }
  void Close();
  const Address& address() const { return address_; }
  const StrangerCounters& counters() const { return counters_; }

 private:
  struct Stranger {
    std::shared_ptr<Introduction> introduction;
    std::string peer;
    TimePoint arrived;
    TimerId deadline = 0;
  };
  using Place = std::list<Stranger>::iterator;

  void Wait() {
    socket_->WhenReadable([self = shared_from_this()] { self->Accept(); });
  }
  void Accept();
  void Pause(Duration time);
  void Resume();
  bool Full() const {
    return strangers_.size() >= std::max<std::size_t>(endpoint_->options().max_strangers, 1);
  }
  // How long the next one must wait outside, because all places are taken by others as new.
  Duration TimeToWait() const;
  // Of the oldest stranger.
  Duration Stay() const { return endpoint_->executor().now() - strangers_.front().arrived; }
  void Welcome(UniqueFd fd);
  void Decide(Place stranger, Handshake::Outcome outcome);
  void TurnAway(Place stranger, std::uint64_t& counter, std::string_view reason);
  void LogTurnedAway(const std::string& peer, std::string_view reason) const;

  const std::shared_ptr<const Endpoint> endpoint_;
  const Address address_;
  const AcceptCallback accept_;
  std::unique_ptr<Descriptor> socket_;  // none once closed
  std::list<Stranger> strangers_;       // oldest first
  TimerId pause_ = 0;                   // not 0 while accepting pauses
  StrangerCounters counters_;
};

void Door::Close() {
  socket_.reset();
  endpoint_->executor().Cancel(pause_);
  while (!strangers_.empty()) {
    endpoint_->executor().Cancel(strangers_.front().deadline);
    strangers_.front().introduction->Drop();
    strangers_.pop_front();
  }
}

void Door::Accept() {
  if (!socket_) return;
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    if (const Duration wait = TimeToWait(); wait > Duration::zero()) return Pause(wait);
    UniqueFd fd(OpenListed([&] {
      return ::accept4(socket_->fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    }));
    if (fd.valid()) {
      Welcome(std::move(fd));
    } else if (Exhausted(errno)) {
      // The oldest stranger gives its descriptor back: a crowd that has taken them all would keep members out.
      if (!strangers_.empty() && Stay() >= kLeastStay) {
        TurnAway(strangers_.begin(), counters_.crowded_out, "the system has no descriptor left");
      }
      // Not Wait: the connection is still in the queue, so that the socket is readable at once and this would spin.
      return Pause(kLeastStay);
    } else if (errno == EAGAIN) {
      return Wait();
    }  // else that one connection has failed already; the next may be fine
  }
  endpoint_->executor().Post([self = shared_from_this()] { self->Accept(); });
}

void Door::Pause(Duration time) {
  pause_ = endpoint_->executor().PostAfter(time, [self = shared_from_this()] {
    self->pause_ = 0;
    self->Accept();
  });
}

void Door::Resume() {
  if (pause_ == 0 || !endpoint_->executor().Cancel(pause_)) return;
  pause_ = 0;
  endpoint_->executor().Post([self = shared_from_this()] { self->Accept(); });
}

Duration Door::TimeToWait() const {
  return Full() ? std::max(kLeastStay - Stay(), Duration::zero()) : Duration::zero();
}

void Door::Welcome(UniqueFd fd) {
  const TcpOptions& options = endpoint_->options();
  SetSocketOptions(fd.get(), options.socket);
  const Result<SocketAddress> address = SocketAddress::OfPeer(fd.get());
  if (!address.ok()) {
    ++counters_.went_away;
    return;
  }
  // The handshake takes the number, because Watch takes the descriptor.
  const int number = fd.get();
  Result<std::unique_ptr<Descriptor>> socket =
      Descriptor::Watch(endpoint_->executor(), std::move(fd));
  Result<std::unique_ptr<Handshake>> handshake = endpoint_->NewHandshake(number, HelloRole::kServer);
  if (!socket.ok() || !handshake.ok()) {
    ++counters_.crowded_out;
    return;
  }
  // Only now, when the new one has all it needs: else its failure would have cost another stranger its place.
  if (Full()) {
    TurnAway(strangers_.begin(), counters_.crowded_out, "too many strangers came after it");
  }
  const Place stranger = strangers_.emplace(strangers_.end());
  stranger->arrived = endpoint_->executor().now();
  stranger->peer = address.value().ToAddress().ToString();
  stranger->introduction =
      std::make_shared<Introduction>(endpoint_->executor(), *std::move(socket), *std::move(handshake), stranger->peer);
  // Both tasks are cancelled before the stranger leaves its place.
  stranger->deadline = endpoint_->executor().PostAfter(
      options.authentication_deadline, [self = shared_from_this(), stranger] {
        self->TurnAway(stranger, self->counters_.too_slow, "it did not authenticate in time");
      });
  stranger->introduction->Start(
      [self = shared_from_this(), stranger](Handshake::Outcome o) { self->Decide(stranger, o); });
}

void Door::Decide(Place stranger, Handshake::Outcome outcome) {
  switch (outcome) {
    case Handshake::Outcome::kAuthenticated: {
      endpoint_->executor().Cancel(stranger->deadline);
      Link link = stranger->introduction->TakeLink();
      // Its place is free before the callback runs, and the callback comes last: it may destroy the listener.
      strangers_.erase(stranger);
      Resume();
      accept_(NewConnection(endpoint_->executor(), std::move(link)));
      return;
    }
    case Handshake::Outcome::kVersionsDiffer:
      return TurnAway(stranger, counters_.versions_differ, "it speaks other versions");
    case Handshake::Outcome::kEnded:
      return TurnAway(stranger, counters_.went_away, "it went away without authenticating");
    default:
      return TurnAway(stranger, counters_.refused, "it does not hold this job's token");
  }
}

void Door::TurnAway(Place stranger, std::uint64_t& counter, std::string_view reason) {
  ++counter;
  LogTurnedAway(stranger->peer, reason);
  endpoint_->executor().Cancel(stranger->deadline);
  stranger->introduction->Drop();
  strangers_.erase(stranger);
  Resume();
}

// The 1st, 2nd, 4th, 8th ... of them: a flood of strangers must not become a flood of lines.
void Door::LogTurnedAway(const std::string& peer, std::string_view reason) const {
  LogSink* log = endpoint_->options().log;
  if (log == nullptr || !std::has_single_bit(counters_.total())) return;
  log->Log(LogLevel::kWarning, address_.ToString() + " turned away a stranger at " + peer + ": " +
                                   std::string(reason) + " (" + std::to_string(counters_.total()) +
                                   " so far)");
}

class Doorkeeper final : public TcpListener {
 public:
  explicit Doorkeeper(std::shared_ptr<Door> door) : door_(std::move(door)) {}
  ~Doorkeeper() override { door_->Close(); }
  const Address& address() const override { return door_->address(); }
  const StrangerCounters& strangers() const override { return door_->counters(); }

 private:
  const std::shared_ptr<Door> door_;
};

// A socket that listens at exactly this address and port.
Result<UniqueFd> ListenAt(const Address& address, const SocketOptions& options) {
  POSEIDON_ASSIGN_OR_RETURN(const SocketAddress where, SocketAddress::Parse(address));
  POSEIDON_ASSIGN_OR_RETURN(UniqueFd fd, OpenSocket(where, options));
  // A port whose last connections are only waiting out their time is free for the next job.
  const int yes = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(fd.get(), where.get(), where.size()) == 0 && ::listen(fd.get(), SOMAXCONN) == 0) {
    return fd;
  }
  const std::string at = where.ToAddress().ToString();
  switch (errno) {
    case EADDRINUSE:
      return FailedPrecondition("cannot listen at " + at + ": the port is in use");
    case EADDRNOTAVAIL:
      return NotFound("cannot listen at " + at + ": this host does not have that address");
    case EACCES:
      return PermissionDenied("cannot listen at " + at + ": it is not permitted");
    default:
      return Unavailable("cannot listen at " + at + " (" + ErrnoText(errno) + ")");
  }
}

Result<UniqueFd> ListenInRange(Address address, PortRange ports, const SocketOptions& options) {
  if (address.port != 0 || ports.last == 0) return ListenAt(address, options);
  for (int port = ports.first; port <= ports.last; ++port) {
    address.port = static_cast<std::uint16_t>(port);
    Result<UniqueFd> fd = ListenAt(address, options);
    // Only a port in use makes another one worth a try: a foreign address fails at every port.
    if (fd.ok() || fd.status().code() != StatusCode::kFailedPrecondition) return fd;
  }
  return FailedPrecondition("cannot listen at " + address.host + ": all ports from " +
                            std::to_string(ports.first) + " to " + std::to_string(ports.last) +
                            " are in use");
}

}  // namespace

Result<std::unique_ptr<TcpListener>> StartListener(std::shared_ptr<const Endpoint> endpoint,
                                                   const Address& address, AcceptCallback accept) {
  const TcpOptions& options = endpoint->options();
  POSEIDON_ASSIGN_OR_RETURN(UniqueFd fd, ListenInRange(address, options.ports, options.socket));
  POSEIDON_ASSIGN_OR_RETURN(const SocketAddress chosen, SocketAddress::OfListener(fd.get()));
  POSEIDON_ASSIGN_OR_RETURN(std::unique_ptr<Descriptor> socket,
                            Descriptor::Watch(endpoint->executor(), std::move(fd)));
  auto door = std::make_shared<Door>(std::move(endpoint), chosen.ToAddress(), std::move(accept));
  door->Open(std::move(socket));
  return std::unique_ptr<TcpListener>(std::make_unique<Doorkeeper>(std::move(door)));
}

}  // namespace poseidon::transport::tcp
