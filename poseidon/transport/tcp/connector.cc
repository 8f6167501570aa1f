// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/transport/tcp/endpoint.h"
#include "poseidon/transport/tcp/introduction.h"
#include "poseidon/transport/tcp/socket.h"
#include "poseidon/transport/tcp/stream.h"

namespace poseidon::transport::tcp {
namespace {

// Pauses between attempts double from the first to the last.
constexpr Duration kFirstPause = std::chrono::milliseconds(5);
constexpr Duration kLastPause = std::chrono::milliseconds(250);

std::string Seconds(Duration d) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", ToSeconds(d));
  return text;
}

class Connector final : public Connecting, public std::enable_shared_from_this<Connector> {
 public:
  Connector(std::shared_ptr<const Endpoint> endpoint, const Address& address, Duration timeout,
            ConnectCompletion done)
      : endpoint_(std::move(endpoint)),
        timeout_(timeout),
        name_(address.ToString()),
        done_(std::move(done)) {}

  void Start(const Address& address);
  void Abandon(const Status& reason) override { End(reason); }

 private:
  // The event that the attempt under way waits for; it decides the message of a timeout.
  enum class Stage { kNobodyListens, kConnecting, kAuthenticating, kOver };

  void Attempt();
  void Established();
  void Retry(Stage stage);
  void Introduced(Handshake::Outcome outcome);
  Status TimedOut() const;
  Status CannotConnect(int error) const;
  void End(Result<std::unique_ptr<Connection>> result);

  const std::shared_ptr<const Endpoint> endpoint_;
  const Duration timeout_;
  const std::string name_;
  ConnectCompletion done_;
  SocketAddress address_;
  Stage stage_ = Stage::kConnecting;
  Duration pause_ = kFirstPause;
  TimerId deadline_ = 0;
  TimerId retry_ = 0;
  std::unique_ptr<Descriptor> socket_;          // while connecting
  std::shared_ptr<Introduction> introduction_;  // while authenticating
};

void Connector::Start(const Address& address) {
  const Result<SocketAddress> parsed = SocketAddress::Parse(address);
  if (!parsed.ok()) return End(parsed.status());
  address_ = parsed.value();
  deadline_ = endpoint_->executor().PostAfter(
      timeout_, [self = shared_from_this()] { self->End(self->TimedOut()); });
  Attempt();
}

void Connector::Attempt() {
  if (stage_ == Stage::kOver) return;
  stage_ = Stage::kConnecting;
  Result<UniqueFd> fd = OpenSocket(address_, endpoint_->options().socket);
  if (!fd.ok()) return End(fd.status());
  const int outcome = ::connect(fd->get(), address_.get(), address_.size());
  const int error = outcome == 0 ? 0 : errno;
  // Members start in any order, so that the peer may not listen yet (Context::Connect).
  if (error == ECONNREFUSED) return Retry(Stage::kNobodyListens);
  if (error != 0 && error != EINPROGRESS) return End(CannotConnect(error));
  Result<std::unique_ptr<Descriptor>> socket =
      Descriptor::Watch(endpoint_->executor(), std::move(*fd));
  if (!socket.ok()) return End(socket.status());
  socket_ = std::move(*socket);
  socket_->WhenWritable([self = shared_from_this()] { self->Established(); });
}

void Connector::Established() {
  if (stage_ == Stage::kOver) return;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket_->fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  // While nobody listens at a port of the system's choice, a socket can be given that very port and
  // connect to itself.
  const Result<SocketAddress> self = SocketAddress::OfListener(socket_->fd());
  if (error == 0 && self.ok() && self.value() == address_) error = ECONNREFUSED;
  if (error == ECONNREFUSED) return Retry(Stage::kNobodyListens);
  if (error != 0) return End(CannotConnect(error));
  Result<std::unique_ptr<Handshake>> handshake = endpoint_->NewHandshake(socket_->fd(), HelloRole::kClient);
  if (!handshake.ok()) return End(handshake.status());
  stage_ = Stage::kAuthenticating;
  introduction_ =
      std::make_shared<Introduction>(endpoint_->executor(), std::move(socket_), *std::move(handshake), name_);
  introduction_->Start(
      [self = shared_from_this()](Handshake::Outcome outcome) { self->Introduced(outcome); });
}

void Connector::Retry(Stage stage) {
  stage_ = stage;
  socket_.reset();
  if (introduction_) introduction_->Drop();
  introduction_.reset();
  retry_ =
      endpoint_->executor().PostAfter(pause_, [self = shared_from_this()] { self->Attempt(); });
  pause_ = std::min(2 * pause_, kLastPause);
}

void Connector::Introduced(Handshake::Outcome outcome) {
  switch (outcome) {
    case Handshake::Outcome::kAuthenticated:
      return End(NewConnection(endpoint_->executor(), introduction_->TakeLink()));
    case Handshake::Outcome::kVersionsDiffer:
      return End(FailedPrecondition("the Poseidon at " + name_ +
                                    " speaks other protocol versions than this one (" +
                                    std::to_string(endpoint_->options().versions.min) + " to " +
                                    std::to_string(endpoint_->options().versions.max) + ")"));
    case Handshake::Outcome::kEnded:
      // Not one byte came: the listener is closing, or had too many connections in their handshake.
      if (!introduction_->heard_anything()) return Retry(Stage::kAuthenticating);
      [[fallthrough]];
    default:
      return End(PermissionDenied("authentication with " + name_ +
                                  " failed: the token or the wire mode differs"));
  }
}

Status Connector::TimedOut() const {
  switch (stage_) {
    case Stage::kNobodyListens:
      return {
          StatusCode::kDeadlineExceeded,
          "nothing listens at " + name_ + " (connection refused for " + Seconds(timeout_) + ")"};
    case Stage::kAuthenticating:
      return {
          StatusCode::kDeadlineExceeded,
          name_ + " accepted a connection but did not authenticate within " + Seconds(timeout_)};
    default:
      return {StatusCode::kDeadlineExceeded, name_ + " did not answer within " + Seconds(timeout_)};
  }
}

Status Connector::CannotConnect(int error) const {
  switch (error) {
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
      return Unavailable("host " + name_ + " cannot be reached (" + ErrnoText(error) + ")");
    case ETIMEDOUT:
      return {StatusCode::kDeadlineExceeded, name_ + " did not answer (" + ErrnoText(error) + ")"};
    default:
      return Unavailable("cannot connect to " + name_ + " (" + ErrnoText(error) + ")");
  }
}

void Connector::End(Result<std::unique_ptr<Connection>> result) {
  // The deadline, the outcome of an attempt and Abandon may each come after another of them: the first one counts.
  if (stage_ == Stage::kOver) return;
  stage_ = Stage::kOver;
  endpoint_->executor().Cancel(deadline_);
  endpoint_->executor().Cancel(retry_);
  socket_.reset();
  if (introduction_) introduction_->Drop();
  introduction_.reset();
  // Posted, because an attempt can end inside the call that began it.
  endpoint_->executor().Post(
      [done = std::move(done_), result = std::move(result)]() mutable { done(std::move(result)); });
}

}  // namespace

std::shared_ptr<Connecting> StartConnect(std::shared_ptr<const Endpoint> endpoint,
                                         const Address& address, Duration timeout,
                                         ConnectCompletion done) {
  auto connector =
      std::make_shared<Connector>(std::move(endpoint), address, timeout, std::move(done));
  connector->Start(address);
  return connector;
}

}  // namespace poseidon::transport::tcp
