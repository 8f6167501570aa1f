// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/world.h"

#include <future>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::integration {
namespace {

class ThreadSite final : public Site {
 public:
  ThreadSite(std::unique_ptr<session::Runtime> runtime, std::string host)
      : runtime_(std::move(runtime)), host_(std::move(host)) {}
  session::Runtime& runtime() override { return *runtime_; }
  transport::Address listen() const override { return {host_, 0}; }

 private:
  const std::unique_ptr<session::Runtime> runtime_;
  const std::string host_;
};

class ThreadWorld : public World {
 public:
  bool Await(const Tally& tally, std::uint64_t count) override { return tally.BlockUntil(count); }
  void RunOn(Executor& executor, std::function<void()> task) override {
    std::promise<void> done;
    executor.Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }
};

class InprocWorld final : public ThreadWorld {
 public:
  std::unique_ptr<Site> MakeSite(const std::string& name) override {
    return std::make_unique<ThreadSite>(session::MakeInprocRuntime(network_, name), name);
  }

 private:
  transport::InprocNetwork network_;
};

class TcpWorld final : public ThreadWorld {
 public:
  explicit TcpWorld(transport::tcp::Security::Mode mode)
      : security_{mode, transport::tcp::Token::Generate().value()} {}
  std::unique_ptr<Site> MakeSite(const std::string&) override {
    transport::tcp::TcpOptions options{.security = security_};
    return std::make_unique<ThreadSite>(session::MakeTcpRuntime(options).value(), "127.0.0.1");
  }

 private:
  const transport::tcp::Security security_;
};

class VirtualSite final : public Site, private session::Runtime {
 public:
  VirtualSite(sim::Simulation& simulation, sim::VirtualNetwork& network, const std::string& name,
              sim::HostId host, std::string host_name)
      : simulation_(simulation),
        network_(network),
        host_name_(std::move(host_name)),
        host_(host),
        process_(simulation.AddProcess(name)),
        completions_(simulation.MakeExecutor(process_)),
        compute_(simulation.MakeExecutor(process_)),
        io_(simulation.MakeExecutor(process_)),
        context_(network.MakeContext(host_, process_, *io_)) {}
  session::Runtime& runtime() override { return *this; }
  transport::Address listen() const override { return {host_name_, 0}; }
  sim::ProcessId process() const { return process_; }
  sim::HostId host() const { return host_; }

 private:
  Executor& io() override { return *io_; }
  Executor& compute() override { return *compute_; }
  Executor& completions() override { return *completions_; }
  transport::Context& context() override { return *context_; }
  Result<session::LaneServices> lane(std::uint16_t number) override {
    OtherLane& lane = lanes_[number];
    if (!lane.executor) {
      lane.executor = simulation_.MakeExecutor(process_);
      lane.context = network_.MakeContext(host_, process_, *lane.executor);
    }
    return session::LaneServices{*lane.executor, *lane.context};
  }

  struct OtherLane {
    std::unique_ptr<Executor> executor;
    std::unique_ptr<transport::Context> context;
  };

  sim::Simulation& simulation_;
  sim::VirtualNetwork& network_;
  const std::string host_name_;
  const sim::HostId host_;
  const sim::ProcessId process_;
  const std::unique_ptr<Executor> completions_;
  const std::unique_ptr<Executor> compute_;
  const std::unique_ptr<Executor> io_;
  const std::unique_ptr<transport::Context> context_;
  std::map<std::uint16_t, OtherLane> lanes_;
};

}  // namespace

std::unique_ptr<World> MakeInprocWorld() { return std::make_unique<InprocWorld>(); }
std::unique_ptr<World> MakeTcpWorld(transport::tcp::Security::Mode mode) {
  return std::make_unique<TcpWorld>(mode);
}

VirtualWorld::VirtualWorld(const VirtualOptions& options)
    : options_(options), simulation_(options.simulation), network_(simulation_, options.network) {}
VirtualWorld::~VirtualWorld() = default;

std::unique_ptr<Site> VirtualWorld::MakeSite(const std::string& name) {
  const auto given = options_.host_of.find(name);
  const std::string& host = given == options_.host_of.end() ? name : given->second;
  auto found = hosts_.find(host);
  if (found == hosts_.end()) {
    const sim::HostId made = network_.AddHost(
        {.name = host, .rate_out = options_.rate, .rate_in = options_.rate});
    found = hosts_.emplace(host, made).first;
  }
  return std::make_unique<VirtualSite>(simulation_, network_, name, found->second, host);
}

bool VirtualWorld::Await(const Tally& tally, std::uint64_t count) {
  return simulation_.RunUntil([&] { return tally.value() >= count; }, options_.patience);
}

void VirtualWorld::RunOn(Executor& executor, std::function<void()> task) {
  bool ran = false;
  executor.Post([&] {
    task();
    ran = true;
  });
  while (!ran) POSEIDON_CHECK(simulation_.Step(), "a posted task runs");
}

sim::ProcessId VirtualWorld::ProcessOf(const Site& site) {
  return dynamic_cast<const VirtualSite&>(site).process();
}
sim::HostId VirtualWorld::HostOf(const Site& site) {
  return dynamic_cast<const VirtualSite&>(site).host();
}

}  // namespace poseidon::integration
