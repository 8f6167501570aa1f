// SPDX-License-Identifier: Apache-2.0
// Bounded staleness with the keys and frames of the store as it is: a shard that holds the
// weights applies every update as it comes and answers a worker as soon as no other is more than so
// many steps behind it (Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel
// Parameter Server", NIPS 2013). Only the shard and its rule are new; everything below is the real
// thing, in virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "poseidon/messaging/mesh.h"
#include "poseidon/tensor/view.h"
#include "poseidon/wire/messages.h"
#include "tests/integration/world.h"

namespace poseidon::integration {
namespace {

constexpr MemberId kShardMember{9};
constexpr std::uint64_t kElements = 5000;  // several frames

// A rank's clock counts the steps whose contribution it has delivered in full. Full synchrony is staleness 0.
//
// How many steps every rank has delivered. Pre: at least one clock.
std::uint64_t CompleteClock(std::span<const std::uint64_t> clocks) {
  return *std::min_element(clocks.begin(), clocks.end());
}

// True when a worker that has delivered `reader_clock` steps may read and go on: every update of the
// steps before reader_clock - staleness is in.
bool MayRead(std::span<const std::uint64_t> clocks, std::uint64_t reader_clock, std::uint64_t staleness) {
  return CompleteClock(clocks) + staleness >= reader_clock;
}

// A member: its mesh, and what every one of them does alike.
class Peer : public messaging::MeshObserver {
 public:
  explicit Peer(Site& site)
      : io_(site.runtime().io()),
        mesh_(io_, {.flow = {.chunk_bytes = 3000, .write_bytes = 6000}}, *this) {
    mesh_.set_generation(Generation(1));
  }
  Status OnControl(MemberId, ConstBytes) override { return DataLoss("nothing is said here"); }
  Status OnIntroduction(const std::shared_ptr<messaging::Channel>& stranger,
                        ConstBytes message) override {
    POSEIDON_ASSIGN_OR_RETURN(wire::Message decoded, wire::Decode(message));
    mesh_.Identify(stranger, std::get<wire::Hello>(decoded).from);
    return OkStatus();
  }
  void OnPeerClosed(MemberId, const Status& reason) override {
    EXPECT_TRUE(over_) << reason.ToString();
  }
  void OnStrangerClosed(const messaging::Channel&, const Status&) override {}
  void Over() { over_ = true; }

 protected:
  Executor& io_;
  messaging::Mesh mesh_;
  bool over_ = false;
};

// Holds the weights of one key; answers by the rule of MayRead.
class WeightShard final : public Peer, public messaging::FrameSink {
 public:
  WeightShard(Site& site, std::uint16_t ranks, std::uint64_t staleness)
      : Peer(site),
        staleness_(staleness),
        weights_(kElements, 0),
        clocks_(ranks, 0),
        updates_(ranks, std::vector<double>(kElements)),
        arrived_(ranks, 0) {
    mesh_.Route(wire::FrameType::kPush, *this);
    listener_ = site.runtime()
                    .context()
                    .Listen(site.listen(), [this](auto c) { mesh_.AddStranger(std::move(c)); })
                    .value();
  }
  const transport::Address& address() const { return listener_->address(); }
  const std::vector<double>& weights() const { return weights_; }
  std::uint64_t widest_lead() const { return widest_lead_; }

  Result<MutableBytes> PlaceFor(MemberId, const wire::FrameHeader& header) override {
    EXPECT_EQ(header.offset, arrived_[header.rank.value()]);
    return ViewOf(std::span(updates_[header.rank.value()]))
        .span()
        .subspan(header.offset, header.length);
  }
  Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes) override {
    const std::uint16_t rank = header.rank.value();
    EXPECT_EQ(header.step.value(), clocks_[rank]) << "a rank's clock is the step it pushes";
    arrived_[rank] += header.length;
    if (arrived_[rank] < header.total) return OkStatus();
    arrived_[rank] = 0;
    for (std::uint64_t i = 0; i < kElements; ++i) weights_[i] += updates_[rank][i];
    ++clocks_[rank];
    const auto [slowest, fastest] = std::minmax_element(clocks_.begin(), clocks_.end());
    widest_lead_ = std::max(widest_lead_, *fastest - *slowest);
    waiting_.emplace_back(from, clocks_[rank]);
    AnswerWhoMayRead();
    return OkStatus();
  }

