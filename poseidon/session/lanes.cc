// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/lanes.h"

#include <algorithm>
#include <string>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::session {

Lanes::Lanes(Member& member, Ending& ending, Liveness& liveness, std::function<void(MemberId, ByteBuffer)> on_message)
    : member_(member), ending_(ending), liveness_(liveness), on_message_(std::move(on_message)) {}

// A lane dies where it lives, after what was posted to it.
Lanes::~Lanes() {
  for (Entry& entry : lanes_) entry.executor.Post([lane = std::move(entry.lane)] {});
}

template <typename F>
void Lanes::Post(const F& f) const {
  for (const Entry& entry : lanes_) {
    entry.executor.Post([lane = entry.lane.get(), f]() mutable { f(*lane); });
  }
}

// ---- opening

void Lanes::Open(std::uint16_t lanes, const sync::ExchangeEnvironment& env, std::function<void()> open) {
  POSEIDON_ASSERT_ON(member_.env.io);
  POSEIDON_CHECK(!begun_, "lanes are opened once");
  begun_ = true;
  on_open_ = std::move(open);
  if (lanes == 1) {
    open_ = true;
    return std::exchange(on_open_, {})();
  }
  for (std::uint16_t number = 1; number < lanes; ++number) {
    const Result<LaneServices> services =
        member_.env.lane ? member_.env.lane(number) : Result<LaneServices>(Unimplemented("this member has one lane only"));
    if (!services.ok()) {
      return ending_.Abort(JobFailure(
          services.status().WithPrefix("cannot open lane " + std::to_string(number) + " of the network"), member_.self.value()));
    }
    Make(*services, number, env);
  }
  for (const auto& [from, address] : std::exchange(early_, {})) OnAddress(from, address);
}

void Lanes::Make(LaneServices services, std::uint16_t number, const sync::ExchangeEnvironment& env) {
  const transport::Address listen{member_.options.listen.host, 0};
  auto made = std::make_unique<Lane>(services,
                                     Lane::Setting{.number = number,
                                                   .self = member_.self,
                                                   .generation = member_.mesh.generation(),
                                                   .roster = member_.roster,
                                                   .listen = listen,
                                                   .join_timeout = member_.options.join_timeout,
                                                   .flow = member_.options.strategy.flow,
                                                   .trace = member_.env.trace},
                                     HooksOf(number));
  Entry& entry = lanes_.emplace_back(Entry{services.executor, std::move(made)});
  auto listening = alive_.Guard([this, number](const Result<std::uint16_t>& port) { OnListening(number, port); });
  const std::function<void(const Status&)> failed =
      alive_.Guard([this](const Status& why) { ending_.Abort(JobFailure(why)); });
  const std::function<void(const Status&)> fail = [&io = member_.env.io, failed](const Status& why) {
    io.Post([failed, why] { failed(why); });
  };
  entry.executor.Post([lane = entry.lane.get(), env, fail, listening = std::move(listening),
                       &io = member_.env.io]() mutable {
    lane->MakeExchanges(env, fail);
    io.Post([port = lane->Listen(), listening = std::move(listening)]() mutable { listening(port); });
  });
}

// The hooks are called where the lane lives, perhaps when this member is gone: each posts what it has to say.
Lane::Hooks Lanes::HooksOf(std::uint16_t number) {
  Executor& io = member_.env.io;
  const std::function<void()> met = alive_.Guard([this, number] { OnMet(number); });
  const std::function<void(const Status&)> failed = alive_.Guard([this](const Status& why) { ending_.Abort(why); });
  const std::function<void(MemberId, const Status&)> lost =
      alive_.Guard([this](MemberId peer, const Status& why) { liveness_.OnPeerClosed(peer, why); });
  const std::function<void(MemberId, ByteBuffer)> message =
      alive_.Guard([this](MemberId from, ByteBuffer bytes) { on_message_(from, std::move(bytes)); });
  return {
      .met = [&io, met] { io.Post(met); },
      .failed = [&io, failed](const Status& why) { io.Post([failed, why] { failed(why); }); },
      .lost = [&io, lost](MemberId peer, const Status& why) { io.Post([lost, peer, why] { lost(peer, why); }); },
      .message =
          [&io, message](MemberId from, ByteBuffer bytes) {
            io.Post([message, from, bytes = std::move(bytes)]() mutable { message(from, std::move(bytes)); });
          },
  };
}

