// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_TCP_SESSION_H_
#define POSEIDON_SESSION_TCP_SESSION_H_

#include <memory>
#include <optional>

#include "poseidon/session/session.h"
#include "poseidon/transport/tcp/tcp_context.h"

namespace poseidon::session {

// Opens a session over sockets, as every process of a job of several does; see Session::Open for what it blocks on
// and returns. `tcp` carries how members prove themselves; its log and its bound on strangers are set here.
Result<std::unique_ptr<Session>> OpenTcpSession(transport::tcp::TcpOptions tcp, const SessionOptions& options,
                                                UniqueFunction<void(const transport::Address&)> listening = {});

// CPU seconds that a byte on the wire costs a host without an accelerator: sending, receiving and summing together.
// Measured by `python3 -m benchmarks.performance` (all-reduces of 64 MiB) on an EPYC of 2021 with AES-NI.
double CpuSecondsPerWireByte(transport::tcp::Security::Mode mode);

// How connections are protected where the user says so, and otherwise: encrypted, unless no byte leaves the machine.
transport::tcp::Security::Mode ProtectionOf(std::optional<transport::tcp::Security::Mode> wanted, bool one_machine);

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_TCP_SESSION_H_
