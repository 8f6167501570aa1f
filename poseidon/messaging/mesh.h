// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_MESSAGING_MESH_H_
#define POSEIDON_MESSAGING_MESH_H_

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "poseidon/base/check.h"
#include "poseidon/base/executor.h"
#include "poseidon/base/trace.h"
#include "poseidon/messaging/budget.h"
#include "poseidon/messaging/channel.h"
#include "poseidon/messaging/frame_sink.h"
#include "poseidon/messaging/traffic.h"

namespace poseidon::messaging {

// The mesh calls its owner by these about peers and their control messages.
class MeshObserver {
 public:
  virtual ~MeshObserver() = default;
  // A whole control message from an identified peer. An error closes the connection.
  virtual Status OnControl(MemberId from, ConstBytes message) = 0;
  // The first control message of a connection that has no identity yet (at most 64 KiB, unless we have spoken to it
  // first). The observer may call Identify for `stranger`. An error closes the connection.
  virtual Status OnIntroduction(const std::shared_ptr<Channel>& stranger, ConstBytes message) = 0;
  // The peer sent what it may not: returns the control message that says why, sent before its connection
  // ends. Empty: nothing is sent.
  virtual ByteBuffer LastWords(MemberId, const Status& /*reason*/) { return {}; }
  // The connection to an identified peer has ended.
  virtual void OnPeerClosed(MemberId peer, const Status& reason) = 0;
  // A connection that never got an identity has ended.
  virtual void OnStrangerClosed(const Channel& stranger, const Status& reason) = 0;
};

struct MeshOptions {
  Flow flow;
  std::size_t max_control_bytes = 64u << 20;
  TraceRecorder* trace = nullptr;  // records data frames sent and received; may be null
};

// One channel to every other member; frames go out by member and come in by type. Knows nothing of
// what they mean.
//
// Thread: lives on `executor`. Lifetime: sinks and observer outlive it; destruction closes every
// channel without further callbacks.
class Mesh final : public ChannelReceiver {
 public:
  Mesh(Executor& executor, MeshOptions options, MeshObserver& observer);
  ~Mesh() override;

  // Frames of `type` go to `sink` from now on.
  void Route(wire::FrameType type, FrameSink& sink);
  // The same of all types of frames by which layers are exchanged, but for those within a host.
  void RouteExchanges(FrameSink& sink);
  // Frames of other generations are dropped unread (control frames are not).
  void set_generation(Generation generation) {
    POSEIDON_ASSERT_ON(executor_);
    generation_ = generation;
  }
  Generation generation() const { return generation_; }

  // Takes a connection whose peer is not known yet; the returned channel is alive while open.
  std::shared_ptr<Channel> AddStranger(std::unique_ptr<transport::Connection> connection);
  // From now on `channel` is the connection to `peer`. False when `peer` has one already.
  bool Identify(const std::shared_ptr<Channel>& channel, MemberId peer);

  // Of every connection, from now on.
  void SetFlow(const Flow& flow);
  // Holds the connections to these rates, whatever their flow allows, from now on, and those that get an identity later. Layers are
  // exchanged with `layer_peers`.
  void Hold(const Paces& paces, std::set<MemberId> layer_peers);
  // Sends to an identified peer; a peer without a channel completes `left` with kUnavailable.
  // Generation is stamped here.
  void Send(MemberId to, Outgoing message);
  void SendControl(MemberId to, ByteBuffer message);
  // To every connection that has no identity.
  void SendControlToStrangers(const ByteBuffer& message);
  // To a channel, identified or not. A stranger that we have spoken to may send heartbeats.
  void SendControl(Channel& to, ByteBuffer message);
  void SendHeartbeat(Channel& to);

  // Closes every channel once its queue has left, for a goodbye.
  void CloseAllWhenDrained(const Status& reason);
  void CloseAll(const Status& reason);
  // True when no channel has anything to send.
  bool drained() const;

  std::vector<MemberId> peers() const;
  const Flow& flow() const { return options_.flow; }
  bool HasPeer(MemberId peer) const { return channels_.contains(peer); }
  const Traffic& traffic() const { return traffic_; }
  // Summed over all connections, closed ones included.
  transport::ConnectionCounters wire_counters() const;
  // When bytes last came from `peer`.
  TimePoint last_received(MemberId peer) const;
  std::size_t strangers() const { return strangers_.size(); }

  // ChannelReceiver:
  Result<MutableBytes> PlaceFor(Channel& from, const wire::FrameHeader& header) override;
  Status OnFrame(Channel& from, const wire::FrameHeader& header, ConstBytes payload) override;
  void OnSent(Channel& to, const wire::FrameHeader& header, TimePoint begin) override;
  std::optional<Outgoing> LastWords(Channel& to, const Status& reason) override;
  void OnLoss(Channel& channel) override;
  void OnClosed(Channel& channel, const Status& reason) override;

 private:
  struct Stranger {
    std::shared_ptr<Channel> channel;
    bool introduced = false;  // its introduction was taken, or ours was sent; it may send heartbeats
  };
  struct Control {
    ByteBuffer message;  // of which `have` bytes have arrived
    std::size_t have = 0;
  };
  Status OnControlFrame(Channel& from, const wire::FrameHeader& header, ConstBytes payload);
  const MemberId* PeerOf(const Channel& channel) const;
  double PaceOf(MemberId peer) const { return layer_peers_.contains(peer) ? paces_.layers : paces_.others; }
  // Null if `channel` has an identity, or has ended.
  Stranger* StrangerAt(const Channel& channel);
  void ForgetStranger(const Channel& channel);
  bool IsStale(const wire::FrameHeader& header) const;
  Outgoing ControlFrames(ByteBuffer message) const;
  void Trace(TraceLane lane, const wire::FrameHeader& header, TimePoint begin);

  Executor& executor_;
  MeshOptions options_;
  MeshObserver& observer_;
  Generation generation_;
  std::array<FrameSink*, 9> sinks_{};
  std::map<MemberId, std::shared_ptr<Channel>> channels_;
  std::map<const Channel*, MemberId> peers_;
  std::vector<Stranger> strangers_;  // as they came: addresses would order them anew in every run
  std::map<const Channel*, Control> control_;
  Traffic traffic_;
  transport::ConnectionCounters closed_counters_;
  Paces paces_;
  bool loses_bytes_ = false;  // on one connection
  std::set<MemberId> layer_peers_;
};

}  // namespace poseidon::messaging

#endif  // POSEIDON_MESSAGING_MESH_H_
