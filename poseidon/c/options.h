// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_C_OPTIONS_H_
#define POSEIDON_C_OPTIONS_H_

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "poseidon/base/result.h"
#include "poseidon/c/poseidon.h"
#include "poseidon/session/node.h"
#include "poseidon/transport/tcp/tcp_context.h"

// Translates poseidon_options to the core's values; kInvalidArgument names the field and what was expected.
namespace poseidon::c {

using NamedLayers = std::set<std::string, std::less<>>;

// Adds the layers that the options' schemes name to `named`.
Result<session::NodeOptions> TakeNodeOptions(const poseidon_options& options, NamedLayers* named);
Result<transport::tcp::Token> TakeToken(const poseidon_options& options);
Result<transport::tcp::Security::Mode> TakeMode(std::int32_t wire, const std::string& listen_host);

// Seconds from `least`; 0: `otherwise`. `what` names the field.
Result<Duration> TakeSeconds(double seconds, double least, Duration otherwise, const char* what);

// A layer's name as the text of a plan holds it.
std::string Escaped(std::string_view name);

}  // namespace poseidon::c

#endif  // POSEIDON_C_OPTIONS_H_