// As on lane 0, each member connects to those before it in the roster, so those behind it have to know the address.
void Lanes::OnListening(std::uint16_t number, const Result<std::uint16_t>& port) {
  if (!port.ok()) return ending_.Abort(JobFailure(port.status(), member_.self.value()));
  if (member_.roster.size() == 1) return OnMet(number);
  for (const wire::RosterEntry& entry : member_.roster) {
    if (entry.member > member_.self) member_.SendTo(entry.member, wire::LaneAddress{number, *port});
  }
}

void Lanes::OnAddress(MemberId from, const wire::LaneAddress& address) {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (lanes_.empty()) {  // the plan of the peer was there before ours
    if (early_.size() < member_.roster.size() * plan::kMaxLanes) early_.emplace_back(from, address);
    return;
  }
  if (address.lane > lanes_.size() || from >= member_.self) {
    return liveness_.OnPeerClosed(from, DataLoss("an address came for a lane that this member does not connect to"));
  }
  const Entry& entry = lanes_[address.lane - 1];
  entry.executor.Post([lane = entry.lane.get(), from, port = address.port] { lane->Connect(from, port); });
}

void Lanes::OnMet(std::uint16_t number) {
  lanes_[number - 1].met = true;
  if (open_ || !std::ranges::all_of(lanes_, &Entry::met) || member_.phase == Phase::kEnded) return;
  open_ = true;
  std::exchange(on_open_, {})();
}

// ---- open

std::vector<sync::LanedExchange::Other> Lanes::ExchangesOf(plan::Scheme scheme) const {
  POSEIDON_CHECK(open_, "lanes are open");
  std::vector<sync::LanedExchange::Other> others;
  for (const Entry& entry : lanes_) others.push_back({entry.executor, entry.lane->exchanges().Of(scheme)});
  return others;
}

void Lanes::SetFlow(const messaging::Flow& flow) {
  POSEIDON_ASSERT_ON(member_.env.io);
  member_.mesh.SetFlow(flow);
  Post([flow](Lane& lane) { lane.SetFlow(flow); });
}

void Lanes::Hold(const messaging::Paces& paces, const std::set<MemberId>& layer_peers) {
  POSEIDON_ASSERT_ON(member_.env.io);
  member_.mesh.Hold(paces, layer_peers);
  Post([paces, layer_peers](Lane& lane) { lane.Hold(paces, layer_peers); });
}

void Lanes::Collect(UniqueFunction<void(const LaneTotals&)> then) {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (lanes_.empty()) return then({});
  struct Sum {
    std::size_t left;
    LaneTotals totals;
    UniqueFunction<void(const LaneTotals&)> then;
  };
  auto sum = std::make_shared<Sum>(Sum{lanes_.size(), {}, std::move(then)});
  Post([&io = member_.env.io, sum](const Lane& lane) {
    io.Post([sum, totals = lane.Totals()] {
      sum->totals += totals;
      if (--sum->left == 0) sum->then(sum->totals);
    });
  });
}

std::vector<std::future<LaneTotals>> Lanes::Ask() const {
  POSEIDON_ASSERT_ON(member_.env.io);
  std::vector<std::future<LaneTotals>> answers;
  for (const Entry& entry : lanes_) {
    std::promise<LaneTotals> answer;
    answers.push_back(answer.get_future());
    entry.executor.Post([lane = entry.lane.get(), answer = std::move(answer)]() mutable { answer.set_value(lane->Totals()); });
  }
  return answers;
}

std::uint64_t Lanes::work() {
  if (!lanes_.empty()) {
    Collect(alive_.Guard([this](const LaneTotals& totals) { work_ = totals.traffic.work(); }));
  }
  return work_;
}

void Lanes::Close(const Status& reason, bool orderly, Task then) {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (lanes_.empty()) return then();
  struct Left {
    std::size_t lanes;
    Task then;
  };
  auto left = std::make_shared<Left>(Left{lanes_.size(), std::move(then)});
  Post([reason, orderly, &io = member_.env.io, left](Lane& lane) {
    lane.Close(reason, orderly, [&io, left] {
      io.Post([left] {
        if (--left->lanes == 0) left->then();
      });
    });
  });
}

}  // namespace poseidon::session
