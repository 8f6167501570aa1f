// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_MESSAGING_CHANNEL_H_
#define POSEIDON_MESSAGING_CHANNEL_H_

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "poseidon/base/bytes.h"
#include "poseidon/base/check.h"
#include "poseidon/base/executor.h"
#include "poseidon/messaging/flow.h"
#include "poseidon/transport/transport.h"
#include "poseidon/wire/frame.h"

namespace poseidon::messaging {

// Which message leaves first: control before data, then the older step (or ranks that are ahead would starve
// the results still owed to a laggard), then the layer that the next forward pass needs first.
struct Priority {
  enum Kind : std::uint8_t { kControl = 0, kData = 1 };
  Kind kind = kData;
  std::uint64_t step = 0;
  std::uint32_t position = 0;
  friend constexpr auto operator<=>(const Priority&, const Priority&) = default;
};

inline constexpr Priority kControlPriority{Priority::kControl, 0, 0};

// A message to one peer: a header and its payload, lent (`payload`) or given (`owned`). The channel
// cuts it into frames: `header.offset` is the place of the payload's first byte within
// `header.total`; the length is filled in per frame. An empty payload is one frame.
struct Outgoing {
  wire::FrameHeader header;
  ConstBytes payload;
  ByteBuffer owned;
  Priority priority;
  std::uint16_t last_flags = 0;  // of its last frame, beside the header's
  // Every frame that reads the payload has left (or never will: the Status says so). May be empty.
  Completion left;
};

class Channel;

// A channel calls its owner by these; see FrameSink for the contract of the first two.
class ChannelReceiver {
 public:
  virtual ~ChannelReceiver() = default;
  virtual Result<MutableBytes> PlaceFor(Channel& from, const wire::FrameHeader& header) = 0;
  virtual Status OnFrame(Channel& from, const wire::FrameHeader& header, ConstBytes payload) = 0;
  // The write that began at `begin` has taken the frame.
  virtual void OnSent(Channel& to, const wire::FrameHeader& header, TimePoint begin) = 0;
  // The peer sent something that it may not: nothing more is read, and the channel ends with `reason`
  // once the returned message for the peer has left. None: it ends at once.
  virtual std::optional<Outgoing> LastWords(Channel&, const Status& /*reason*/) {
    return std::nullopt;
  }
  // The system has seen bytes of this connection get lost on their way; fires once.
  virtual void OnLoss(Channel& /*channel*/) {}
  // The channel has ended, with the first reason; fires once, nothing follows.
  virtual void OnClosed(Channel& channel, const Status& reason) = 0;
};

// Whole messages over one connection, by priority, in frames, so that an urgent layer overtakes a
// large one between two writes.
//
// Thread: lives on the connection's executor. Lifetime: held by shared_ptr, because reads and
// writes in flight must find it alive; `receiver` must outlive the channel's OnClosed (after Close,
// no callback but that one OnClosed follows, posted).
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  Channel(Executor& executor, std::unique_ptr<transport::Connection> connection, const Flow& flow,
          ChannelReceiver& receiver);
  ~Channel();

  // Begins to read. Call once, after the shared_ptr exists.
  void Start();
  // Takes effect from the next write on. An urgent message waits for at most one write and what the system
  // holds.
  void SetFlow(const Flow& flow);
  // From now on the connection commits what the flow says of one that loses bytes.
  void CommitLittle();
  // Holds the connection to so many bytes per second from now on, whatever the flow allows; 0: to what the flow says.
  void Hold(double bytes_per_second);
  // Queues a message; frames of one priority leave in the order of the calls. Where nothing is being written it leaves behind
  // the executor's tasks that are posted already, in one write with what they send.
  void Send(Outgoing message);
  // Ends the channel; messages not yet sent complete with `reason`.
  void Close(const Status& reason);
  // Ends the channel once what is queued has left.
  void CloseWhenDrained(const Status& reason);
  // Forgets the receiver: no callback follows. For an owner about to be destroyed.
  void Detach() {
    POSEIDON_ASSERT_ON(executor_);
    receiver_ = nullptr;
  }

  bool closed() const { return closed_; }
  bool idle() const { return queue_.empty() && !writing_; }
  const std::string& peer_name() const { return connection_->peer_name(); }
  transport::ConnectionCounters counters() const { return connection_->counters(); }
  TimePoint last_received() const { return last_received_; }
  // When the header of the frame under way (or last read) was complete.
  TimePoint header_at() const { return header_at_; }
  Executor& executor() { return executor_; }

 private:
  struct QueueKey {
    Priority priority;
    std::uint64_t sequence = 0;
    friend auto operator<=>(const QueueKey&, const QueueKey&) = default;
  };
  struct Entry {
    Outgoing message;
    std::size_t sent = 0;
  };

  using Queue = std::map<QueueKey, Entry>;

  void WriteSoon();
  void WriteNext();
  void OnWritten(const Status& status);
  void StopWriting(const Status& failure);
  void FailQueue(const Status& failure);
  void TakeFrames();
  bool BeginFrame();
  void ReadHeader();
  void ReadPayload();
  void OnRead(const Status& status, std::size_t bytes);
  void DispatchFrame();
  void Refuse(const Status& reason);
  // The stream failed: its bytes were changed on their way, or it has ended.
  void FailRead(const Status& status);
  void Commit();
  void Pace(double bytes_per_second);
  // Nothing more is read.
  bool deaf() const { return closed_ || refused_; }

  Executor& executor_;
  std::unique_ptr<transport::Connection> connection_;
  Flow flow_;
  bool loses_bytes_ = false;
  bool commits_little_ = false;
  double held_to_ = 0;
  double pace_ = 0;  // that the connection has
  ChannelReceiver* receiver_;

  Queue queue_;
  std::vector<Queue::node_type> spare_;  // of messages that have left, for those to come
  std::uint64_t next_sequence_ = 0;
  bool write_posted_ = false;
  bool writing_ = false;
  Status write_failure_;  // nothing can be sent any more; what the peer sent is still read
  bool closed_ = false;
  bool refused_ = false;  // the peer's bytes; only the last message to it still leaves
  bool close_when_drained_ = false;
  Status drained_reason_;
  // Read by the write under way: encoded headers, and the messages that end with it.
  std::vector<std::array<std::byte, wire::kHeaderBytes>> headers_;
  std::vector<ConstBytes> buffers_;
  std::vector<wire::FrameHeader> written_frames_;
  std::vector<Queue::node_type> finishing_;

  // What has been read behind the frame under way: [ahead_begin_, ahead_end_) of it.
  ByteBuffer ahead_;
  std::size_t ahead_begin_ = 0;
  std::size_t ahead_end_ = 0;
  bool in_frame_ = false;
  wire::FrameHeader header_;  // of the frame under way, or of the last one
  MutableBytes landing_;      // of its payload, of which `landed_` bytes are there
  std::size_t landed_ = 0;
  ByteBuffer scratch_;
  TimePoint last_received_;
  TimePoint header_at_;
  TimePoint write_began_;
};

}  // namespace poseidon::messaging

#endif  // POSEIDON_MESSAGING_CHANNEL_H_
