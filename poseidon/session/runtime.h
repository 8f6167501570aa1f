// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_RUNTIME_H_
#define POSEIDON_SESSION_RUNTIME_H_

#include <memory>
#include <string>

#include "poseidon/base/executor.h"
#include "poseidon/base/result.h"
#include "poseidon/session/node_options.h"
#include "poseidon/transport/inproc/inproc_network.h"
#include "poseidon/transport/tcp/tcp_context.h"
#include "poseidon/transport/transport.h"

namespace poseidon::session {

// The threads and the transport of one member: network and sums on one executor for every lane, engine products on
// another, completions on a third. The simulator brings its own.
// Lifetime: destroyed after everything that lives on it, from none of its own threads.
class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual Executor& io() = 0;
  virtual Executor& compute() = 0;
  virtual Executor& completions() = 0;
  virtual transport::Context& context() = 0;
  // See NodeEnvironment::lane.
  virtual Result<LaneServices> lane(std::uint16_t number) = 0;
};

// Sockets: what a job of several processes runs on.
Result<std::unique_ptr<Runtime>> MakeTcpRuntime(const transport::tcp::TcpOptions& options);
// Memory: members that are threads of one program.
std::unique_ptr<Runtime> MakeInprocRuntime(transport::InprocNetwork& network, std::string name);

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_RUNTIME_H_
