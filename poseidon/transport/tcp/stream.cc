// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/tcp/stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "poseidon/base/check.h"
#include "poseidon/transport/tcp/loss_watch.h"
#include "poseidon/transport/tcp/segment_counts.h"
#include "poseidon/transport/tcp/socket.h"

namespace poseidon::transport::tcp {
namespace {

// How long a closed connection waits until the peer's system has all that was written.
constexpr Duration kLinger = std::chrono::seconds(2);

// The connection itself. Tasks that wait for the socket share it: it dies after the last of them.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(IoExecutor& executor, Link link) : executor_(executor), link_(std::move(link)) {}
  ~Stream() {
    if (link_.socket && closed_) static_cast<void>(Discard(link_.socket->fd()));
  }

  void Read(std::span<const MutableBytes> into, std::size_t min_bytes, ReadCompletion done);
  void Write(std::span<const ConstBytes> from, Completion done);
  void Close(const Status& reason);
  void LimitUndelivered(std::size_t bytes);
  void Pace(double bytes_per_second);
  bool LosesBytes();

  const std::string& peer() const { return link_.peer; }
  ConnectionCounters counters() const;

 private:
  struct PendingRead {
    std::size_t min_bytes = 0;
    std::size_t bytes = 0;
    ReadCompletion done;
  };

  // A pump moves what the socket allows, then waits for the socket or for its next turn. There is
  // one for each direction, in one place at a time, and it runs from the executor only: completions
  // never fire inside Read or Write.
  enum class Pump { kIdle, kScheduled, kWaiting, kRunning };
  void Start(Pump& pump, void (Stream::*run)()) {
    if (pump == Pump::kIdle) Continue(pump, run);
  }
  void Continue(Pump& pump, void (Stream::*run)()) {
    pump = Pump::kScheduled;
    executor_.Post([self = shared_from_this(), run] { (self.get()->*run)(); });
  }
  void PumpRead();
  void PumpWrite();
  void PumpDiscard();

  void CompleteRead(const Status& status);
  void CompleteWrite(const Status& status);
  Status WhyItStopped(const Codec::Moved& moved) const;
  void EndLinger();

