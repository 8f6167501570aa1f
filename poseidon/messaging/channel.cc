// SPDX-License-Identifier: Apache-2.0
#include "poseidon/messaging/channel.h"

#include <algorithm>
#include <utility>

namespace poseidon::messaging {
namespace {

// Frames per gathered write: beyond this the kernel's limit on buffers (1024) comes into view.
constexpr std::size_t kMaxFramesPerWrite = 256;
// How long the last message to a refused peer may take to leave.
constexpr Duration kLastWords = std::chrono::milliseconds(100);

// A chunk of nothing would never end, and one above the protocol's bound would be refused.
Flow Bounded(Flow flow) {
  flow.chunk_bytes = std::clamp<std::size_t>(flow.chunk_bytes, 1, wire::kMaxPayload);
  flow.write_bytes = std::max<std::size_t>(flow.write_bytes, 1);
  return flow;
}

}  // namespace

Channel::Channel(Executor& executor, std::unique_ptr<transport::Connection> connection,
                 const Flow& flow, ChannelReceiver& receiver)
    : executor_(executor),
      connection_(std::move(connection)),
      receiver_(&receiver),
      last_received_(executor.now()) {
  SetFlow(flow);
}

void Channel::SetFlow(const Flow& flow) {
  POSEIDON_ASSERT_ON(executor_);
  flow_ = Bounded(flow);
  // With 0 the system keeps the buffer that it has (Flow).
  if (flow.send_buffer_bytes > 0) connection_->LimitUndelivered(flow.send_buffer_bytes);
}

Channel::~Channel() = default;

void Channel::Start() {
  POSEIDON_ASSERT_ON(executor_);
  ReadHeader();
}

void Channel::Send(Outgoing message) {
  POSEIDON_ASSERT_ON(executor_);
  if (closed_ || !write_failure_.ok()) {
    if (message.left) {
      executor_.Post(
          [left = std::move(message.left)] { left(Unavailable("the channel is closed")); });
    }
    return;
  }
  // The span holds when the message moves on: a vector that moves keeps its memory.
  if (!message.owned.empty()) message.payload = message.owned;
  const QueueKey key{message.priority, next_sequence_++};
  queue_.emplace(key, Entry{std::move(message), 0});
  if (!writing_) WriteNext();
}

// Takes frames from the head of the queue until one write is full. A message that is not finished
// stays at its place: whatever is more urgent by the next write goes first.
void Channel::WriteNext() {
  if (closed_ || writing_ || !write_failure_.ok()) return;
  if (queue_.empty()) {
    if (close_when_drained_) Close(drained_reason_);
    return;
  }
  headers_.clear();
  // buffers_ points into headers_, which must not grow into other memory during the loop.
  headers_.reserve(kMaxFramesPerWrite);
  written_frames_.clear();
  buffers_.clear();
  std::size_t total = 0;
  while (!queue_.empty() && total < flow_.write_bytes && headers_.size() < kMaxFramesPerWrite) {
    auto first = queue_.begin();
    Entry& entry = first->second;
    const ConstBytes rest = entry.message.payload.subspan(entry.sent);
    const ConstBytes chunk = rest.first(std::min(rest.size(), flow_.chunk_bytes));

    wire::FrameHeader header = entry.message.header;
    header.length = static_cast<std::uint32_t>(chunk.size());
    header.offset += entry.sent;
    headers_.emplace_back();
    wire::EncodeHeader(header, headers_.back());
    written_frames_.push_back(header);
    buffers_.push_back(headers_.back());
    if (!chunk.empty()) buffers_.push_back(chunk);
    total += wire::kHeaderBytes + chunk.size();

    entry.sent += chunk.size();
    if (entry.sent == entry.message.payload.size()) {
      // Kept until the write completes, because the write reads a payload that the message may own.
      finishing_.push_back(std::move(entry.message));
      queue_.erase(first);
    }
  }
  writing_ = true;
  write_began_ = executor_.now();
  connection_->Write(buffers_,
                     [self = shared_from_this()](Status status) { self->OnWritten(status); });
}

void Channel::OnWritten(const Status& status) {
  writing_ = false;
  std::vector<Outgoing> finished = std::exchange(finishing_, {});
  if (status.ok() && receiver_ != nullptr) {
    for (const wire::FrameHeader& header : written_frames_)
      receiver_->OnSent(*this, header, write_began_);
  }
  for (Outgoing& message : finished) {
    if (message.left) message.left(status);
  }
  if (!status.ok()) return StopWriting(status);
  WriteNext();
}

// A peer that has closed may have said why before: what it wrote is read to its end, and that end
// closes the channel.
void Channel::StopWriting(const Status& failure) {
  if (closed_) return;
  write_failure_ = failure;
  FailQueue(failure);
  if (close_when_drained_) Close(drained_reason_);
}

// Everything queued completes, posted: a completion never runs inside the call that took it.
void Channel::FailQueue(const Status& failure) {
  std::map<QueueKey, Entry> queue = std::exchange(queue_, {});
  for (auto& [key, entry] : queue) {
    if (entry.message.left) {
      executor_.Post([left = std::move(entry.message.left), failure] { left(failure); });
    }
  }
}

void Channel::ReadHeader() {
  if (closed_) return;
  // The read of the payload before may have brought the first bytes of this header (ReadPayload).
  const std::array<MutableBytes, 1> into = {MutableBytes(header_bytes_).subspan(header_have_)};
  connection_->Read(into, into[0].size(),
                    [self = shared_from_this()](Status status, std::size_t n) {
                      self->OnHeaderBytes(status, n);
                    });
}

void Channel::OnHeaderBytes(const Status& status, std::size_t bytes) {
  if (deaf()) return;
  if (!status.ok()) return FailRead(status);
  last_received_ = executor_.now();
  header_have_ += bytes;
  Result<wire::FrameHeader> header = wire::DecodeHeader(header_bytes_);
  if (!header.ok()) return Refuse(header.status());
  header_ = *header;
  header_at_ = last_received_;
  header_have_ = 0;
  landing_ = {};
  if (header_.length == 0) {
    DispatchFrame();
    if (!deaf()) ReadHeader();
    return;
  }
  // Without a receiver nothing names a place, and no read follows: the owner is gone.
  if (receiver_ == nullptr) return;
  Result<MutableBytes> place = receiver_->PlaceFor(*this, header_);
  if (closed_) return;
  if (!place.ok()) return Refuse(place.status());
  landing_ = *place;
  if (landing_.empty()) {
    scratch_.resize(std::max<std::size_t>(scratch_.size(), header_.length));
    landing_ = MutableBytes(scratch_).first(header_.length);
  }
  POSEIDON_CHECK(landing_.size() == header_.length, "a landing place has the size of the payload");
  ReadPayload();
}

// The payload and, in the same system call where it is there already, the next header.
void Channel::ReadPayload() {
  const std::array<MutableBytes, 2> into = {landing_, MutableBytes(header_bytes_)};
  connection_->Read(into, landing_.size(), [self = shared_from_this()](Status status, std::size_t n) {
    self->OnPayloadBytes(status, n);
  });
}

void Channel::OnPayloadBytes(const Status& status, std::size_t bytes) {
  if (deaf()) return;
  if (!status.ok()) return FailRead(status);
  last_received_ = executor_.now();
  header_have_ = bytes - landing_.size();
  DispatchFrame();
  if (deaf()) return;
  // A header that is complete needs no read, and a read of no bytes is not allowed (Connection::Read).
  if (header_have_ == wire::kHeaderBytes) {
    OnHeaderBytes(OkStatus(), 0);
  } else {
    ReadHeader();
  }
}

void Channel::DispatchFrame() {
  if (receiver_ == nullptr) return;
  const Status status = receiver_->OnFrame(*this, header_, landing_);
  if (!status.ok() && !closed_) Refuse(status);
}

void Channel::FailRead(const Status& status) {
  // A peer whose bytes were changed on their way (kDataLoss) is told so. A stream that has ended takes no answer.
  status.code() == StatusCode::kDataLoss ? Refuse(status) : Close(status);
}

// The peer may live, and is to hear why: the other direction may still work, for a moment.
void Channel::Refuse(const Status& reason) {
  if (deaf()) return;
  // Before the receiver is asked: from here on nothing of this peer is dispatched, whatever LastWords does.
  refused_ = true;
  std::optional<Outgoing> words;
  if (receiver_ != nullptr) words = receiver_->LastWords(*this, reason);
  if (closed_) return;
  if (!words) return Close(reason);
  // Weak: the timer must not keep the channel and its connection once the message has left.
  const auto close = [weak = weak_from_this(), reason] {
    if (const auto self = weak.lock()) self->Close(reason);
  };
  words->left = [close](const Status&) { close(); };
  Send(*std::move(words));
  // A peer that does not read would keep the message in the queue, and the channel open, for ever.
  executor_.PostAfter(kLastWords, close);
}

void Channel::CloseWhenDrained(const Status& reason) {
  POSEIDON_ASSERT_ON(executor_);
  if (closed_) return;
  close_when_drained_ = true;
  drained_reason_ = reason;
  if (idle() || !write_failure_.ok()) Close(reason);
}

void Channel::Close(const Status& reason) {
  POSEIDON_ASSERT_ON(executor_);
  if (closed_) return;
  closed_ = true;
  const Status failure =
      reason.ok() ? Unavailable("the channel to " + peer_name() + " was closed") : reason;
  // A write under way completes by itself, because the connection's Close makes it.
  FailQueue(failure);
  connection_->Close(reason);
  // Posted, so that the receiver never hears of the end inside its own call of Close.
  executor_.Post([self = shared_from_this(), reason] {
    if (self->receiver_ != nullptr)
      std::exchange(self->receiver_, nullptr)->OnClosed(*self, reason);
  });
}

}  // namespace poseidon::messaging
