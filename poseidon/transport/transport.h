// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TRANSPORT_H_
#define POSEIDON_TRANSPORT_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "poseidon/base/bytes.h"
#include "poseidon/base/executor.h"
#include "poseidon/base/result.h"

// How bytes move: three small interfaces, implemented by tcp/ (sockets), inproc/ (memory) and
// sim/ (virtual time). A transport knows streams of bytes, nothing of messages.
//
// Thread: every object belongs to the executor its Context was made with: all members are called
// on it and all completions fire on it, never inside the call that took them.
// Lifetime: destroying a Connection closes it; its pending completions still fire exactly once. A
// completion may close or destroy the connection it came from. Destroying a Context fails the
// connects under way. The executor outlives them all, or destroys them with its dropped tasks.
namespace poseidon::transport {

// Where a listener can be reached. For TCP `host` is a numeric address; the other transports use
// any text and ports of their own.
struct Address {
  std::string host;
  std::uint16_t port = 0;
  std::string ToString() const { return host + ":" + std::to_string(port); }
  friend auto operator<=>(const Address&, const Address&) = default;
};

// Bytes moved over one connection, counted at the layer that each field names.
struct ConnectionCounters {
  std::uint64_t bytes_read = 0;       // handed to the reader
  std::uint64_t bytes_written = 0;    // taken from the writer
  std::uint64_t wire_bytes_in = 0;    // the same with the transport's own framing (TLS records, hello)
  std::uint64_t wire_bytes_out = 0;
  ConnectionCounters& operator+=(const ConnectionCounters& other) {
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    wire_bytes_in += other.wire_bytes_in;
    wire_bytes_out += other.wire_bytes_out;
    return *this;
  }
};

using ReadCompletion = UniqueFunction<void(Status, std::size_t bytes)>;

// A reliable, ordered, authenticated stream of bytes to one peer.
class Connection {
 public:
  virtual ~Connection() = default;

  // Fills the buffers in order. Completes once at least `min_bytes` (1 <= min_bytes <= sum of sizes)
  // have landed, with the count that has; memory beyond the count is not written afterwards.
  // One read at a time. The memory is lent until the completion; the array of buffers itself is not.
  // A stream that ended fails with kUnavailable; so does everything after Close. Bytes that were changed on the way, where
  // the transport finds that out, fail with kDataLoss; the other direction still works.
  virtual void Read(std::span<const MutableBytes> into, std::size_t min_bytes,
                    ReadCompletion done) = 0;

  // Sends the buffers in order, all of them. Completes when the transport has taken every byte and the
  // memory may be reused. One write at a time. The array of buffers itself is not lent.
  virtual void Write(std::span<const ConstBytes> from, Completion done) = 0;

  // Ends the stream: pending completions fire with `reason` (or kUnavailable if it is OK); the peer
  // reads what was written before and then the end. Closing twice is harmless.
  virtual void Close(Status reason) = 0;

  // Limits, from now on, about how many bytes the system may hold that the peer's system has not received
  // yet, because nothing can overtake those bytes. Without effect where there is no such buffer.
  virtual void LimitUndelivered(std::size_t bytes) = 0;

  // How many bytes this connection sends per second, at most, from now on, evenly rather than in bursts; 0: as many as go. The
  // system does this with the bytes that it holds. Without effect where there is no such system.
  virtual void Pace(double /*bytes_per_second*/) {}

  // Whether so many of this connection's bytes have been lost on the way lately that its bursts seem to overflow a queue. Cheap: it looks
  // once for a stretch of bytes, and is false between.
  virtual bool LosesBytes() { return false; }

  // The peer in log lines: "10.0.0.2:4711".
  virtual const std::string& peer_name() const = 0;
  virtual ConnectionCounters counters() const = 0;
};

using AcceptCallback = UniqueFunction<void(std::unique_ptr<Connection>)>;
using ConnectCompletion = UniqueFunction<void(Result<std::unique_ptr<Connection>>)>;

// Accepts connections until destroyed.
class Listener {
 public:
  virtual ~Listener() = default;
  // The address with the port that was chosen.
  virtual const Address& address() const = 0;
};

// Makes listeners and connections of one kind, on one executor.
class Context {
 public:
  virtual ~Context() = default;
  virtual Executor& executor() = 0;

  // Listens at `address` (port 0: any free one) and hands every connection that authenticated to
  // `accept`. Strangers are refused, bounded in number and time, and never reach `accept`.
  // kFailedPrecondition with the address in the message when the port is in use.
  virtual Result<std::unique_ptr<Listener>> Listen(const Address& address,
                                                   AcceptCallback accept) = 0;

  // Connects and authenticates within `timeout`, retrying refused connections until then (the peer
  // may not listen yet). kPermissionDenied when authentication failed, without retry;
  // kDeadlineExceeded with the address in the message when nobody answered in time.
  virtual void Connect(const Address& address, Duration timeout, ConnectCompletion done) = 0;
};

}  // namespace poseidon::transport

#endif  // POSEIDON_TRANSPORT_TRANSPORT_H_