  IoExecutor& executor_;
  Link link_;  // without socket once everything is over
  std::optional<PendingRead> read_;
  Completion write_;
  // Of the read and the write under way. Members, because lists of buffers that keep their memory cost nothing.
  ReadCursor into_;
  WriteCursor from_;
  Status read_end_;   // why reading is over, if it is
  Status write_end_;  // the same for writing
  Pump read_pump_ = Pump::kIdle;
  Pump write_pump_ = Pump::kIdle;
  bool closed_ = false;
  TimerId linger_ = 0;
  ConnectionCounters counters_;
  LossWatch losses_;
};

void Stream::Read(std::span<const MutableBytes> into, std::size_t min_bytes, ReadCompletion done) {
  POSEIDON_CHECK(!read_, "one read at a time");
  read_ = PendingRead{.min_bytes = min_bytes, .done = std::move(done)};
  into_.Assign(into);
  POSEIDON_CHECK(min_bytes >= 1 && min_bytes <= into_.left(),
                 "a read asks for at least one byte and has room for what it asks");
  Start(read_pump_, &Stream::PumpRead);
}

void Stream::Write(std::span<const ConstBytes> from, Completion done) {
  POSEIDON_CHECK(!write_, "one write at a time");
  write_ = std::move(done);
  from_.Assign(from);
  Start(write_pump_, &Stream::PumpWrite);
}

void Stream::PumpRead() {
  read_pump_ = Pump::kRunning;
  std::size_t budget = kBytesPerTurn;
  while (read_) {
    if (!read_end_.ok()) {
      CompleteRead(read_end_);
      continue;
    }
    // Through the executor's queue, so that a peer that always has bytes ready keeps no other connection waiting.
    if (budget == 0) return Continue(read_pump_, &Stream::PumpRead);
    const std::size_t missing = read_->min_bytes - read_->bytes;
    const Codec::Moved moved =
        link_.codec->Read(into_, {.enough = std::min(missing, budget), .limit = budget});
    read_->bytes += moved.bytes;
    counters_.bytes_read += moved.bytes;
    budget -= std::min(budget, moved.bytes);
    if (moved.next == Codec::Next::kEnded || moved.next == Codec::Next::kFailed) {
      read_end_ = WhyItStopped(moved);
    }
    // Also where the same call met the end: what arrived before it counts, and the next read gets the end.
    if (read_->bytes >= read_->min_bytes) CompleteRead(OkStatus());
    // By its completion the connection may have been closed, or the next read begun, for which there is nothing either.
    if (moved.next == Codec::Next::kReadable && read_ && read_end_.ok()) {
      read_pump_ = Pump::kWaiting;
      return link_.socket->WhenReadable([self = shared_from_this()] { self->PumpRead(); });
    }
  }
  read_pump_ = Pump::kIdle;
}

void Stream::PumpWrite() {
  write_pump_ = Pump::kRunning;
  std::size_t budget = kBytesPerTurn;
  while (write_) {
    if (!write_end_.ok()) {
      CompleteWrite(write_end_);
      continue;
    }
    // Records hold bytes before the socket has them. A completion before that would count them as sent.
    if (from_.done() && !link_.codec->unsent()) {
      CompleteWrite(OkStatus());
      continue;
    }
    if (budget == 0) return Continue(write_pump_, &Stream::PumpWrite);
    const Codec::Moved moved = link_.codec->Write(from_, budget);
    counters_.bytes_written += moved.bytes;
    budget -= std::min(budget, moved.bytes);
    if (moved.next == Codec::Next::kFailed) {
      write_end_ = WhyItStopped(moved);
    } else if (moved.next == Codec::Next::kWritable) {
      write_pump_ = Pump::kWaiting;
      return link_.socket->WhenWritable([self = shared_from_this()] { self->PumpWrite(); });
    }
  }
  write_pump_ = Pump::kIdle;
}

void Stream::CompleteRead(const Status& status) {
  PendingRead read = std::move(*read_);
  read_.reset();  // first, because the completion may ask for the next read
  read.done(status, read.bytes);
}

void Stream::CompleteWrite(const Status& status) {
  std::exchange(write_, {})(status);
}

Status Stream::WhyItStopped(const Codec::Moved& moved) const {
  return moved.next == Codec::Next::kEnded ? ConnectionEnded(link_.peer)
                                           : ConnectionFailure(link_.peer, moved.error);
}

void Stream::Close(const Status& reason) {
  if (closed_) return;
  closed_ = true;
  const Status closed(StatusCode::kUnavailable, "the connection to " + link_.peer + " is closed",
                      StatusScope::kConnection);
  const Status why = reason.ok() ? closed : reason;
  // The peer must be able to read what was written before, also when we have left bytes unread: a
  // socket closed in that state resets the connection and drops what has not arrived. Once all has,
  // a reset is right: it fails what the peer is still writing.
  // After an end nothing is unread, so that a plain close delivers what was written; after a failure nothing can.
  const bool linger = read_end_.ok() && write_end_.ok();
  read_end_ = write_end_ = closed;
  read_pump_ = write_pump_ = Pump::kIdle;  // what waits for the socket may never run
  if (read_) {
    executor_.Post([read = std::move(*read_), why] { read.done(why, read.bytes); });
    read_.reset();
  }
  if (write_) {
    executor_.Post([write = std::exchange(write_, {}), why] { write(why); });
  }
  if (!linger) {
    link_.socket.reset();
    return;
  }
  ::shutdown(link_.socket->fd(), SHUT_WR);
  linger_ = executor_.PostAfter(kLinger, [self = shared_from_this()] { self->EndLinger(); });
  executor_.Post([self = shared_from_this()] { self->PumpDiscard(); });
}

void Stream::PumpDiscard() {
  if (!link_.socket) return;
  const int fd = link_.socket->fd();
  if (EverythingArrived(fd) || !Discard(fd)) return EndLinger();
  link_.socket->WhenReadable([self = shared_from_this()] { self->PumpDiscard(); });
}

void Stream::EndLinger() {
  executor_.Cancel(linger_);
  link_.socket.reset();
}

void Stream::LimitUndelivered(std::size_t bytes) {
  if (closed_ || !link_.socket) return;
  SetSendBuffer(link_.socket->fd(), static_cast<int>(std::min<std::size_t>(bytes, 1u << 30)));
}

void Stream::Pace(double bytes_per_second) {
  if (closed_ || !link_.socket) return;
  SetPace(link_.socket->fd(), bytes_per_second);
}

bool Stream::LosesBytes() {
  if (closed_ || !link_.socket || !losses_.Due(counters_.bytes_written)) return false;
  const SegmentCounts segments = CountsOf(link_.socket->fd());
  return losses_.Look(counters_.bytes_written, segments.bytes, segments.lost);
}

ConnectionCounters Stream::counters() const {
  ConnectionCounters counters = counters_;
  counters.wire_bytes_in = link_.codec->wire_bytes().in;
  counters.wire_bytes_out = link_.codec->wire_bytes().out;
  return counters;
}

// The owner's handle of the stream; destroying it closes the stream.
class TcpConnection final : public Connection {
 public:
  TcpConnection(IoExecutor& executor, Link link)
      : executor_(executor), stream_(std::make_shared<Stream>(executor, std::move(link))) {}
  ~TcpConnection() override { Close(OkStatus()); }

  void Read(std::span<const MutableBytes> into, std::size_t min_bytes,
            ReadCompletion done) override {
    POSEIDON_ASSERT_ON(executor_);
    stream_->Read(into, min_bytes, std::move(done));
  }
  void Write(std::span<const ConstBytes> from, Completion done) override {
    POSEIDON_ASSERT_ON(executor_);
    stream_->Write(from, std::move(done));
  }
  void Close(Status reason) override {
    POSEIDON_ASSERT_ON(executor_);
    stream_->Close(reason);
  }
  void LimitUndelivered(std::size_t bytes) override {
    POSEIDON_ASSERT_ON(executor_);
    stream_->LimitUndelivered(bytes);
  }
  void Pace(double bytes_per_second) override {
    POSEIDON_ASSERT_ON(executor_);
    stream_->Pace(bytes_per_second);
  }
  bool LosesBytes() override {
    POSEIDON_ASSERT_ON(executor_);
    return stream_->LosesBytes();
  }
  const std::string& peer_name() const override { return stream_->peer(); }
  ConnectionCounters counters() const override { return stream_->counters(); }

 private:
  IoExecutor& executor_;
  const std::shared_ptr<Stream> stream_;  // shared with the tasks that wait for the socket
};

}  // namespace

std::unique_ptr<Connection> NewConnection(IoExecutor& executor, Link link) {
  return std::make_unique<TcpConnection>(executor, std::move(link));
}

}  // namespace poseidon::transport::tcp
