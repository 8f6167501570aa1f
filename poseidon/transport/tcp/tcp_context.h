// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_TCP_CONTEXT_H_
#define POSEIDON_TRANSPORT_TCP_TCP_CONTEXT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "poseidon/base/log.h"
#include "poseidon/base/result.h"
#include "poseidon/transport/tcp/hello.h"
#include "poseidon/transport/tcp/io_executor.h"
#include "poseidon/transport/tcp/record_cipher.h"
#include "poseidon/transport/tcp/socket.h"
#include "poseidon/transport/tcp/token.h"
#include "poseidon/transport/transport.h"

namespace poseidon::transport::tcp {

struct Security {
  enum class Mode {
    kTls,    // the handshake of TLS 1.3 keyed by the token; every record is authenticated and encrypted
    kAuth,   // both ends prove the token; every record is authenticated
    kPlain,  // both ends prove the token; what follows is not protected
  };
  Mode mode = Mode::kTls;
  Token token;
};

// Ports to try in order when a listener asks for any; 0 to 0 lets the system choose.
struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
};

struct TcpOptions {
  Security security;
  SocketOptions socket = {};
  PortRange ports = {};
  Versions versions = {};
  // How long a stranger at a listener may take to authenticate.
  Duration authentication_deadline = std::chrono::seconds(5);
  // Strangers held at once by a listener. One more, and the oldest is dropped: a member needs a few
  // round trips, so a crowd that only occupies places cannot keep it out. As many as a job has members, if they
  // are more.
  std::size_t max_strangers = 64;
  // Of records: new keys after so many bytes in one direction.
  std::uint64_t rekey_after_bytes = std::uint64_t{1} << 36;
  // Gets a line about refused strangers, the first and then ever more rarely. Outlives the context, its
  // listeners and connections. May be null.
  LogSink* log = nullptr;
  // Whether this processor is fast at AES. For tests, which have no other.
  bool fast_aes = HasFastAes();
};

// Strangers that a listener has turned away, by reason.
struct StrangerCounters {
  std::uint64_t refused = 0;          // did not prove the token, or did not speak the protocol
  std::uint64_t versions_differ = 0;  // no version of the handshake in common
  std::uint64_t went_away = 0;        // closed before they were done
  std::uint64_t too_slow = 0;         // past the deadline
  std::uint64_t crowded_out = 0;      // the oldest when there were too many
  std::uint64_t total() const {
    return refused + versions_differ + went_away + too_slow + crowded_out;
  }
};

class TcpListener : public Listener {
 public:
  virtual const StrangerCounters& strangers() const = 0;
};

// Connections over TCP between holders of one token.
//
// Connect fails with kInvalidArgument for a host that is not numeric, kUnavailable when the host
// cannot be reached, kDeadlineExceeded when nothing listened until the timeout or the other end
// stayed silent, kPermissionDenied when it holds another token (or uses another mode),
// kFailedPrecondition when the versions differ. Each names the address.
//
// Destroying it fails the connects under way with kUnavailable; its listeners and connections live
// on.
class TcpContext : public Context {
 public:
  // kInternal when OpenSSL cannot be set up. `executor` outlives everything made here.
  static Result<std::unique_ptr<TcpContext>> Make(IoExecutor& executor, TcpOptions options);

  // Listen, for callers who want to count strangers.
  virtual Result<std::unique_ptr<TcpListener>> ListenTcp(const Address& address,
                                                         AcceptCallback accept) = 0;
};

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_TCP_CONTEXT_H_
