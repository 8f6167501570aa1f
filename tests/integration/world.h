// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TESTS_INTEGRATION_WORLD_H_
#define POSEIDON_TESTS_INTEGRATION_WORLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "poseidon/session/runtime.h"
#include "poseidon/sim/simulation.h"
#include "poseidon/sim/virtual_network.h"
#include "tests/conformance/tally.h"

// Where a job runs: threads over memory, threads over sockets, or virtual time in one thread.
namespace poseidon::integration {

using conformance::Tally;

// One member's place in a world.
class Site {
 public:
  virtual ~Site() = default;
  virtual session::Runtime& runtime() = 0;
  // The address to which a listener of this member binds; any port.
  virtual transport::Address listen() const = 0;
};

class World {
 public:
  virtual ~World() = default;
  virtual std::unique_ptr<Site> MakeSite(const std::string& name) = 0;
  // Until `tally` has reached `count`; false when that does not happen.
  virtual bool Await(const Tally& tally, std::uint64_t count) = 0;
  // Runs `task` on `executor` and returns when it has run.
  virtual void RunOn(Executor& executor, std::function<void()> task) = 0;
  virtual bool is_virtual() const { return false; }
};

std::unique_ptr<World> MakeInprocWorld();
std::unique_ptr<World> MakeTcpWorld(transport::tcp::Security::Mode mode);

// Virtual time: every member is a process, on a host of its own unless the options place it elsewhere.
struct VirtualOptions {
  sim::SimulationOptions simulation;
  sim::NetworkOptions network;
  // The host of a site, by the site's name; where none is given, it has a host of its own.
  std::map<std::string, std::string> host_of = {};
  double rate = 0;  // bytes per second and direction of every host; 0: no limit
  Duration patience = std::chrono::minutes(10);  // of Await, in virtual time
};

class VirtualWorld final : public World {
 public:
  explicit VirtualWorld(const VirtualOptions& options);
  ~VirtualWorld() override;

  std::unique_ptr<Site> MakeSite(const std::string& name) override;
  bool Await(const Tally& tally, std::uint64_t count) override;
  void RunOn(Executor& executor, std::function<void()> task) override;
  bool is_virtual() const override { return true; }

  sim::Simulation& simulation() { return simulation_; }
  sim::VirtualNetwork& network() { return network_; }
  static sim::ProcessId ProcessOf(const Site& site);
  static sim::HostId HostOf(const Site& site);

 private:
  const VirtualOptions options_;
  sim::Simulation simulation_;
  sim::VirtualNetwork network_;
  std::map<std::string, sim::HostId> hosts_;
};

}  // namespace poseidon::integration

#endif  // POSEIDON_TESTS_INTEGRATION_WORLD_H_
