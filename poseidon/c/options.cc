// SPDX-License-Identifier: Apache-2.0
#include "poseidon/c/options.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "poseidon/base/quantities.h"
#include "poseidon/c/structs.h"
#include "poseidon/plan/lanes.h"
#include "poseidon/session/tcp_session.h"

namespace poseidon::c {
namespace {

// The first of `text`'s lines, or of its entries with ';' between, taken off it, without the blanks around it; a
// backslash takes the character after it as it is.
std::string TakeEntry(std::string_view& text) {
  std::string entry;
  std::size_t kept = 0, i = 0;
  for (; i < text.size() && text[i] != '\n' && text[i] != ';'; ++i) {
    const bool as_is = text[i] == '\\' && i + 1 < text.size();
    if (as_is) ++i;
    const bool blank = !as_is && (text[i] == ' ' || text[i] == '\r');
    if (blank && entry.empty()) continue;
    entry += text[i];
    if (!blank) kept = entry.size();
  }
  entry.resize(kept);
  text.remove_prefix(std::min(i + 1, text.size()));
  return entry;
}

Status UnknownScheme(const char* where, const std::string& name, const std::string& word) {
  return InvalidArgument(std::string(where) + " gives layer '" + name + "' the scheme '" + word +
                         "', expected " + plan::SchemeNames());
}

// Lines, or ';' between, of name=scheme; a name may hold '='.
Status ParseSchemes(std::string_view text, const char* where,
                    std::map<std::string, plan::Scheme>& schemes) {
  while (!text.empty()) {
    const std::string pair = TakeEntry(text);
    if (pair.empty()) continue;
    const std::size_t equals = pair.rfind('=');
    if (equals == std::string_view::npos || equals == 0) {
      return InvalidArgument(std::string(where) + " has '" + pair +
                             "', expected " + plan::SchemeNames("name="));
    }
    const std::string name = pair.substr(0, equals);
    const std::string word = pair.substr(equals + 1);
    const std::optional<plan::Scheme> scheme = plan::ParseScheme(word);
    if (!scheme) return UnknownScheme(where, name, word);
    schemes.insert_or_assign(name, *scheme);
  }
  return OkStatus();
}

Result<std::uint16_t> TakePort(std::uint32_t port, const char* what) {
  if (port > 65535) {
    return InvalidArgument(std::string(what) + " is " + std::to_string(port) +
                           ", expected at most 65535");
  }
  return static_cast<std::uint16_t>(port);
}

// Adds the layers that `schemes` names to `named`.
Result<plan::PlanOptions> TakePlanning(const poseidon_options& options, NamedLayers* named) {
  plan::PlanOptions planning;
  if (options.policy != 0) {
    planning.policy = static_cast<plan::Policy>(options.policy);
    if (options.policy < 0 || options.policy > 255 || !plan::IsValid(planning.policy)) {
      return InvalidArgument("policy is " + std::to_string(options.policy) +
                             ", expected POSEIDON_POLICY_TIME or _BYTES");
    }
  }
  if (options.plan_pin != nullptr) {
    POSEIDON_RETURN_IF_ERROR(ParseSchemes(options.plan_pin, "plan_pin", planning.forced));
    planning.forced_by =
        options.schemes == nullptr ? "the pinned plan" : "the user or the pinned plan";
  }
  if (options.schemes != nullptr) {
    std::map<std::string, plan::Scheme> schemes;
    POSEIDON_RETURN_IF_ERROR(ParseSchemes(options.schemes, "schemes", schemes));
    for (const auto& [name, scheme] : schemes) {
      planning.forced.insert_or_assign(name, scheme);
      // Only the user's own names keep layers from joining. A pinned plan names every layer, so none would join.
      named->insert(name);
    }
  }
  return planning;
}

// How many members the job has, and which of them this is.
Status TakeMember(const poseidon_options& options, session::NodeOptions* node) {
  if (options.workers < 1 || options.workers > wire::kMaxMembers ||
      options.servers > wire::kMaxMembers - options.workers) {
    return InvalidArgument("workers is " + std::to_string(options.workers) + " and servers " +
                           std::to_string(options.servers) + ", expected at least one worker and at most " +
                           std::to_string(wire::kMaxMembers) + " of both");
  }
  const bool server = options.role == POSEIDON_SERVER;
  if (server && options.hosts_coordinator != 0) {
    return InvalidArgument("a server cannot host the coordinator, a worker does");
  }
  if (options.requested_rank < 0 ||
      static_cast<std::uint32_t>(options.requested_rank) >= options.workers) {
    return InvalidArgument("requested_rank is " + std::to_string(options.requested_rank) +
                           ", expected less than the " + std::to_string(options.workers) +
                           " workers");
  }
  if (options.levels < POSEIDON_LEVELS_FLAT || options.levels > POSEIDON_LEVELS_AUTO) {
    return InvalidArgument("levels is " + std::to_string(options.levels) +
                           ", expected POSEIDON_LEVELS_FLAT, _HOST or _AUTO");
  }
  if (options.zero_compression < POSEIDON_ZERO_COMPRESSION_AUTO ||
      options.zero_compression > POSEIDON_ZERO_COMPRESSION_ALWAYS) {
    return InvalidArgument("zero_compression is " + std::to_string(options.zero_compression) +
                           ", expected POSEIDON_ZERO_COMPRESSION_AUTO, _OFF or _ALWAYS");
  }
  if (options.lanes > plan::kMaxLanes) {
    return InvalidArgument("lanes is " + std::to_string(options.lanes) + ", expected at most " +
                           std::to_string(plan::kMaxLanes));
  }
  node->role = server ? wire::Role::kServer : wire::Role::kWorker;
  node->workers = static_cast<std::uint16_t>(options.workers);
  node->servers = static_cast<std::uint16_t>(options.servers);
  node->hosts_coordinator = options.hosts_coordinator != 0;
  // Only the member that hosts the coordinator can have rank 0, so 0 means "any rank".
  if (options.requested_rank > 0) node->requested_rank = options.requested_rank;
  node->host = TextOr(options.host, "localhost");
  node->levels = static_cast<plan::Levels>(options.levels);
  node->lanes = static_cast<std::uint16_t>(options.lanes);
  POSEIDON_ASSIGN_OR_RETURN(node->strategy, sync::StrategyNamed(TextOr(options.strategy, "poseidon")));
  POSEIDON_ASSIGN_OR_RETURN(node->bandwidth, ParseBandwidth(TextOr(options.bandwidth, "")));
  node->strategy.zero_compression = static_cast<plan::ZeroCompression>(options.zero_compression);
  node->machine = options.machine != nullptr ? options.machine : local::ThisMachine();
  return OkStatus();
}

// Where this member listens, and where it finds rank 0.
Status TakeAddresses(const poseidon_options& options, session::NodeOptions* node) {
  node->listen.host = TextOr(options.listen_host, "127.0.0.1");
  POSEIDON_ASSIGN_OR_RETURN(node->listen.port, TakePort(options.listen_port, "listen_port"));
  node->advertise_host = TextOr(options.advertise_host, "");
  if (node->advertise_host.empty() && (node->listen.host == "0.0.0.0" || node->listen.host == "::")) {
    return InvalidArgument("listen_host is " + node->listen.host +
                           ", expected advertise_host to say where the others reach it");
  }
  node->coordinator.host = TextOr(options.coordinator_host, "127.0.0.1");
  POSEIDON_ASSIGN_OR_RETURN(node->coordinator.port, TakePort(options.coordinator_port, "coordinator_port"));
  if (!node->hosts_coordinator && node->coordinator.port == 0) {
    return InvalidArgument("coordinator_port is 0, expected the port that rank 0 listens at");
  }
  return OkStatus();
}

Status TakeProbe(const poseidon_options& options, session::NodeOptions* node) {
  if (options.probe_bytes == 0) return OkStatus();
  node->probe_bytes = options.probe_bytes == POSEIDON_NEVER ? 0 : options.probe_bytes;
  if (node->probe_bytes == 0 ||
      (node->probe_bytes >= session::kMinProbeBytes && node->probe_bytes <= session::kMaxProbeBytes)) {
    return OkStatus();
  }
  return InvalidArgument("probe_bytes is " + std::to_string(options.probe_bytes) + ", expected " +
                         std::to_string(session::kMinProbeBytes) + " to " + std::to_string(session::kMaxProbeBytes) +
                         ", 0 or POSEIDON_NEVER");
}

}  // namespace

Result<Duration> TakeSeconds(double seconds, double least, Duration otherwise, const char* what) {
  // A Duration counts nanoseconds in 64 bits. The condition is written so that it refuses NaN.
  constexpr double kMost = 1e8;  // three years
  if (seconds != 0 && !(seconds >= least && seconds <= kMost)) {
    char expected[128];
    std::snprintf(expected, sizeof expected, "%g, expected %g to 1e8, or 0 for %g", seconds, least, ToSeconds(otherwise));
    return InvalidArgument(std::string(what) + " is " + expected);
  }
  return seconds > 0 ? FromSeconds(seconds) : otherwise;
}

// A name as TakeEntry gives it back.
std::string Escaped(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c == '\\' || c == ';' || c == '\n' || c == '\r' || c == ' ') text += '\\';
    text += c;
  }
  return text;
}

