// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SIM_VIRTUAL_NETWORK_H_
#define POSEIDON_SIM_VIRTUAL_NETWORK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "poseidon/base/strong_id.h"
#include "poseidon/sim/cores.h"
#include "poseidon/sim/simulation.h"
#include "poseidon/transport/transport.h"

namespace poseidon::sim {

// A simulated machine: a name, and a port to the one switch that joins all.
using HostId = StrongId<struct HostTag, std::uint32_t>;

// The processor time that a connection costs its owner's thread, system calls included. The task that writes or reads takes that much
// longer. All zeros: none.
struct TransferCosts {
  double seconds_per_wake = 0;  // for the first transfer of a task before which the thread had nothing to do
  double seconds_per_byte_out = 0;
  double seconds_per_byte_in = 0;
};

struct HostOptions {
  std::string name;  // what transport::Address::host says
  // Bytes per second through the port, each way; 0: no limit.
  double rate_out = 0;
  double rate_in = 0;
  TransferCosts costs = {};
  // On which the host's processes pay them; null: every executor has a core of its own. Outlives the network. Hosts may share them, as
  // those of an emulated cluster do.
  Cores* cores = nullptr;
};

// Into what pieces the network cuts the stream. Wherever it cuts, a reader may see less than was
// written, as with real sockets.
enum class Cut { kFullSegments, kRandomSegments, kSingleBytes };

struct NetworkOptions {
  std::uint64_t seed = 1;
  // One way between two hosts; SetLatency overrides it for a pair.
  Duration latency = std::chrono::microseconds(50);
  // Between two processes of one host, which do not use the port.
  Duration loopback_latency = std::chrono::microseconds(5);
  // Each segment and signal takes a random time up to this longer; a stream keeps its order.
  Duration max_jitter{0};
  // Bytes that were taken from the writer and not yet acknowledged by the peer's host, unless the
  // connection limits them itself; bytes under way to or waiting for the reader.
  std::size_t send_buffer_bytes = 256 * 1024;
  std::size_t receive_buffer_bytes = 256 * 1024;
  // Connections of a port take turns in segments of this size.
  std::size_t segment_bytes = 16 * 1024;
  Cut cut = Cut::kFullSegments;
  // Pause before a refused connect is tried again.
  Duration retry = std::chrono::milliseconds(10);
  // Bytes written from this memory take room and time on the network as any others, but are not copied:
  // where they would land everything stays as it was. For large numbers of zeros.
  ConstBytes hollow = {};
};

// Payload bytes through a host's port.
struct HostTraffic {
  std::uint64_t out = 0;
  std::uint64_t in = 0;
};

// What a host's connections have cost its processes.
struct HostWork {
  std::uint64_t wakes = 0;
  Duration busy{0};
};

// Hosts behind ports of given rates, joined by a switch that loses nothing and queues without bound.
// A port sends the segments of its connections in turns, one after the other; they arrive a latency
// later and pass the receiving port one after the other. Connections have bounded buffers at both
// ends, as sockets do. When a process is killed its connections end as the kernel ends them: what was
// taken from the writer still arrives, then the end of the stream.
//
// Thread: the simulation's. Lifetime: outlives its contexts, their connections and the executors these
// live on; the simulation outlives it.
class VirtualNetwork {
 public:
  explicit VirtualNetwork(Simulation& simulation, NetworkOptions options = {});
  ~VirtualNetwork();
  VirtualNetwork(const VirtualNetwork&) = delete;
  VirtualNetwork& operator=(const VirtualNetwork&) = delete;

  HostId AddHost(HostOptions options);
  // One way, in both directions.
  void SetLatency(HostId a, HostId b, Duration latency);
  // Returns the context of one process on a host; `executor` is one of the process's.
  std::unique_ptr<transport::Context> MakeContext(HostId host, ProcessId process,
                                                  Executor& executor);

  // The host is cut off without a reset: what is under way from or to it waits for Return, and no connection
  // reports an error. Its processes go on, also with each other.
  void Vanish(HostId host);
  void Return(HostId host);
  // From now on nothing that `from` sends reaches `to`, acknowledgements included, and no connection
  // reports an error; the other direction goes on.
  void Cut(HostId from, HostId to);
  // Resets the next connection on which `from` delivers its byte number `bytes` to `to`, or one beyond it, after
  // that byte: both ends read what has arrived, then fail.
  struct Reset {
    HostId from;
    HostId to;
    std::uint64_t bytes = 0;
  };
  void ResetAfter(Reset reset);

  // The next bytes that `from` delivers to `to` are changed on their way, and the transport of `to` finds it out: that
  // connection reads neither them nor anything behind them, and fails with kDataLoss.
  void DamageNext(HostId from, HostId to);

  HostTraffic traffic(HostId host) const;
  HostWork work(HostId host) const;

 private:
  class Fabric;
  struct Wire;
  class End;
  class SimListener;
  class SimContext;
  class Connector;
  class Ticket;
  struct Acceptor;
  std::unique_ptr<Fabric> fabric_;
};

}  // namespace poseidon::sim

#endif  // POSEIDON_SIM_VIRTUAL_NETWORK_H_
