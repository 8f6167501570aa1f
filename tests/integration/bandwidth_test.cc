// SPDX-License-Identifier: Apache-2.0
// A job whose members may use a part of their links: whatever they do, no link carries more in any tenth of a second, in either
// direction; the plan counts with that part, and the means are the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "poseidon/messaging/budget.h"
#include "poseidon/session/member.h"
#include "tests/integration/job.h"

namespace poseidon::integration {
namespace {

using ::testing::HasSubstr;
using std::chrono::milliseconds;

constexpr double kBandwidth = 4e6;  // bytes per second, of links with thirty times as many
constexpr int kTicks = 10;          // of 10 ms, in what is watched at once

// The most bytes that passed a host's port within ten ticks.
class Port {
 public:
  void Count(std::uint64_t all) {
    counts_.push_back(all);
    if (counts_.size() > kTicks + 1) counts_.pop_front();
    most_ = std::max(most_, counts_.back() - counts_.front());
  }
  std::uint64_t most() const { return most_; }

 private:
  std::deque<std::uint64_t> counts_;
  std::uint64_t most_ = 0;
};

class Watch {
 public:
  Watch(VirtualWorld& world, Job& job)
      : world_(world), executor_(world.simulation().MakeExecutor(world.simulation().AddProcess("watch"), /*jitter=*/false)) {
    for (std::uint16_t m = 0; m < job.members(); ++m) hosts_.push_back(VirtualWorld::HostOf(job.site(MemberId(m))));
    ports_.resize(2 * hosts_.size());
    world.RunOn(*executor_, [this] { Look(); });
  }
  std::uint64_t most() const { return std::ranges::max_element(ports_, {}, &Port::most)->most(); }

 private:
  void Look() {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const sim::HostTraffic traffic = world_.network().traffic(hosts_[i]);
      ports_[2 * i].Count(traffic.out);
      ports_[2 * i + 1].Count(traffic.in);
    }
    executor_->PostAfter(milliseconds(10), [this] { Look(); });
  }

  VirtualWorld& world_;
  const std::unique_ptr<Executor> executor_;
  std::vector<sim::HostId> hosts_;
  std::vector<Port> ports_;
};

JobOptions HeldJob(std::uint16_t workers, std::uint16_t servers = 0) {
  JobOptions options;
  options.workers = workers;
  options.servers = servers;
  options.layers = InForwardOrder({FullyConnected("fc1", 200, 300), Dense("small", 100), Dense("large", 180'000),
                                   FullyConnected("fc2", 200, 200), Table("words", 100, 50)});
  options.steps = 14;
  options.node.bandwidth = kBandwidth;
  options.node.probe_bytes = 1u << 20;
  options.collective_elements = 50'000;
  return options;
}

// Plays the job and returns the most that a link carried in a tenth of a second, as a share of what it may carry.
double MostOf(const JobOptions& options, double rate = 125e6) {
  VirtualOptions world_options;
  world_options.rate = rate;
  world_options.network.max_jitter = std::chrono::microseconds(100);
  world_options.network.segment_bytes = 2 * 1448;  // of what the system paces
  world_options.patience = std::chrono::minutes(30);
  VirtualWorld world(world_options);
  Job job(world, options);
  job.Start();
  const Watch watch(world, job);
  EXPECT_TRUE(job.AwaitEnd());
  job.ExpectAllWell();
  const std::optional<plan::Plan>& plan = job.outcome(MemberId(0)).provisional;
  EXPECT_TRUE(plan && plan->cluster.bandwidth <= std::min(rate, messaging::PayloadWithin(kBandwidth)));
  return static_cast<double>(watch.most()) / (kBandwidth / 10);
}

TEST(Bandwidth, IsHeldByEveryKindOfJob) {
  std::vector<std::pair<std::string, JobOptions>> jobs = {
      {"flat", HeldJob(4)}, {"servers", HeldJob(2, 2)}, {"lanes", HeldJob(3)}, {"levels", HeldJob(4)}, {"ps-2017", HeldJob(3)}};
  jobs[2].second.node.lanes = 2;
  jobs[3].second.node.levels = plan::Levels::kHost;
  jobs[3].second.machines = {"a", "a", "b", "b"};
  jobs[4].second.node.strategy = sync::StrategyNamed("ps-2017").value();
  for (const auto& [name, options] : jobs) {
    SCOPED_TRACE(name);
    const double most = MostOf(options);
    EXPECT_LE(most, 1.0);
    EXPECT_GE(most, 0.8) << "while it is measured a link is as busy as it may be";
  }
}

TEST(Bandwidth, IsAllUsedWhereTheLinkIsTheBound) {
  JobOptions options = HeldJob(4);
  options.node.probe_bytes = 0;
  options.collectives = false;
  options.layers = InForwardOrder({Dense("large", 400'000)});
  EXPECT_GE(MostOf(options), 0.85);
}

TEST(Bandwidth, ASlowerLinkIsWhatThePlanCountsWith) { EXPECT_LE(MostOf(HeldJob(3), 0.4 * kBandwidth), 0.45); }

TEST(Bandwidth, ThatIsTooLittleForTheMembersIsRefused) {
  JobOptions options = HeldJob(8);
  options.node.bandwidth = 500e3;
  VirtualWorld world({.simulation = {}, .network = {}, .rate = 125e6});
  Job job(world, options);
  ASSERT_TRUE(job.Run());
  EXPECT_THAT(job.outcome(MemberId(0)).ended.message(), HasSubstr("the least bandwidth of a member is 4 Mbit/s, expected at least 6.19 Mbit/s for 8 members"));
}

}  // namespace
}  // namespace poseidon::integration
