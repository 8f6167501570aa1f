// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_FORMATION_H_
#define POSEIDON_SESSION_FORMATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/messaging/channel.h"
#include "poseidon/session/ending.h"
#include "poseidon/session/link_probe.h"
#include "poseidon/session/liveness.h"
#include "poseidon/session/member.h"
#include "poseidon/transport/transport.h"

namespace poseidon::session {

// From a listener to a job in which everybody is connected to everybody and has measured its link: joining at
// the coordinator, the roster, the connections, the probe. In rank 0's process it also holds the connections of
// those who want to join.
//
// Thread: the I/O executor. Failure: what keeps the job from forming ends it through Ending. Lifetime: member,
// ending and liveness outlive it.
class Formation {
 public:
  // `on_roster` is called once, when the member's identity and roster are known and before anything of a peer
  // can come.
  Formation(Member& member, Ending& ending, Liveness& liveness, std::function<void()> on_roster);
  ~Formation();

  // Binds the listener. Then address() is known.
  Status Listen();
  const transport::Address& address() const { return listener_->address(); }
  // Joins the job; `ready` fires when every member has met every other.
  void Start(Completion ready);
  // Where the members' bandwidth is limited, the link is taken to be as fast as that allows.
  const LinkMeasurement& link() const { return link_; }

  // The first message of a connection says what it is for: joining (at the coordinator's host), the
  // coordinator's answer (at a joiner), or a peer of the roster.
  Status OnIntroduction(const std::shared_ptr<messaging::Channel>& stranger, ConstBytes message);
  void OnStrangerClosed(const messaging::Channel& stranger, const Status& reason);
  Status OnWelcome(const wire::Welcome& welcome);
  void OnAllConnected();
  void OnAllMeasured();
  void OnEcho(MemberId from, const wire::Echo& echo);
  void OnProbeReport(MemberId from, const wire::ProbeReport& report);

  // For the coordinator of this process.
  void SendToJoiner(coordinator::ConnectionId connection, const wire::Message& message);
  void AdmitJoiner(coordinator::ConnectionId connection, MemberId member);
  void DismissJoiner(coordinator::ConnectionId connection);

  // The job ends: nothing is waited for any more, and Start completes with Member::failure.
  void Stop();
  void Abandon();

 private:
  void JoinCoordinator();
  void AwaitWelcome();
  void BeatBeforeWelcome(const std::shared_ptr<messaging::Channel>& coordinator);
  void BeatToJoiners();
  void LimitStart();
  std::int32_t CoordinatorIfHere() const;
  coordinator::ConnectionId JoinerOf(const std::shared_ptr<messaging::Channel>& stranger);
  void ConnectToPeers();
  Status OnJoin(const std::shared_ptr<messaging::Channel>& stranger, const wire::Join& join);
  Status OnAnswer(const std::shared_ptr<messaging::Channel>& coordinator, const wire::Message& answer);
  Status OnHello(const std::shared_ptr<messaging::Channel>& channel, const wire::Hello& hello);
  void OnPeerConnected();
  bool HoldToBandwidth();

  Member& member_;
  Ending& ending_;
  Liveness& liveness_;
  const std::function<void()> on_roster_;
  std::unique_ptr<transport::Listener> listener_;
  Completion ready_;
  TimePoint started_at_;
  TimerId join_timer_ = 0;  // until everybody has met
  TimerId beat_timer_ = 0;  // until the welcome
  std::map<coordinator::ConnectionId, std::shared_ptr<messaging::Channel>> joiners_;
  std::uint64_t next_connection_ = 1;
  const messaging::Channel* to_coordinator_ = nullptr;  // of a joiner; compared, never used
  std::vector<std::pair<std::shared_ptr<messaging::Channel>, wire::Hello>> early_hellos_;
  std::unique_ptr<LinkProbe> probe_;
  LinkMeasurement link_;
  Alive alive_;
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_FORMATION_H_
