// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_ENDPOINT_H_
#define POSEIDON_TRANSPORT_TCP_ENDPOINT_H_

#include <functional>
#include <memory>
#include <optional>

#include "poseidon/base/result.h"
#include "poseidon/transport/tcp/handshake.h"
#include "poseidon/transport/tcp/tcp_context.h"
#include "poseidon/transport/tcp/tls_handshake.h"

// Shared by the listeners and connects of one context, and begins each of them.
namespace poseidon::transport::tcp {

class Endpoint {
 public:
  static Result<std::shared_ptr<const Endpoint>> Make(IoExecutor& executor, TcpOptions options);

  IoExecutor& executor() const { return executor_; }
  const TcpOptions& options() const { return options_; }
  Result<std::unique_ptr<Handshake>> NewHandshake(int fd, HelloRole role) const;

 private:
  Endpoint(IoExecutor& executor, TcpOptions options);

  IoExecutor& executor_;
  const TcpOptions options_;
  std::optional<Key> hello_key_;            // modes kAuth and kPlain
  std::shared_ptr<const TlsSettings> tls_;  // mode kTls
};

Result<std::unique_ptr<TcpListener>> StartListener(std::shared_ptr<const Endpoint> endpoint,
                                                   const Address& address, AcceptCallback accept);

// A connect under way.
class Connecting {
 public:
  virtual ~Connecting() = default;
  // Ends it; its completion fires with `reason`, unless it has fired.
  virtual void Abandon(const Status& reason) = 0;
};
// `done` fires never inside this call.
std::shared_ptr<Connecting> StartConnect(std::shared_ptr<const Endpoint> endpoint,
                                         const Address& address, Duration timeout,
                                         ConnectCompletion done);

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_ENDPOINT_H_