 private:
  void AnswerWhoMayRead() {
    std::erase_if(waiting_, [this](const auto& reader) {
      if (!MayRead(clocks_, reader.second, staleness_)) return false;
      messaging::Outgoing out;
      out.header.type = wire::FrameType::kResult;
      out.header.step = Step(reader.second);
      out.header.dtype = DType::kF64;
      out.header.total = kElements * sizeof(double);
      const ConstBytes now = ViewOf(std::span(weights_)).span();
      out.owned.assign(now.begin(), now.end());
      out.priority = {messaging::Priority::kData, reader.second, 0};
      mesh_.Send(reader.first, std::move(out));
      return true;
    });
  }

  const std::uint64_t staleness_;
  std::unique_ptr<transport::Listener> listener_;
  std::vector<double> weights_;
  std::vector<std::uint64_t> clocks_;
  std::vector<std::vector<double>> updates_;
  std::vector<std::uint64_t> arrived_;
  std::vector<std::pair<MemberId, std::uint64_t>> waiting_;
  std::uint64_t widest_lead_ = 0;
};

// Adds 1 to the elements that are its own (every ranks-th), step after step.
class StaleWorker final : public Peer, public messaging::FrameSink {
 public:
  StaleWorker(Site& site, Rank rank, std::uint16_t ranks, std::uint64_t staleness,
              std::uint64_t steps, Duration compute, Tally& done)
      : Peer(site),
        rank_(rank),
        ranks_(ranks),
        staleness_(staleness),
        steps_(steps),
        compute_(compute),
        done_(done),
        update_(kElements, 0),
        weights_(kElements, 0) {
    for (std::uint64_t i = rank.value(); i < kElements; i += ranks) update_[i] = 1;
    mesh_.Route(wire::FrameType::kResult, *this);
  }
  void Connect(Site& site, const transport::Address& shard) {
    site.runtime().context().Connect(shard, std::chrono::seconds(10), [this](auto connection) {
      const auto channel = mesh_.AddStranger(std::move(connection).value());
      mesh_.Identify(channel, kShardMember);
      mesh_.SendControl(*channel,
                        wire::Encode(wire::Hello{Generation(1), MemberId(rank_.value()), {}}));
      Compute();
    });
  }
  TimePoint finished_at() const { return finished_at_; }

  Result<MutableBytes> PlaceFor(MemberId, const wire::FrameHeader& header) override {
    return ViewOf(std::span(weights_)).span().subspan(header.offset, header.length);
  }
  Status OnFrame(MemberId, const wire::FrameHeader& header, ConstBytes payload) override {
    if (header.offset + payload.size() < header.total) return OkStatus();
    EXPECT_EQ(header.step.value(), clock_);
    // The reader has its own updates, and everybody's of the steps before clock - staleness; nobody is further
    // ahead of it than the rule lets the others be.
    for (std::uint64_t i = 0; i < kElements; ++i) {
      const auto seen = static_cast<std::uint64_t>(weights_[i]);
      if (i % ranks_ == rank_.value()) {
        EXPECT_EQ(seen, clock_);
      } else {
        EXPECT_GE(seen + staleness_, clock_);
        EXPECT_LE(seen, clock_ + staleness_ + 1);
      }
    }
    if (clock_ < steps_) {
      Compute();
    } else {
      finished_at_ = io_.now();
      done_.Add();
    }
    return OkStatus();
  }

