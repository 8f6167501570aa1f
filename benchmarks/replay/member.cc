// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/replay/member.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <utility>

#include "poseidon/base/quantities.h"
#include "poseidon/session/tcp_session.h"

namespace poseidon::replay {

void AddFlags(CLI::App& app, Member& member) {
  app.add_option("--workers", member.workers)->check(CLI::Range(1, 64));
  app.add_option("--rank", member.rank);
  app.add_option("--listen", member.listen, "this worker's address");
  app.add_option("--coordinator", member.coordinator, "rank 0's address");
  app.add_option("--port", member.port, "rank 0's port")->required();
  app.add_option("--token-file", member.token_file)->required();
  app.add_option("--wire", member.wire)->check(CLI::IsMember({"plain", "auth", "tls"}));
  app.add_option("--lanes", member.lanes, "threads of the network, each with connections of its own")->check(CLI::Range(1, 16));
  app.add_option("--bandwidth", member.bandwidth, "of its link that a member may use: 400Mbit");
  app.add_option("--chunk", member.chunk, "bytes of a frame, instead of what the link asks for");
  app.add_option("--send-buffer", member.send_buffer,
                 "bytes that a socket holds undelivered instead of what the link asks for, 0: the system's");
}

Result<std::unique_ptr<session::Session>> Open(const Member& member, session::SessionOptions options,
                                               bool system_buffers) {
  session::NodeOptions& node = options.node;
  node.workers = member.workers;
  node.requested_rank = member.rank;
  node.hosts_coordinator = member.rank == 0;
  node.host = member.listen;
  node.listen = {member.listen, member.rank == 0 ? member.port : std::uint16_t{0}};
  node.coordinator = {member.coordinator, member.port};
  node.lanes = member.lanes;
  POSEIDON_ASSIGN_OR_RETURN(node.bandwidth, ParseBandwidth(member.bandwidth));
  node.cores = std::max(1u, std::thread::hardware_concurrency());
  if (member.chunk > 0) {
    node.strategy.flow = {member.chunk, member.chunk};
    node.strategy.flow_is_fixed = true;
  }
  POSEIDON_ASSIGN_OR_RETURN(transport::tcp::Token token,
                            transport::tcp::Token::FromFile(member.token_file));
  using Mode = transport::tcp::Security::Mode;
  const Mode mode = member.wire == "tls" ? Mode::kTls : member.wire == "auth" ? Mode::kAuth : Mode::kPlain;
  node.cpu_seconds_per_wire_byte = session::CpuSecondsPerWireByte(mode);
  transport::tcp::TcpOptions tcp{.security = {mode, token}};
  if (system_buffers) tcp.socket.send_buffer_bytes = 0;
  if (member.send_buffer >= 0) {
    tcp.socket.send_buffer_bytes = member.send_buffer;
    node.strategy.flow_is_fixed = true;
  }
  return session::OpenTcpSession(tcp, options);
}

Status AnswerOrder(std::uint64_t size, std::uint64_t repeats, const std::function<Status()>& run) {
  const auto began = std::chrono::steady_clock::now();
  const double used = CpuSeconds();
  POSEIDON_RETURN_IF_ERROR(run());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  const auto count = static_cast<double>(repeats);
  const nlohmann::json answer = {{"bytes", size},
                                 {"repeats", repeats},
                                 {"seconds", took.count() / count},
                                 {"cpu_seconds", (CpuSeconds() - used) / count}};
  std::printf("%s\n", answer.dump().c_str());
  std::fflush(stdout);
  return OkStatus();
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double CoreWaitSeconds() {
  std::uint64_t waited = 0;
  std::error_code none;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", none)) {
    std::ifstream file(thread.path() / "schedstat");
    std::uint64_t ran_ns = 0;
    std::uint64_t waited_ns = 0;
    if (file >> ran_ns >> waited_ns) waited += waited_ns;
  }
  return 1e-9 * static_cast<double>(waited);
}

}  // namespace poseidon::replay
