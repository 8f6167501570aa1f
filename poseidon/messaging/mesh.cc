// SPDX-License-Identifier: Apache-2.0
#include "poseidon/messaging/mesh.h"

#include <algorithm>
#include <string>
#include <utility>

namespace poseidon::messaging {
namespace {

// An introduction names the joiner and its address; anything longer is not one.
constexpr std::size_t kMaxIntroduction = 64 * 1024;

std::size_t IndexOf(wire::FrameType type) { return static_cast<std::size_t>(type); }

}  // namespace

Mesh::Mesh(Executor& executor, MeshOptions options, MeshObserver& observer)
    : executor_(executor), options_(options), observer_(observer) {}

Mesh::~Mesh() {
  for (auto& [peer, channel] : channels_) {
    // Close posts an OnClosed, which would find a mesh that is gone.
    channel->Detach();
    channel->Close(OkStatus());
  }
  for (auto& stranger : strangers_) {
    stranger.channel->Detach();
    stranger.channel->Close(OkStatus());
  }
}

void Mesh::Route(wire::FrameType type, FrameSink& sink) {
  POSEIDON_ASSERT_ON(executor_);
  sinks_[IndexOf(type)] = &sink;
}

void Mesh::RouteExchanges(FrameSink& sink) {
  for (const wire::FrameType type : {wire::FrameType::kPush, wire::FrameType::kResult, wire::FrameType::kFactor, wire::FrameType::kGrant}) {
    Route(type, sink);
  }
}

std::shared_ptr<Channel> Mesh::AddStranger(std::unique_ptr<transport::Connection> connection) {
  POSEIDON_ASSERT_ON(executor_);
  auto channel = std::make_shared<Channel>(executor_, std::move(connection), options_.flow, *this);
  strangers_.push_back({.channel = channel});
  channel->Start();
  return channel;
}

bool Mesh::Identify(const std::shared_ptr<Channel>& channel, MemberId peer) {
  POSEIDON_ASSERT_ON(executor_);
  if (channels_.contains(peer) || channel->closed()) return false;
  ForgetStranger(*channel);
  channels_.emplace(peer, channel);
  peers_.emplace(channel.get(), peer);
  channel->Hold(PaceOf(peer));
  if (loses_bytes_) channel->CommitLittle();
  return true;
}

void Mesh::SetFlow(const Flow& flow) {
  POSEIDON_ASSERT_ON(executor_);
  options_.flow = flow;
  for (auto& [peer, channel] : channels_) channel->SetFlow(flow);
  for (auto& stranger : strangers_) stranger.channel->SetFlow(flow);
}

// A queue that one connection overflows is before a port that others share, ours or a peer's.
void Mesh::OnLoss(Channel&) {
  loses_bytes_ = true;
  for (const auto& [peer, channel] : channels_) channel->CommitLittle();
}

void Mesh::Hold(const Paces& paces, std::set<MemberId> layer_peers) {
  POSEIDON_ASSERT_ON(executor_);
  paces_ = paces;
  layer_peers_ = std::move(layer_peers);
  for (const auto& [peer, channel] : channels_) channel->Hold(PaceOf(peer));
}

void Mesh::Send(MemberId to, Outgoing message) {
  POSEIDON_ASSERT_ON(executor_);
  message.header.generation = generation_;
  const auto found = channels_.find(to);
  if (found == channels_.end()) {
    if (message.left) {
      executor_.Post([left = std::move(message.left), to] {
        left(Status(StatusCode::kUnavailable,
                    "member " + std::to_string(to.value()) + " has no connection",
                    StatusScope::kPeer, to.value()));
      });
    }
    return;
  }
  found->second->Send(std::move(message));
}

void Mesh::SendControl(MemberId to, ByteBuffer message) {
  POSEIDON_ASSERT_ON(executor_);
  if (const auto found = channels_.find(to); found != channels_.end()) {
    SendControl(*found->second, std::move(message));
  }
}

void Mesh::SendHeartbeat(Channel& to) {
  POSEIDON_ASSERT_ON(executor_);
  Outgoing beat;
  beat.header.type = wire::FrameType::kHeartbeat;
  beat.header.generation = generation_;
  beat.priority = kControlPriority;
  to.Send(std::move(beat));
}

void Mesh::SendControl(Channel& to, ByteBuffer message) {
  POSEIDON_ASSERT_ON(executor_);
  // It learns from our message who we are, and may send heartbeats before its own introduction arrives.
  if (Stranger* const stranger = StrangerAt(to)) stranger->introduced = true;
  to.Send(ControlFrames(std::move(message)));
}

void Mesh::SendControlToStrangers(const ByteBuffer& message) {
  POSEIDON_ASSERT_ON(executor_);
  const auto strangers = strangers_;
  for (const Stranger& stranger : strangers) SendControl(*stranger.channel, message);
}

Outgoing Mesh::ControlFrames(ByteBuffer message) const {
  Outgoing out;
  out.header.type = wire::FrameType::kControl;
  out.header.generation = generation_;
  out.header.total = message.size();
  out.owned = std::move(message);
  out.priority = kControlPriority;
  return out;
}

std::optional<Outgoing> Mesh::LastWords(Channel& to, const Status& reason) {
  const MemberId* peer = PeerOf(to);
  if (peer == nullptr) return std::nullopt;
  ByteBuffer words = observer_.LastWords(*peer, reason);
  if (words.empty()) return std::nullopt;
  return ControlFrames(std::move(words));
}

void Mesh::CloseAllWhenDrained(const Status& reason) {
  POSEIDON_ASSERT_ON(executor_);
  const auto channels = channels_;
  for (const auto& [peer, channel] : channels) channel->CloseWhenDrained(reason);
  const auto strangers = strangers_;
  for (const auto& stranger : strangers) stranger.channel->CloseWhenDrained(reason);
}

void Mesh::CloseAll(const Status& reason) {
  POSEIDON_ASSERT_ON(executor_);
  const auto channels = channels_;
  for (const auto& [peer, channel] : channels) channel->Close(reason);
  const auto strangers = strangers_;
  for (const auto& stranger : strangers) stranger.channel->Close(reason);
}

bool Mesh::drained() const {
  POSEIDON_ASSERT_ON(executor_);
  return std::all_of(channels_.begin(), channels_.end(), [](const auto& entry) { return entry.second->idle(); }) &&
         std::all_of(strangers_.begin(), strangers_.end(), [](const auto& stranger) { return stranger.channel->idle(); });
}

std::vector<MemberId> Mesh::peers() const {
  POSEIDON_ASSERT_ON(executor_);
  std::vector<MemberId> list;
  for (const auto& [peer, channel] : channels_) list.push_back(peer);
  return list;
}

transport::ConnectionCounters Mesh::wire_counters() const {
  POSEIDON_ASSERT_ON(executor_);
  transport::ConnectionCounters sum = closed_counters_;
  for (const auto& [peer, channel] : channels_) sum += channel->counters();
  for (const auto& stranger : strangers_) sum += stranger.channel->counters();
  return sum;
}

TimePoint Mesh::last_received(MemberId peer) const {
  POSEIDON_ASSERT_ON(executor_);
  const auto found = channels_.find(peer);
  return found == channels_.end() ? TimePoint{} : found->second->last_received();
}

const MemberId* Mesh::PeerOf(const Channel& channel) const {
  const auto found = peers_.find(&channel);
  return found == peers_.end() ? nullptr : &found->second;
}

Mesh::Stranger* Mesh::StrangerAt(const Channel& channel) {
  const auto found = std::find_if(strangers_.begin(), strangers_.end(),
                                  [&](const Stranger& stranger) { return stranger.channel.get() == &channel; });
  return found == strangers_.end() ? nullptr : &*found;
}

void Mesh::ForgetStranger(const Channel& channel) {
  std::erase_if(strangers_, [&](const Stranger& stranger) { return stranger.channel.get() == &channel; });
}

bool Mesh::IsStale(const wire::FrameHeader& header) const {
  return header.generation != generation_;
}

Result<MutableBytes> Mesh::PlaceFor(Channel& from, const wire::FrameHeader& header) {
  POSEIDON_ASSERT_ON(executor_);
  // Control frames count in every generation: a joiner learns the generation from one (docs/wire-protocol.md). Stale
  // frames are dropped, so that no sink looks at what they name.
  if (header.type == wire::FrameType::kControl || IsStale(header)) return MutableBytes{};
  const MemberId* peer = PeerOf(from);
  FrameSink* sink = sinks_[IndexOf(header.type)];
  if (peer == nullptr) return DataLoss("a data frame came before the introduction");
  if (sink == nullptr) return DataLoss("a frame of a type that this member does not take");
  return sink->PlaceFor(*peer, header);
}

Status Mesh::OnFrame(Channel& from, const wire::FrameHeader& header, ConstBytes payload) {
  POSEIDON_ASSERT_ON(executor_);
  Trace(TraceLane::kReceive, header, from.header_at());
  if (header.type == wire::FrameType::kControl) {
    traffic_.CountReceived(header);
    return OnControlFrame(from, header, payload);
  }
  const MemberId* peer = PeerOf(from);
  // The checks of PlaceFor come again here, because a frame without payload is never placed.
  if (peer == nullptr) {
    // The peer has our introduction already and sends heartbeats; its own introduction is still on the way.
    const Stranger* stranger = StrangerAt(from);
    if (header.type == wire::FrameType::kHeartbeat && stranger != nullptr && stranger->introduced) return OkStatus();
    return DataLoss("a data frame came before the introduction");
  }
  if (IsStale(header)) return OkStatus();
  if (header.type != wire::FrameType::kHeartbeat) {
    FrameSink* sink = sinks_[IndexOf(header.type)];
    if (sink == nullptr) return DataLoss("a frame of a type that this member does not take");
    POSEIDON_RETURN_IF_ERROR(sink->OnFrame(*peer, header, payload));
  }
  // Not before its sink has taken it: only then is its layer known to be one.
  traffic_.CountReceived(header);
  return OkStatus();
}

// Control messages may be longer than a frame: they are assembled here, in order, within a bound
// that is checked before anything is allocated.
Status Mesh::OnControlFrame(Channel& from, const wire::FrameHeader& header, ConstBytes payload) {
  const MemberId* peer = PeerOf(from);
  const Stranger* const sender = StrangerAt(from);
  // Until it says who it is, a stranger may make us allocate no more than an introduction takes. Whom we have spoken to
  // may answer with a roster, which grows with the job.
  const bool unknown = peer == nullptr && (sender == nullptr || !sender->introduced);
  const std::size_t bound = unknown ? kMaxIntroduction : options_.max_control_bytes;
  if (header.total > bound) return DataLoss("a control message is longer than allowed");
  Control& control = control_[&from];
  if (header.offset != control.have) return DataLoss("a control message has a gap");
  if (control.have == 0) control.message.resize(header.total);
  // A larger total in a later frame would let `have` run beyond what was allocated.
  if (header.total != control.message.size()) return DataLoss("a control message changed its size");
  std::copy(payload.begin(), payload.end(), control.message.data() + control.have);
  control.have += payload.size();
  if (control.have < control.message.size()) return OkStatus();

  const ByteBuffer message = std::exchange(control.message, {});
  control.have = 0;
  if (peer != nullptr) return observer_.OnControl(*peer, message);
  Stranger* stranger = StrangerAt(from);
  if (stranger == nullptr) return OkStatus();
  // Held here: Identify takes it out of strangers_.
  const std::shared_ptr<Channel> channel = stranger->channel;
  POSEIDON_RETURN_IF_ERROR(observer_.OnIntroduction(channel, message));
  // Looked up anew: Identify may have erased it from strangers_, which moves the elements behind.
  stranger = StrangerAt(from);
  if (stranger != nullptr) stranger->introduced = true;
  return OkStatus();
}

void Mesh::OnSent(Channel&, const wire::FrameHeader& header, TimePoint begin) {
  traffic_.CountSent(header);
  Trace(TraceLane::kSend, header, begin);
}

void Mesh::Trace(TraceLane lane, const wire::FrameHeader& header, TimePoint begin) {
  // `layer` of a one-off key is a count (docs/wire-protocol.md) and would become a layer of the timeline.
  if (options_.trace == nullptr || header.model == wire::kCollectiveModel) return;
  const char* label = nullptr;
  switch (header.type) {
    case wire::FrameType::kPush:
      label = "push";
      break;
    case wire::FrameType::kResult:
      label = "result";
      break;
    case wire::FrameType::kFactor:
      label = "factor";
      break;
    case wire::FrameType::kControl:
    case wire::FrameType::kHeartbeat:
    case wire::FrameType::kProbe:
    case wire::FrameType::kLocal:
    case wire::FrameType::kGrant:
      return;
  }
  options_.trace->Record({lane, static_cast<std::int32_t>(header.layer.value()),
                          header.step.value(), begin, executor_.now(), header.length, label,
                          header.model.value()});
}

void Mesh::OnClosed(Channel& channel, const Status& reason) {
  // wire_counters() promises the sum over closed connections too, and the channel ends here.
  closed_counters_ += channel.counters();
  control_.erase(&channel);
  const MemberId* known = PeerOf(channel);
  if (known == nullptr) {
    ForgetStranger(channel);
    observer_.OnStrangerClosed(channel, reason);
    return;
  }
  const MemberId peer = *known;
  peers_.erase(&channel);
  channels_.erase(peer);
  observer_.OnPeerClosed(peer, reason);
}

}  // namespace poseidon::messaging
