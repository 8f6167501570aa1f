// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_MEMORY_STREAM_H_
#define POSEIDON_TRANSPORT_MEMORY_STREAM_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/base/check.h"
#include "poseidon/transport/transport.h"

namespace poseidon::transport {

// One end of a connection whose bytes move by copying: the rules of Connection (one read and one
// write at a time, completions later and exactly once, Close) over a source and a sink that the
// in-process transport and the simulator bring.
//
// Thread: one executor's. Held by shared_ptr, because a completion that it runs may destroy the
// Connection that owns it.
class MemoryStream : public std::enable_shared_from_this<MemoryStream> {
 public:
  explicit MemoryStream(Executor& executor) : executor_(executor) {}
  virtual ~MemoryStream() = default;
  MemoryStream(const MemoryStream&) = delete;
  MemoryStream& operator=(const MemoryStream&) = delete;

  void Read(std::span<const MutableBytes> into, std::size_t min_bytes, ReadCompletion done) {
    POSEIDON_ASSERT_ON(executor_);
    POSEIDON_CHECK(!read_.done, "one read at a time");
    std::size_t room = 0;
    for (const MutableBytes& buffer : into) room += buffer.size();
    POSEIDON_CHECK(min_bytes >= 1 && min_bytes <= room, "a read asks for what fits, at least 1");
    if (closed_) {
      executor_.Post([done = std::move(done)] { done(ClosedStatus(), 0); });
      return;
    }
    read_ = {{into.begin(), into.end()}, 0, min_bytes, std::move(done)};
    Wake();
  }

  void Write(std::span<const ConstBytes> from, Completion done) {
    POSEIDON_ASSERT_ON(executor_);
    POSEIDON_CHECK(!write_.done, "one write at a time");
    if (closed_) {
      executor_.Post([done = std::move(done)] { done(ClosedStatus()); });
      return;
    }
    write_ = {{from.begin(), from.end()}, std::move(done)};
    Wake();
  }

  void Close(const Status& reason) {
    if (closed_) return;
    closed_ = true;
    Shut();
    const Status status = reason.ok() ? ClosedStatus() : reason;
    if (read_.done) {
      executor_.Post([done = std::move(read_.done), status] { done(status, 0); });
    }
    if (write_.done) executor_.Post([done = std::move(write_.done), status] { done(status); });
  }

  // See Connection. Nothing here: what has been put is with the peer at once.
  virtual void LimitUndelivered(std::size_t /*bytes*/) {}
  virtual void Pace(double /*bytes_per_second*/) {}

  const ConnectionCounters& counters() const { return counters_; }

 protected:
  // Source: copies what is there, up to into.size(). `ReadEnd` is the failure of a read once
  // nothing is left, OK while more may come.
  virtual std::size_t Take(MutableBytes into) = 0;
  virtual Status ReadEnd() const = 0;
  // Sink: copies what there is room for. `WriteEnd` is the failure of writes, OK while they may go.
  virtual std::size_t Put(ConstBytes from) = 0;
  virtual Status WriteEnd() const = 0;
  // Called after bytes moved, so that the other side can go on.
  virtual void Took(std::size_t bytes) = 0;
  virtual void HasPut(std::size_t bytes) = 0;
  // Arranges that Advance runs on the executor, later.
  virtual void Wake() = 0;
  // Ends both directions, once.
  virtual void Shut() = 0;

  // Moves what can be moved and completes what is complete. A completion may start the next
  // operation (which only wakes) or close this end. Called from tasks of the executor.
  void Advance() {
    AdvanceRead();
    AdvanceWrite();
  }
  Executor& executor() const { return executor_; }

 private:
  struct PendingRead {
    std::vector<MutableBytes> into;  // what is left to fill
    std::size_t landed = 0;
    std::size_t min_bytes = 0;
    ReadCompletion done;
  };
  struct PendingWrite {
    std::vector<ConstBytes> from;  // what is left to send
    Completion done;
  };

  static Status ClosedStatus() {
    return {StatusCode::kUnavailable, "the connection is closed", StatusScope::kConnection};
  }

  void AdvanceRead() {
    if (!read_.done) return;
    const Status end = ReadEnd();  // asked before taking: what came before the end is then seen
    std::size_t moved = 0;
    for (MutableBytes& buffer : read_.into) {
      const std::size_t count = Take(buffer);
      buffer = buffer.subspan(count);
      moved += count;
      if (!buffer.empty()) break;
    }
    if (moved > 0) Took(moved);
    read_.landed += moved;
    counters_.bytes_read += moved;
    counters_.wire_bytes_in += moved;
    if (read_.landed >= read_.min_bytes) {
      const std::size_t landed = read_.landed;
      std::exchange(read_, {}).done(OkStatus(), landed);
    } else if (!end.ok()) {
      std::exchange(read_, {}).done(end, 0);
    }
  }

  void AdvanceWrite() {
    if (!write_.done) return;
    if (Status end = WriteEnd(); !end.ok()) {
      std::exchange(write_, {}).done(std::move(end));
      return;
    }
    std::size_t moved = 0;
    bool all = true;
    for (ConstBytes& buffer : write_.from) {
      const std::size_t count = Put(buffer);
      buffer = buffer.subspan(count);
      moved += count;
      all = buffer.empty();
      if (!all) break;
    }
    if (moved > 0) HasPut(moved);
    counters_.bytes_written += moved;
    counters_.wire_bytes_out += moved;
    if (all) std::exchange(write_, {}).done(OkStatus());
  }

  Executor& executor_;
  bool closed_ = false;
  PendingRead read_;
  PendingWrite write_;
  ConnectionCounters counters_;
};

// The connection that owns such an end, and closes it when it is destroyed.
class MemoryConnection final : public Connection {
 public:
  // The end is shared with an Advance under way, inside which this object may be destroyed.
  MemoryConnection(std::shared_ptr<MemoryStream> end, std::string peer_name)
      : end_(std::move(end)), peer_name_(std::move(peer_name)) {}
  ~MemoryConnection() override { end_->Close(OkStatus()); }

  void Read(std::span<const MutableBytes> into, std::size_t min_bytes,
            ReadCompletion done) override {
    end_->Read(into, min_bytes, std::move(done));
  }
  void Write(std::span<const ConstBytes> from, Completion done) override {
    end_->Write(from, std::move(done));
  }
  void Close(Status reason) override { end_->Close(reason); }
  void LimitUndelivered(std::size_t bytes) override { end_->LimitUndelivered(bytes); }
  void Pace(double bytes_per_second) override { end_->Pace(bytes_per_second); }
  const std::string& peer_name() const override { return peer_name_; }
  ConnectionCounters counters() const override { return end_->counters(); }

 private:
  const std::shared_ptr<MemoryStream> end_;
  const std::string peer_name_;
};

}  // namespace poseidon::transport

#endif  // POSEIDON_TRANSPORT_MEMORY_STREAM_H_