Result<transport::tcp::Token> TakeToken(const poseidon_options& options) {
  using transport::tcp::Token;
  const int ways = (options.token_file != nullptr ? 1 : 0) +
                   (options.token_bytes != nullptr ? 1 : 0) + (options.token_fd > 0 ? 1 : 0);
  if (ways == 0 && options.workers == 1 && options.servers == 0) return Token::Generate();
  if (ways != 1) {
    return InvalidArgument("the job's token came in " + std::to_string(ways) +
                           " ways, expected exactly one of token_file, token_bytes and token_fd");
  }
  if (options.token_file != nullptr) return Token::FromFile(options.token_file);
  if (options.token_fd > 0) return Token::FromDescriptor(options.token_fd);
  const auto* const bytes = reinterpret_cast<const std::byte*>(options.token_bytes);
  return Token::FromBytes(std::span<const std::byte, Token::kBytes>(bytes, Token::kBytes));
}

Result<transport::tcp::Security::Mode> TakeMode(std::int32_t wire, const std::string& listen_host) {
  using Mode = transport::tcp::Security::Mode;
  switch (wire) {
    case POSEIDON_WIRE_TLS:
      return Mode::kTls;
    case POSEIDON_WIRE_AUTH:
      return Mode::kAuth;
    case POSEIDON_WIRE_PLAIN:
      return Mode::kPlain;
    case POSEIDON_WIRE_AUTO:
      return session::ProtectionOf(std::nullopt, listen_host.rfind("127.", 0) == 0 || listen_host == "::1");
    default:
      return InvalidArgument("wire is " + std::to_string(wire) +
                             ", expected POSEIDON_WIRE_AUTO, _TLS, _AUTH or _PLAIN");
  }
}