 private:
  void Compute() {
    // Every fifth step takes five times as long, and not everybody's at the same time.
    const bool slow = (clock_ + rank_.value() * 2) % 5 == 0;
    io_.PostAfter(slow ? 5 * compute_ : compute_, [this] { Push(); });
  }
  void Push() {
    messaging::Outgoing out;
    out.header.type = wire::FrameType::kPush;
    out.header.step = Step(clock_++);
    out.header.rank = rank_;
    out.header.dtype = DType::kF64;
    out.header.total = kElements * sizeof(double);
    out.payload = ViewOf(std::span(update_)).span();
    out.priority = {messaging::Priority::kData, clock_, 0};
    mesh_.Send(kShardMember, std::move(out));
  }

  const Rank rank_;
  const std::uint16_t ranks_;
  const std::uint64_t staleness_;
  const std::uint64_t steps_;
  const Duration compute_;
  Tally& done_;
  std::vector<double> update_;
  std::vector<double> weights_;
  std::uint64_t clock_ = 0;
  TimePoint finished_at_;
};

struct Course {
  double seconds = 0;
  std::uint64_t widest_lead = 0;
};

Course Train(std::uint64_t staleness) {
  constexpr std::uint16_t kRanks = 3;
  constexpr std::uint64_t kSteps = 50;
  VirtualWorld world(VirtualOptions{.rate = 1e9});
  const auto shard_site = world.MakeSite("shard");
  std::vector<std::unique_ptr<Site>> sites;
  Tally done;
  std::unique_ptr<WeightShard> shard;
  std::vector<std::unique_ptr<StaleWorker>> workers(kRanks);
  world.RunOn(shard_site->runtime().io(),
              [&] { shard = std::make_unique<WeightShard>(*shard_site, kRanks, staleness); });
  for (std::uint16_t r = 0; r < kRanks; ++r) {
    sites.push_back(world.MakeSite("w" + std::to_string(r)));
    world.RunOn(sites[r]->runtime().io(), [&] {
      workers[r] = std::make_unique<StaleWorker>(*sites[r], Rank(r), kRanks, staleness, kSteps,
                                                 std::chrono::milliseconds(2), done);
      workers[r]->Connect(*sites[r], shard->address());
    });
  }
  Course course;
  EXPECT_TRUE(world.Await(done, kRanks)) << "somebody waits for ever";
  for (const double weight : shard->weights()) EXPECT_EQ(weight, static_cast<double>(kSteps));
  for (const auto& worker : workers) {
    course.seconds = std::max(course.seconds, ToSeconds(worker->finished_at().since_origin));
    worker->Over();
  }
  shard->Over();
  course.widest_lead = shard->widest_lead();
  for (std::uint16_t r = 0; r < kRanks; ++r) {
    world.RunOn(sites[r]->runtime().io(), [&] { workers[r].reset(); });
  }
  world.RunOn(shard_site->runtime().io(), [&] { shard.reset(); });
  return course;
}

TEST(Staleness, FullSynchronyIsStalenessZero) {
  const std::vector<std::uint64_t> clocks = {5, 4, 6};
  EXPECT_EQ(CompleteClock(clocks), 4u);
  EXPECT_TRUE(MayRead(clocks, 4, 0));
  EXPECT_FALSE(MayRead(clocks, 5, 0));
  EXPECT_TRUE(MayRead(clocks, 5, 1));
  EXPECT_TRUE(MayRead(clocks, 6, 2));
  EXPECT_FALSE(MayRead(clocks, 7, 2));
}

TEST(Staleness, KeysAndClocksExpressIt) {
  const Course synchronous = Train(0);
  const Course stale = Train(2);
  // A worker goes on as soon as nobody is more than the staleness behind, and no sooner.
  EXPECT_EQ(synchronous.widest_lead, 1u);
  EXPECT_EQ(stale.widest_lead, 3u);
  // The purpose of staleness: slow steps of different workers no longer add up.
  EXPECT_LT(stale.seconds, 0.8 * synchronous.seconds);
}

}  // namespace
}  // namespace poseidon::integration
