// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_LANE_H_
#define POSEIDON_SESSION_LANE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/base/executor.h"
#include "poseidon/base/result.h"
#include "poseidon/messaging/frame_router.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/session/node_options.h"
#include "poseidon/sync/exchange.h"
#include "poseidon/sync/exchanges.h"
#include "poseidon/transport/transport.h"
#include "poseidon/wire/messages.h"

namespace poseidon::session {

// What a lane's frames have moved, and what its exchanges have allocated.
struct LaneTotals {
  messaging::Traffic traffic;
  transport::ConnectionCounters wire;
  std::uint64_t allocated_bytes = 0;
  std::uint64_t declared_bytes = 0;
  LaneTotals& operator+=(const LaneTotals& other);
};

// A lane beside lane 0: an executor of its own, a connection to every other member, and the exchanges of the layers that it
// carries (plan/lanes.h). It has no control messages of its own: who lives, plans and collectives are lane 0's.
//
// Thread: everything on the lane's executor, the hooks too, but the constructor. Lifetime: destroyed on its executor; what
// `setting` refers to outlives it.
class Lane final : public messaging::MeshObserver {
 public:
  struct Hooks {
    // It has a connection to every other member.
    std::function<void()> met;
    // It cannot have one.
    std::function<void(const Status&)> failed;
    // The connection to a peer has ended.
    std::function<void(MemberId, const Status&)> lost;
    // A peer sent a control message on it.
    std::function<void(MemberId, ByteBuffer)> message;
  };
  struct Setting {
    std::uint16_t number = 1;
    MemberId self;
    Generation generation;
    std::vector<wire::RosterEntry> roster;
    transport::Address listen;  // any port
    Duration join_timeout{0};
    messaging::Flow flow;
    TraceRecorder* trace = nullptr;
  };

  Lane(LaneServices services, Setting setting, Hooks hooks);

  // Binds the listener, and returns its port.
  Result<std::uint16_t> Listen();
  // Connects to a member before this one in the roster, whose lane listens at `port`.
  void Connect(MemberId peer, std::uint16_t port);
  // Makes the exchanges of this lane. `env` is lane 0's; its executor, mesh, share of layers and `fail` are replaced.
  void MakeExchanges(sync::ExchangeEnvironment env, const std::function<void(const Status&)>& fail);
  const sync::Exchanges& exchanges() const { return exchanges_; }

  void SetFlow(const messaging::Flow& flow) { mesh_.SetFlow(flow); }
  void Hold(const messaging::Paces& paces, std::set<MemberId> layer_peers) { mesh_.Hold(paces, std::move(layer_peers)); }
  // Closes every connection, then calls `closed`: from then on no frame reads or writes memory that was lent. After an
  // orderly end the peers are told first, so that they do not take the end of a connection that overtakes the coordinator's
  // word for a loss; that has as long as last messages have (kTimeForLastMessages).
  void Close(const Status& reason, bool orderly, Task closed);
  LaneTotals Totals() const;

 private:
  Status OnControl(MemberId from, ConstBytes message) override;
  Status OnIntroduction(const std::shared_ptr<messaging::Channel>& stranger, ConstBytes message) override;
  ByteBuffer LastWords(MemberId peer, const Status& reason) override;
  void OnPeerClosed(MemberId peer, const Status& reason) override;
  void OnStrangerClosed(const messaging::Channel&, const Status&) override {}
  void OnPeerConnected();
  void OnAllClosed();

  Executor& executor_;
  transport::Context& context_;
  const Setting setting_;
  const Hooks hooks_;
  messaging::Mesh mesh_;
  messaging::FrameRouter router_;
  sync::Exchanges exchanges_;
  std::unique_ptr<transport::Listener> listener_;
  std::set<MemberId> done_;  // peers whose job has ended well
  bool closing_ = false;
  Status reason_;  // to close with
  Task closed_;
  TimerId last_messages_ = 0;
  Alive alive_;
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_LANE_H_
