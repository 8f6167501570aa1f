// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_BENCHMARKS_REPLAY_MEMBER_H_
#define POSEIDON_BENCHMARKS_REPLAY_MEMBER_H_

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "poseidon/base/result.h"
#include "poseidon/session/session.h"

// How a program of benchmarks/replay becomes one worker of a job, on its command line and in the core.
namespace poseidon::replay {

struct Member {
  std::uint16_t workers = 2;
  std::uint16_t rank = 0;
  std::string listen = "127.0.0.1";
  std::string coordinator = "127.0.0.1";
  std::uint16_t port = 0;
  std::string token_file;
  std::string wire = "plain";
  std::uint16_t lanes = 1;
  std::string bandwidth;  // of its link that a member may use; empty: all
  std::size_t chunk = 0;  // 0: what the link asks for
  int send_buffer = -1;   // likewise below 0
};
void AddFlags(CLI::App& app, Member& member);

// Opens the session. `options` holds what the program wants of it, `member` its rank and addresses and what
// overrides its flow; `system_buffers` leaves the sockets' send buffers to the system.
Result<std::unique_ptr<session::Session>> Open(const Member& member, session::SessionOptions options,
                                               bool system_buffers = false);

// Times `run`, which does `repeats` all-reduces of `size` bytes behind one another, and answers the order for them on
// standard output: a JSON line, {"bytes", "repeats", "seconds", "cpu_seconds"}, of one all-reduce. Fails as `run` does.
Status AnswerOrder(std::uint64_t size, std::uint64_t repeats, const std::function<Status()>& run);

// User and system time of this process so far.
double CpuSeconds();
// Seconds for which threads of this process that still live were ready to run and had no core, so far: the run delay
// of the kernel's scheduler, of all threads together. 0 where the kernel does not count it.
double CoreWaitSeconds();

}  // namespace poseidon::replay

#endif  // POSEIDON_BENCHMARKS_REPLAY_MEMBER_H_
