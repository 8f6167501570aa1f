// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/lane.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "poseidon/session/ending.h"
#include "poseidon/session/exchanges.h"
#include "poseidon/session/member.h"

namespace poseidon::session {
namespace {

// The last message on a lane whose job has ended well.
ByteBuffer Goodbye() { return wire::Encode(wire::AllReached{wire::Stage::kDone, {}}); }

}  // namespace

LaneTotals& LaneTotals::operator+=(const LaneTotals& other) {
  traffic += other.traffic;
  wire += other.wire;
  allocated_bytes += other.allocated_bytes;
  declared_bytes += other.declared_bytes;
  return *this;
}

Lane::Lane(LaneServices services, Setting setting, Hooks hooks)
    : executor_(services.executor),
      context_(services.context),
      setting_(std::move(setting)),
      hooks_(std::move(hooks)),
      mesh_(executor_, {.flow = setting_.flow, .trace = setting_.trace}, *this),
      router_([this](const wire::FrameHeader& header) { return exchanges_.SinkOf(header); }) {}

Result<std::uint16_t> Lane::Listen() {
  POSEIDON_ASSERT_ON(executor_);
  mesh_.set_generation(setting_.generation);
  POSEIDON_ASSIGN_OR_RETURN(
      listener_, context_.Listen(setting_.listen, alive_.Guard([this](std::unique_ptr<transport::Connection> c) {
        mesh_.AddStranger(std::move(c));
      })));
  return listener_->address().port;
}

void Lane::Connect(MemberId peer, std::uint16_t port) {
  POSEIDON_ASSERT_ON(executor_);
  context_.Connect({setting_.roster[peer.value()].listen_host, port}, setting_.join_timeout,
                   alive_.Guard([this, peer](Result<std::unique_ptr<transport::Connection>> connection) {
                     if (closing_) return;
                     if (!connection.ok()) {
                       return hooks_.failed(JobFailure(
                           connection.status().WithPrefix("cannot reach lane " + std::to_string(setting_.number) + " of " +
                                                          NameOf(setting_.roster, peer.value())),
                           peer.value()));
                     }
                     const auto channel = mesh_.AddStranger(*std::move(connection));
                     mesh_.Identify(channel, peer);
                     mesh_.SendControl(*channel, wire::Encode(wire::Hello{setting_.generation, setting_.self, peer,
                                                                          setting_.number}));
                     OnPeerConnected();
                   }));
}

Status Lane::OnIntroduction(const std::shared_ptr<messaging::Channel>& stranger, ConstBytes bytes) {
  POSEIDON_ASSIGN_OR_RETURN(const wire::Message message, wire::Decode(bytes));
  const auto* const hello = std::get_if<wire::Hello>(&message);
  if (hello == nullptr ||
      !IsForUs(*hello, setting_.generation, setting_.roster, setting_.self, setting_.number) ||
      !mesh_.Identify(stranger, hello->from)) {
    return DataLoss("a connection to lane " + std::to_string(setting_.number) + " began with no hello of a member for it");
  }
  OnPeerConnected();
  return OkStatus();
}

void Lane::OnPeerConnected() {
  if (mesh_.peers().size() + 1 < setting_.roster.size()) return;
  listener_.reset();  // nobody else is to come
  hooks_.met();
}

ByteBuffer Lane::LastWords(MemberId peer, const Status& reason) {
  return WordsOfLoss(setting_.generation, setting_.roster, setting_.self, peer, reason);
}

Status Lane::OnControl(MemberId from, ConstBytes message) {
  if (std::ranges::equal(message, Goodbye())) {
    done_.insert(from);
    return OkStatus();
  }
  hooks_.message(from, ByteBuffer(message.begin(), message.end()));
  return OkStatus();
}

void Lane::OnPeerClosed(MemberId peer, const Status& reason) {
  if (closing_) {
    if (mesh_.peers().empty()) OnAllClosed();
  } else if (!done_.contains(peer)) {
    hooks_.lost(peer, reason);
  }
}

void Lane::MakeExchanges(sync::ExchangeEnvironment env, const std::function<void(const Status&)>& fail) {
  POSEIDON_ASSERT_ON(executor_);
  const sync::ExchangeEnvironment own{.io = executor_,
                                      .compute = env.compute,
                                      .mesh = mesh_,
                                      .among = std::move(env.among),
                                      .flat = std::move(env.flat),
                                      .engine = env.engine,
                                      .trace = env.trace,
                                      .strategy = env.strategy,
                                      .lane = {static_cast<std::uint16_t>(env.lane.lane + setting_.number), env.lane.lanes},
                                      .fail = fail};
  std::vector<std::unique_ptr<sync::Exchange>> schemes = MakeBareExchanges(own);
  for (std::unique_ptr<sync::Exchange>& exchange : schemes) exchanges_.Add(std::move(exchange));
  mesh_.RouteExchanges(router_);
}

void Lane::Close(const Status& reason, bool orderly, Task closed) {
  POSEIDON_ASSERT_ON(executor_);
  POSEIDON_CHECK(!closing_, "a lane is closed once");
  closing_ = true;
  reason_ = reason;
  closed_ = std::move(closed);
  listener_.reset();
  if (!orderly || mesh_.peers().empty()) return OnAllClosed();
  for (const MemberId peer : mesh_.peers()) mesh_.SendControl(peer, Goodbye());
  mesh_.CloseAllWhenDrained(reason);
  last_messages_ = executor_.PostAfter(kTimeForLastMessages, alive_.Guard([this] {
    last_messages_ = 0;
    OnAllClosed();
  }));
}

void Lane::OnAllClosed() {
  if (last_messages_ != 0) executor_.Cancel(std::exchange(last_messages_, 0));
  mesh_.CloseAll(reason_);
  if (closed_) std::exchange(closed_, {})();
}

LaneTotals Lane::Totals() const {
  POSEIDON_ASSERT_ON(executor_);
  return {.traffic = mesh_.traffic(),
          .wire = mesh_.wire_counters(),
          .allocated_bytes = exchanges_.allocated_bytes(),
          .declared_bytes = exchanges_.declared_bytes()};
}

}  // namespace poseidon::session
