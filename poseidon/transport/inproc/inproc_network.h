// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_INPROC_INPROC_NETWORK_H_
#define POSEIDON_TRANSPORT_INPROC_INPROC_NETWORK_H_

#include <cstddef>
#include <memory>
#include <string>

#include "poseidon/transport/transport.h"

namespace poseidon::transport {

namespace inproc {
class Hub;
}  // namespace inproc

struct InprocOptions {
  // How far a writer may be ahead of its reader, per connection and direction.
  std::size_t buffer_bytes = std::size_t{256} * 1024;
  // Pause before a refused connect is tried again; doubles up to 64 times this.
  Duration first_retry = std::chrono::milliseconds(1);
};

// Joins contexts of one program. Hosts are any text; an address is in use while its listener lives.
//
// Thread: MakeContext may be called from any thread. Lifetime: may be destroyed before its contexts.
class InprocNetwork {
 public:
  explicit InprocNetwork(InprocOptions options = {});
  ~InprocNetwork();
  InprocNetwork(const InprocNetwork&) = delete;
  InprocNetwork& operator=(const InprocNetwork&) = delete;

  // A participant whose objects live on `executor`. `name` is what acceptors see as its peer name.
  std::unique_ptr<Context> MakeContext(Executor& executor, std::string name);

 private:
  std::shared_ptr<inproc::Hub> hub_;
};

}  // namespace poseidon::transport

#endif  // POSEIDON_TRANSPORT_INPROC_INPROC_NETWORK_H_
