// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/tcp_context.h"

#include <utility>
#include <vector>

#include "poseidon/base/check.h"
#include "poseidon/transport/tcp/endpoint.h"
#include "poseidon/transport/tcp/hello_handshake.h"
#include "poseidon/transport/tcp/secret_bytes.h"

namespace poseidon::transport::tcp {
namespace {

// HKDF contexts: each mode has a key of its own (TLS's is in tls_handshake.cc), so that no proof of one serves in another.
constexpr std::string_view kAuthPurpose = "poseidon hello";
constexpr std::string_view kPlainPurpose = "poseidon hello, plain bytes follow";

class RealTcpContext final : public TcpContext {
 public:
  explicit RealTcpContext(std::shared_ptr<const Endpoint> endpoint)
      : endpoint_(std::move(endpoint)) {}
  ~RealTcpContext() override {
    POSEIDON_ASSERT_ON(endpoint_->executor());
    // A connect lives on in its timers and completes by itself; the context only keeps the way to abandon it.
    for (const std::weak_ptr<Connecting>& weak : connecting_) {
      if (const std::shared_ptr<Connecting> connecting = weak.lock()) {
        connecting->Abandon(Unavailable("the network was shut down during a connect"));
      }
    }
  }

  Executor& executor() override { return endpoint_->executor(); }

  Result<std::unique_ptr<Listener>> Listen(const Address& address, AcceptCallback accept) override {
    Result<std::unique_ptr<TcpListener>> listener = ListenTcp(address, std::move(accept));
    if (!listener.ok()) return listener.status();
    return std::unique_ptr<Listener>(std::move(*listener));
  }

  Result<std::unique_ptr<TcpListener>> ListenTcp(const Address& address,
                                                 AcceptCallback accept) override {
    POSEIDON_ASSERT_ON(endpoint_->executor());
    return StartListener(endpoint_, address, std::move(accept));
  }

  void Connect(const Address& address, Duration timeout, ConnectCompletion done) override {
    POSEIDON_ASSERT_ON(endpoint_->executor());
    // Those that are over are dropped here, or the list would grow with every connect of a job.
    std::erase_if(connecting_, [](const auto& weak) { return weak.expired(); });
    connecting_.push_back(StartConnect(endpoint_, address, timeout, std::move(done)));
  }

 private:
  const std::shared_ptr<const Endpoint> endpoint_;  // shared with listeners and connects
  std::vector<std::weak_ptr<Connecting>> connecting_;
};

}  // namespace

Endpoint::Endpoint(IoExecutor& executor, TcpOptions options)
    : executor_(executor), options_(std::move(options)) {}

Result<std::shared_ptr<const Endpoint>> Endpoint::Make(IoExecutor& executor, TcpOptions options) {
  std::shared_ptr<Endpoint> endpoint(new Endpoint(executor, std::move(options)));
  const TcpOptions& o = endpoint->options_;
  if (o.security.mode != Security::Mode::kTls) {
    endpoint->hello_key_ = Key::Derive(o.security.token.bytes(),
                                       o.security.mode == Security::Mode::kAuth ? kAuthPurpose : kPlainPurpose);
  } else {
    POSEIDON_ASSIGN_OR_RETURN(
        endpoint->tls_,
        TlsSettings::Make(o.security.token,
                          {.versions = o.versions,
                           .rekey_after_bytes = o.rekey_after_bytes,
                           .fast_aes = o.fast_aes}));
  }
  return std::shared_ptr<const Endpoint>(std::move(endpoint));
}

Result<std::unique_ptr<Handshake>> Endpoint::NewHandshake(int fd, HelloRole role) const {
  if (tls_ != nullptr) return TlsSettings::NewHandshake(tls_, fd, role);
  Hello::Nonce nonce;
  // Fresh for each connection: a nonce that came twice would let an old conversation be replayed (hello.h).
  if (!FillRandom(nonce)) return Internal("the system has no randomness for a handshake");
  const HelloHandshake::Options options{.versions = options_.versions,
                                        .authenticated_records = options_.security.mode == Security::Mode::kAuth,
                                        .rekey_after_bytes = options_.rekey_after_bytes};
  return std::unique_ptr<Handshake>(std::make_unique<HelloHandshake>(fd, role, *hello_key_, options, nonce));
}

Result<std::unique_ptr<TcpContext>> TcpContext::Make(IoExecutor& executor, TcpOptions options) {
  POSEIDON_ASSIGN_OR_RETURN(std::shared_ptr<const Endpoint> endpoint,
                            Endpoint::Make(executor, std::move(options)));
  return std::unique_ptr<TcpContext>(std::make_unique<RealTcpContext>(std::move(endpoint)));
}

}  // namespace poseidon::transport::tcp
