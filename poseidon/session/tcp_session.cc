// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/tcp_session.h"

#include <algorithm>
#include <utility>

#include "poseidon/transport/tcp/descriptor.h"

namespace poseidon::session {
namespace {

// For the listener, event loops and files that are opened later.
constexpr std::size_t kOwnDescriptors = 32;
constexpr double kPlain = 0.6e-9;
constexpr double kAuthenticated = 1.2e-9;
constexpr double kEncrypted = 1.5e-9;

}  // namespace

Result<std::unique_ptr<Session>> OpenTcpSession(transport::tcp::TcpOptions tcp, const SessionOptions& options,
                                                UniqueFunction<void(const transport::Address&)> listening) {
  tcp.log = options.log;
  // A connection survives what the members tolerate: the system must not give up earlier than they do.
  tcp.socket.outage = options.node.liveness.dead_after;
  // While a job forms, every member may be a stranger at once.
  tcp.max_strangers =
      std::max<std::size_t>(tcp.max_strangers, options.node.workers + options.node.servers);
  // A connection to every member, and while the job forms as many strangers.
  POSEIDON_RETURN_IF_ERROR(
      transport::tcp::AllowDescriptors(kOwnDescriptors + options.node.workers + options.node.servers + tcp.max_strangers));
  POSEIDON_ASSIGN_OR_RETURN(std::unique_ptr<Runtime> runtime, MakeTcpRuntime(tcp));
  return Session::Open(std::move(runtime), options, std::move(listening));
}

double CpuSecondsPerWireByte(transport::tcp::Security::Mode mode) {
  using Mode = transport::tcp::Security::Mode;
  switch (mode) {
    case Mode::kTls:
      return kEncrypted;
    case Mode::kAuth:
      return kAuthenticated;
    case Mode::kPlain:
      break;
  }
  return kPlain;
}

transport::tcp::Security::Mode ProtectionOf(std::optional<transport::tcp::Security::Mode> wanted, bool one_machine) {
  using Mode = transport::tcp::Security::Mode;
  // Who can change what passes over loopback can change the memory of the processes too.
  return wanted.value_or(one_machine ? Mode::kPlain : Mode::kTls);
}

}  // namespace poseidon::session
