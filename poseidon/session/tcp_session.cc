// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/tcp_session.h"

#include <algorithm>
#include <utility>

namespace poseidon::session {
namespace {

constexpr double kPlain = 0.6e-9;
constexpr double kEncrypted = 1.1e-9;

}  // namespace

Result<std::unique_ptr<Session>> OpenTcpSession(transport::tcp::TcpOptions tcp, const SessionOptions& options,
                                                UniqueFunction<void(const transport::Address&)> listening) {
  tcp.log = options.log;
  // A connection survives what the members tolerate: the system must not give up earlier than they do.
  tcp.socket.outage = options.node.liveness.dead_after;
  // While a job forms, every member may be a stranger at once.
  tcp.max_strangers =
      std::max<std::size_t>(tcp.max_strangers, options.node.workers + options.node.servers);
  POSEIDON_ASSIGN_OR_RETURN(std::unique_ptr<Runtime> runtime, MakeTcpRuntime(tcp));
  return Session::Open(std::move(runtime), options, std::move(listening));
}

double CpuSecondsPerWireByte(transport::tcp::Security::Mode mode) {
  return mode == transport::tcp::Security::Mode::kTls ? kEncrypted : kPlain;
}

}  // namespace poseidon::session
