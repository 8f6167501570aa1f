// SPDX-License-Identifier: Apache-2.0
#include "poseidon/messaging/channel.h"

#include <algorithm>
#include <utility>

#include "poseidon/base/lesser.h"

namespace poseidon::messaging {
namespace {

// Frames per gathered write: beyond this the kernel's limit on buffers (1024) comes into view.
constexpr std::size_t kMaxFramesPerWrite = 256;
// Frames of at most so many bytes follow one another: behind one of them the next ones are read with the same call, as far as
// this buffer reaches, from where they are copied. Behind a larger one its successor's header is read, whose payload then goes
// straight to its place.
constexpr std::size_t kSmallPayload = std::size_t{8} << 10;
constexpr std::size_t kAheadBytes = std::size_t{16} << 10;
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
      ahead_(kAheadBytes),
      last_received_(executor.now()) {
  SetFlow(flow);
}

void Channel::SetFlow(const Flow& flow) {
  POSEIDON_ASSERT_ON(executor_);
  flow_ = Bounded(flow);
  Commit();
  Pace(LesserRate(flow.pace, held_to_));
}

void Channel::CommitLittle() {
  POSEIDON_ASSERT_ON(executor_);
  if (!std::exchange(commits_little_, true)) Commit();
}

void Channel::Commit() {
  if (commits_little_ && flow_.lossy_chunk_bytes > 0) flow_.chunk_bytes = flow_.write_bytes = flow_.lossy_chunk_bytes;
  if (commits_little_ && flow_.lossy_send_buffer_bytes > 0) flow_.send_buffer_bytes = flow_.lossy_send_buffer_bytes;
  // With 0 the system keeps the buffer that it has (Flow).
  if (flow_.send_buffer_bytes > 0) connection_->LimitUndelivered(flow_.send_buffer_bytes);
}

void Channel::Hold(double bytes_per_second) {
  POSEIDON_ASSERT_ON(executor_);
  held_to_ = bytes_per_second;
  Pace(LesserRate(flow_.pace, held_to_));
}

void Channel::Pace(double bytes_per_second) {
  if (bytes_per_second != pace_) connection_->Pace(pace_ = bytes_per_second);
}

Channel::~Channel() = default;

void Channel::Start() {
  POSEIDON_ASSERT_ON(executor_);
  TakeFrames();
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
  if (spare_.empty()) {
    queue_.emplace(key, Entry{std::move(message), 0});
  } else {
    Queue::node_type node = std::move(spare_.back());
    spare_.pop_back();
    node.key() = key;
    node.mapped() = {std::move(message), 0};
    queue_.insert(std::move(node));
  }
  WriteSoon();
}

// What becomes ready together leaves in one write, the most urgent first: behind the tasks that are there already.
void Channel::WriteSoon() {
  if (writing_ || std::exchange(write_posted_, true)) return;
  executor_.Post([self = shared_from_this()] {
    self->write_posted_ = false;
    self->WriteNext();
  });
}

// Takes frames from the head of the queue until one write is full. A message that is not finished
// stays at its place: whatever is more urgent by the next write goes first.
void Channel::WriteNext() {
  if (closed_ || writing_ || !write_failure_.ok()) return;
  if (queue_.empty()) {
    if (close_when_drained_) Close(drained_reason_);
    return;
  }
  if (!loses_bytes_ && connection_->LosesBytes()) {
    loses_bytes_ = true;
    if (receiver_ != nullptr) receiver_->OnLoss(*this);
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
    if (chunk.size() == rest.size()) header.flags |= entry.message.last_flags;
    headers_.emplace_back();
    wire::EncodeHeader(header, headers_.back());
    written_frames_.push_back(header);
    buffers_.push_back(headers_.back());
    if (!chunk.empty()) buffers_.push_back(chunk);
    total += wire::kHeaderBytes + chunk.size();

    entry.sent += chunk.size();
    if (entry.sent == entry.message.payload.size()) {
      // Kept until the write completes, because the write reads a payload that the message may own.
      finishing_.push_back(queue_.extract(first));
    }
  }
  writing_ = true;
  write_began_ = executor_.now();
  connection_->Write(buffers_,
                     [self = shared_from_this()](Status status) { self->OnWritten(status); });
}

void Channel::OnWritten(const Status& status) {
  if (status.ok() && receiver_ != nullptr) {
    for (const wire::FrameHeader& header : written_frames_)
      receiver_->OnSent(*this, header, write_began_);
  }
  // What is sent meanwhile is queued, because this is still writing.
  for (Queue::node_type& node : finishing_) {
    if (const Completion left = std::move(node.mapped().message.left)) left(status);
    node.mapped() = {};
    if (spare_.size() < kMaxFramesPerWrite) spare_.push_back(std::move(node));
  }
  finishing_.clear();
  writing_ = false;
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

// Hands on what has been read, frame by frame, and reads on where it ends.
void Channel::TakeFrames() {
  while (!deaf()) {
    if (!in_frame_) {
      if (ahead_end_ - ahead_begin_ < wire::kHeaderBytes) return ReadHeader();
      if (!BeginFrame()) return;
    }
    const std::size_t there = std::min(ahead_end_ - ahead_begin_, landing_.size() - landed_);
    std::copy_n(ahead_.data() + ahead_begin_, there, landing_.data() + landed_);
    ahead_begin_ += there;
    landed_ += there;
    if (landed_ < landing_.size()) return ReadPayload();
    in_frame_ = false;
    DispatchFrame();
  }
}

// Takes the header and asks where its payload lands. False where nothing more is read.
bool Channel::BeginFrame() {
  const Result<wire::FrameHeader> header =
      wire::DecodeHeader(std::span<const std::byte, wire::kHeaderBytes>(ahead_.data() + ahead_begin_, wire::kHeaderBytes));
  if (!header.ok()) {
    Refuse(header.status());
    return false;
  }
  ahead_begin_ += wire::kHeaderBytes;
  in_frame_ = true;
  header_ = *header;
  header_at_ = last_received_;
  landing_ = {};
  landed_ = 0;
  if (header_.length == 0) return true;
  // Without a receiver nothing names a place, and no read follows: the owner is gone.
  if (receiver_ == nullptr) return false;
  const Result<MutableBytes> place = receiver_->PlaceFor(*this, header_);
  if (closed_) return false;
  if (!place.ok()) {
    Refuse(place.status());
    return false;
  }
  landing_ = *place;
  if (landing_.empty()) {
    scratch_.resize(std::max<std::size_t>(scratch_.size(), header_.length));
    landing_ = MutableBytes(scratch_).first(header_.length);
  }
  POSEIDON_CHECK(landing_.size() == header_.length, "a landing place has the size of the payload");
  return true;
}

// The rest of a header, and as much behind it as there is room for.
void Channel::ReadHeader() {
  const std::size_t have = ahead_end_ - ahead_begin_;
  std::copy_n(ahead_.data() + ahead_begin_, have, ahead_.data());
  ahead_begin_ = 0;
  ahead_end_ = have;
  const std::size_t room = header_.length <= kSmallPayload ? kAheadBytes : wire::kHeaderBytes;
  const std::array<MutableBytes, 1> into = {MutableBytes(ahead_).subspan(have, room - have)};
  connection_->Read(into, wire::kHeaderBytes - have,
                    [self = shared_from_this()](const Status& status, std::size_t n) { self->OnRead(status, n); });
}

// The rest of the payload and, in the same system call where they are there already, the frames behind it. Nothing is in
// ahead_.
void Channel::ReadPayload() {
  const std::size_t room = header_.length <= kSmallPayload ? kAheadBytes : wire::kHeaderBytes;
  const std::array<MutableBytes, 2> into = {landing_.subspan(landed_), MutableBytes(ahead_).first(room)};
  ahead_begin_ = ahead_end_ = 0;
  connection_->Read(into, into[0].size(),
                    [self = shared_from_this()](const Status& status, std::size_t n) { self->OnRead(status, n); });
}

void Channel::OnRead(const Status& status, std::size_t bytes) {
  if (deaf()) return;
  if (!status.ok()) return FailRead(status);
  last_received_ = executor_.now();
  const std::size_t of_payload = in_frame_ ? landing_.size() - landed_ : 0;
  landed_ += of_payload;
  ahead_end_ += bytes - of_payload;
  TakeFrames();
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