Result<session::NodeOptions> TakeNodeOptions(const poseidon_options& options, NamedLayers* named) {
  session::NodeOptions node;
  POSEIDON_RETURN_IF_ERROR(TakeMember(options, &node));
  POSEIDON_RETURN_IF_ERROR(TakeAddresses(options, &node));
  POSEIDON_ASSIGN_OR_RETURN(node.join_timeout,
                            TakeSeconds(options.join_timeout_seconds, 0, node.join_timeout, "join_timeout_seconds"));
  POSEIDON_ASSIGN_OR_RETURN(node.liveness.dead_after,
                            TakeSeconds(options.dead_after_seconds, 0.1, node.liveness.dead_after, "dead_after_seconds"));
  POSEIDON_ASSIGN_OR_RETURN(node.progress.stuck_after,
                            TakeSeconds(options.stuck_after_seconds, 1, node.progress.stuck_after, "stuck_after_seconds"));
  POSEIDON_ASSIGN_OR_RETURN(node.planning, TakePlanning(options, named));
  POSEIDON_RETURN_IF_ERROR(TakeProbe(options, &node));
  if (options.final_plan_step != 0) node.final_plan_step = options.final_plan_step;
  node.memory_limit_bytes = options.memory_limit_bytes;
  node.cores =
      options.cores != 0 ? options.cores : std::max(1u, std::thread::hardware_concurrency());
  node.compute_threads = std::max(options.threads, 1u);
  return node;
}

}  // namespace poseidon::c
