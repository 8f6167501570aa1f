// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sim/virtual_network.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "poseidon/base/check.h"
#include "poseidon/base/random.h"
#include "poseidon/sim/byte_queue.h"
#include "poseidon/transport/memory_stream.h"

namespace poseidon::sim {

using transport::AcceptCallback;
using transport::Address;
using transport::ConnectCompletion;
using transport::Connection;
using transport::Context;
using transport::Listener;
using transport::MemoryConnection;
using transport::MemoryStream;

namespace {

// How long bytes take at a rate, in whole nanoseconds: what one took too long, the next takes less.
struct RateClock {
  double ahead = 0;  // nanoseconds, below 1
  Duration TimeOf(std::size_t bytes, double rate) {
    if (rate <= 0) return Duration::zero();
    const double exact = static_cast<double>(bytes) * 1e9 / rate - ahead;
    const double whole = std::max(0.0, std::ceil(exact));
    ahead = whole - exact;
    return Duration(static_cast<std::int64_t>(whole));
  }
};

}  // namespace

// A connection as the two kernels see it. Side 0 connected, side 1 accepted.
struct VirtualNetwork::Wire {
  struct Side {
    HostId host;
    ProcessId process;
    // Whom to wake; none before the owner has taken its end and after it closed it.
    Executor* executor = nullptr;
    std::weak_ptr<End> end;
    bool waking = false;

    // The bytes that this side sends. `unacknowledged` bytes have left tx and hold room in the send buffer,
    // `unread` ones hold room in the peer's receive buffer.
    ByteQueue tx;
    std::size_t send_buffer = 0;
    std::size_t unacknowledged = 0;
    std::size_t unread = 0;
    std::uint64_t delivered = 0;
    bool queued = false;     // waits for its turn at the port
    bool closed = false;     // by the owner, or by its death
    bool end_sent = false;   // the end of the stream has left, after the last byte
    // It sends at most so many bytes a second, evenly; 0: as many as go. No segment leaves before `paced_until`.
    double pace = 0;
    RateClock pace_clock;
    TimePoint paced_until;
    TimePoint last_arrival;  // of what it sent: nothing later arrives before

    // The bytes that this side receives.
    ByteQueue rx;
    bool ended = false;    // the peer's end of the stream has arrived
    bool damaged = false;  // what was received last fails the network's check, and nothing behind it is read
    bool refused = false;  // the peer takes no more bytes
  };
  std::array<Side, 2> sides;
  bool reset = false;
};

// One end of a wire as its owner sees it; lives on the owner's executor.
class VirtualNetwork::End final : public MemoryStream {
 public:
  End(Executor& on, Fabric& fabric, std::shared_ptr<Wire> wire, std::size_t side)
      : MemoryStream(on), fabric_(fabric), wire_(std::move(wire)), side_(side) {}
  void Attach();
  void Answer() { Advance(); }
  void LimitUndelivered(std::size_t bytes) override;
  void Pace(double bytes_per_second) override;

 private:
  std::size_t Take(MutableBytes into) override;
  Status ReadEnd() const override;
  std::size_t Put(ConstBytes from) override;
  Status WriteEnd() const override;
  void Took(std::size_t bytes) override;
  void HasPut(std::size_t bytes) override;
  void Wake() override;
  void Shut() override;
  Wire::Side& own() const { return wire_->sides[side_]; }

  Fabric& fabric_;
  const std::shared_ptr<Wire> wire_;
  const std::size_t side_;
};

// The part of a listener that its owner's executor runs.
struct VirtualNetwork::Acceptor {
  Executor& executor;
  AcceptCallback accept;
  bool open = true;
};

// The switch, the ports and the kernels of all hosts. Its events run on an executor of its own, which
// no process's death or pause touches.
class VirtualNetwork::Fabric {
 public:
  Fabric(Simulation& simulation, NetworkOptions options)
      : simulation_(simulation),
        options_(options),
        random_(options.seed),
        kernel_(simulation.MakeExecutor(simulation.AddProcess("network"), /*jitter=*/false)) {
    POSEIDON_CHECK(options.segment_bytes > 0 && options.send_buffer_bytes > 0 &&
                       options.receive_buffer_bytes > 0,
                   "buffers and segments hold at least one byte");
  }

  const NetworkOptions& options() const { return options_; }

  HostId AddHost(HostOptions options) {
    hosts_.emplace_back().options = std::move(options);
    return HostId(static_cast<std::uint32_t>(hosts_.size() - 1));
  }
  const std::string& NameOf(HostId host) const { return hosts_.at(host.value()).options.name; }
  const HostTraffic& TrafficOf(HostId host) const { return hosts_.at(host.value()).traffic; }
  const HostWork& WorkOf(HostId host) const { return hosts_.at(host.value()).work; }
  void SetLatency(HostId a, HostId b, Duration latency) {
    latencies_[std::minmax(a, b)] = latency;
  }

  // --- faults ---

  void Vanish(HostId host) { At(host).vanished = true; }
  void Return(HostId host) {
    At(host).vanished = false;
    // In the order in which they would have arrived, before what arrives now; what a second vanished host still
    // holds back goes on waiting.
    for (Held& held : std::exchange(held_, {})) Arrive(std::move(held));
  }
  void CutLink(HostId from, HostId to) { cut_links_.insert({from, to}); }
  void ResetAfter(Reset reset) { resets_.push_back(reset); }
  void DamageNext(HostId from, HostId to) { damages_.insert({from, to}); }

  // The kernel's part of a process's death.
  void Watch(ProcessId process) {
    if (!watched_.insert(process).second) return;
    simulation_.AtKill(process, [this, process] {
      std::erase_if(doors_, [&](const auto& door) { return door.second.process == process; });
      for (const std::weak_ptr<Wire>& weak : std::vector(wires_)) {
        const std::shared_ptr<Wire> wire = weak.lock();
        for (std::size_t side = 0; wire != nullptr && side < 2; ++side) {
          if (wire->sides[side].process == process) CloseSide(wire, side);
        }
      }
    });
  }

  // --- listening and connecting ---

  Result<Address> Register(HostId host, ProcessId process, Address address, Executor& executor,
                           std::weak_ptr<Acceptor> acceptor) {
    if (address.host != NameOf(host)) {
      return InvalidArgument("address " + address.ToString() + " is not one of host " +
                             NameOf(host));
    }
    if (address.port == 0) {
      for (address.port = kFirstFreePort; doors_.contains({host, address.port});) {
        if (++address.port == 0) return ResourceExhausted(address.host + " has no free port");
      }
    }
    const bool fresh =
        doors_.try_emplace({host, address.port}, Door{process, &executor, std::move(acceptor)})
            .second;
    if (!fresh) return FailedPrecondition("address " + address.ToString() + " is in use");
    return address;
  }
  // The port may be another's by now, if its process was killed.
  void Unregister(HostId host, std::uint16_t port, const std::shared_ptr<Acceptor>& acceptor) {
    const auto door = doors_.find({host, port});
    if (door != doors_.end() && door->second.acceptor.lock() == acceptor) doors_.erase(door);
  }

  // Asks at `address` for a connection. Answers with its connecting side, or with an empty ticket
  // when nobody listens there; not at all when a host has vanished or does not exist.
  using Answer = UniqueFunction<void(Ticket)>;
  void Ask(HostId from, ProcessId process, const Address& address, Answer answer);
  // A connection that owns one side of a wire.
  std::unique_ptr<Connection> ConnectionOf(Executor& executor, std::shared_ptr<Wire> wire, std::size_t side,
                                           std::string peer_name);

  // --- what an end does ---

  std::size_t RoomToSend(const Wire& wire, std::size_t side) const {
    const Wire::Side& sender = wire.sides[side];
    const std::size_t held = sender.tx.size() + sender.unacknowledged;
    return sender.send_buffer - std::min(held, sender.send_buffer);
  }
  void LimitUndelivered(const std::shared_ptr<Wire>& wire, std::size_t side, std::size_t bytes) {
    wire->sides[side].send_buffer = std::max<std::size_t>(bytes, 1);
    // The writer may wait for room that a larger buffer now has.
    Wake(wire, side);
  }
  void Pace(const std::shared_ptr<Wire>& wire, std::size_t side, double bytes_per_second) {
    wire->sides[side].pace = bytes_per_second;
    wire->sides[side].paced_until = {};
    Offer(wire, side);
  }
  bool IsHollow(ConstBytes bytes) const {
    const std::less_equal<const std::byte*> before;
    return !options_.hollow.empty() && before(options_.hollow.data(), bytes.data()) &&
           before(bytes.data() + bytes.size(), options_.hollow.data() + options_.hollow.size());
  }

  // The task under way, of a process of `host`, has written or read `bytes`.
  void Charge(HostId host, std::size_t bytes, double TransferCosts::*per_byte) {
    if (bytes == 0) return;
    Host& owner = At(host);
    const bool woken = simulation_.TakeWake();
    const TransferCosts& costs = owner.options.costs;
    owner.work.wakes += woken ? 1 : 0;
    const double seconds = (woken ? costs.seconds_per_wake : 0) + costs.*per_byte * static_cast<double>(bytes);
    if (seconds == 0) return;
    const Duration work = FromSeconds(seconds);
    owner.work.busy += work;
    simulation_.Spend(owner.options.cores == nullptr ? work : owner.options.cores->Take(simulation_.now(), work));
  }

  // Offers what a task has written, at the time at which it has.
  void Written(const std::shared_ptr<Wire>& wire, std::size_t side) {
    if (kernel_->now() == simulation_.task_began()) return Offer(wire, side);
    kernel_->Post([this, wire, side] { Offer(wire, side); });
  }

  // Lines the side up at its port if it has something to send that its peer has room for.
  void Offer(const std::shared_ptr<Wire>& wire, std::size_t side) {
    Wire::Side& sender = wire->sides[side];
    if (sender.queued || !CanSend(*wire, side)) return;
    sender.queued = true;
    PortFor(*wire, side).turns.push_back({wire, side});
    Pump(wire->sides[side].host, IsLocal(*wire));
  }

  // The reader has taken `bytes`; its peer learns of the room a latency later.
  void Consumed(const std::shared_ptr<Wire>& wire, std::size_t side, std::size_t bytes) {
    Signal(wire, side, [this, wire, side, bytes] {
      wire->sides[1 - side].unread -= bytes;
      Offer(wire, 1 - side);
    });
  }

  // The owner is gone: what it wrote still leaves, then the end; the peer's bytes are refused.
  void CloseSide(const std::shared_ptr<Wire>& wire, std::size_t side) {
    Wire::Side& own = wire->sides[side];
    if (own.closed) return;
    own.closed = true;
    // Nobody is woken at an end that is closed: its executor may be destroyed from now on.
    own.executor = nullptr;
    own.rx.Clear();
    Offer(wire, side);
    // Bytes may wait behind a full receive buffer for long, but a peer that goes on writing learns
    // at once that nobody reads: a real kernel answers its segments with a reset.
    Signal(wire, side, [this, wire, side] {
      wire->sides[1 - side].refused = true;
      Wake(wire, 1 - side);
    });
  }

  void Wake(const std::shared_ptr<Wire>& wire, std::size_t side);

 private:
  static constexpr std::uint16_t kFirstFreePort = 49152;  // IANA's dynamic range

  struct Turn {
    std::shared_ptr<Wire> wire;
    std::size_t side = 0;
  };
  // A queue of connections that send one segment after the other.
  struct Port {
    std::deque<Turn> turns;
    bool busy = false;
    RateClock pace;
  };
  struct Host {
    HostOptions options;
    Port out;
    Port loopback;
    TimePoint in_free_at;  // when the receiving port has passed all that has arrived so far
    RateClock in_pace;
    bool vanished = false;
    HostTraffic traffic;
    HostWork work;
  };
  struct Door {
    ProcessId process;
    Executor* executor = nullptr;
    std::weak_ptr<Acceptor> acceptor;
  };
  struct Held {
    HostId from;
    HostId to;
    Task arrive;
  };

  Host& At(HostId host) { return hosts_.at(host.value()); }
  static bool IsLocal(const Wire& wire) { return wire.sides[0].host == wire.sides[1].host; }
  Port& PortFor(const Wire& wire, std::size_t side) {
    Host& host = At(wire.sides[side].host);
    return IsLocal(wire) ? host.loopback : host.out;
  }

  Duration LatencyBetween(HostId a, HostId b) {
    Duration latency = options_.latency;
    if (a == b) latency = options_.loopback_latency;
    if (const auto set = latencies_.find(std::minmax(a, b)); set != latencies_.end()) {
      latency = set->second;
    }
    if (options_.max_jitter > Duration::zero()) {
      latency += Duration(static_cast<std::int64_t>(
          random_.Below(static_cast<std::uint64_t>(options_.max_jitter.count()) + 1)));
    }
    return latency;
  }
  std::size_t DrawSegment() {
    switch (options_.cut) {
      case Cut::kSingleBytes:
        return 1;
      case Cut::kRandomSegments:
        return random_.Between(1, options_.segment_bytes);
      case Cut::kFullSegments:
        break;
    }
    return options_.segment_bytes;
  }

  bool CanSend(const Wire& wire, std::size_t side) const {
    const Wire::Side& sender = wire.sides[side];
    if (wire.reset || sender.end_sent) return false;
    if (sender.tx.empty()) return sender.closed;
    if (kernel_->now() < sender.paced_until) return false;
    return sender.unread < options_.receive_buffer_bytes;
  }

  // Sends the next segment of a port, if it is free.
  void Pump(HostId host, bool local) {
    Port& port = local ? At(host).loopback : At(host).out;
    while (!port.turns.empty() && !CanSend(*port.turns.front().wire, port.turns.front().side)) {
      port.turns.pop_front();  // its wire was reset while it waited
    }
    if (port.busy || port.turns.empty()) return;
    const Turn turn = std::move(port.turns.front());
    port.turns.pop_front();
    Wire::Side& sender = turn.wire->sides[turn.side];
    sender.queued = false;
    // No more than the peer has room for: a window of TCP, which makes a reader that is frozen stop its writer.
    ByteQueue bytes =
        sender.tx.Take(std::min(DrawSegment(), options_.receive_buffer_bytes - sender.unread));
    // The end travels with the last segment, or alone where nothing is left, so that it cannot overtake bytes.
    sender.end_sent = sender.closed && sender.tx.empty();
    const std::size_t size = bytes.size();
    sender.unacknowledged += size;
    sender.unread += size;
    if (!local) At(host).traffic.out += size;
    if (sender.pace > 0) Hold(turn, size);
    port.busy = true;
    kernel_->PostAfter(
        port.pace.TimeOf(size, local ? 0 : At(host).options.rate_out),
        [this, turn, host, local, end = sender.end_sent, bytes = std::move(bytes)]() mutable {
          (local ? At(host).loopback : At(host).out).busy = false;
          Launch(turn, std::move(bytes), end);
          // Behind all others that wait: connections of a port take turns by segments (NetworkOptions::segment_bytes).
          Offer(turn.wire, turn.side);
          Pump(host, local);
        });
  }

  // The next segment of a paced side leaves when this one has taken its time.
  void Hold(const Turn& turn, std::size_t bytes) {
    Wire::Side& sender = turn.wire->sides[turn.side];
    sender.paced_until = std::max(sender.paced_until, kernel_->now()) + sender.pace_clock.TimeOf(bytes, sender.pace);
    kernel_->PostAfter(sender.paced_until - kernel_->now(), [this, turn] { Offer(turn.wire, turn.side); });
  }

  // A segment has left the port; it passes the receiving port once it has arrived there.
  void Launch(const Turn& turn, ByteQueue bytes, bool end) {
    InOrder(turn.wire, turn.side, [this, turn, end, bytes = std::move(bytes)]() mutable {
      const HostId from = turn.wire->sides[turn.side].host;
      const HostId to = turn.wire->sides[1 - turn.side].host;
      Host& host = At(to);
      if (IsLocal(*turn.wire) || host.options.rate_in <= 0) {
        Deliver(turn, std::move(bytes), end);
        return;
      }
      // Segments pass the receiving port one after the other: free_at = max(free_at, now) + bytes / rate.
      host.in_free_at = std::max(host.in_free_at, kernel_->now()) +
                        host.in_pace.TimeOf(bytes.size(), host.options.rate_in);
      Travel({from, to, [this, turn, end, bytes = std::move(bytes)]() mutable {
                Deliver(turn, std::move(bytes), end);
              }},
             host.in_free_at - kernel_->now());
    });
  }

  void Deliver(const Turn& turn, ByteQueue bytes, bool end) {
    const std::shared_ptr<Wire>& wire = turn.wire;
    Wire::Side& from = wire->sides[turn.side];
    Wire::Side& to = wire->sides[1 - turn.side];
    // Under way when the reset came. A real kernel drops such segments.
    if (wire->reset) return;
    const auto fault = std::find_if(resets_.begin(), resets_.end(), [&](const Reset& reset) {
      return reset.from == from.host && reset.to == to.host &&
             from.delivered + bytes.size() >= reset.bytes;
    });
    const bool resets = fault != resets_.end();
    if (resets) {
      bytes = bytes.Take(fault->bytes - std::min(fault->bytes, from.delivered));
      resets_.erase(fault);
    }
    const std::size_t size = bytes.size();
    to.damaged = to.damaged || (size > 0 && damages_.erase({from.host, to.host}) > 0);
    from.delivered += size;
    if (!IsLocal(*wire)) At(to.host).traffic.in += size;
    if (!to.closed) {
      if (!to.damaged) to.rx.Push(std::move(bytes));
      to.ended = to.ended || end;
    }
    if (resets) {
      wire->reset = true;
      Wake(wire, 0);
      Wake(wire, 1);
      return;
    }
    Wake(wire, 1 - turn.side);
    if (size > 0) {
      Signal(wire, 1 - turn.side, [this, wire, side = turn.side, size] {
        wire->sides[side].unacknowledged -= size;
        Wake(wire, side);
      });
    }
  }

  // Runs `arrive` a latency later at the peer's host, after all that this side sent before.
  void InOrder(const std::shared_ptr<Wire>& wire, std::size_t side, Task arrive) {
    Wire::Side& from = wire->sides[side];
    const HostId to = wire->sides[1 - side].host;
    const TimePoint now = kernel_->now();
    // Jitter is drawn for each segment: a short draw must not let one overtake the stream before it.
    from.last_arrival = std::max(from.last_arrival, now + LatencyBetween(from.host, to));
    Travel({from.host, to, std::move(arrive)}, from.last_arrival - now);
  }
  // The same for the kernels' own small messages, which take no room and have no order.
  void Signal(const std::shared_ptr<Wire>& wire, std::size_t side, Task arrive) {
    const HostId from = wire->sides[side].host;
    const HostId to = wire->sides[1 - side].host;
    Travel({from, to, std::move(arrive)}, LatencyBetween(from, to));
  }
  void Travel(Held message, Duration time) {
    kernel_->PostAfter(time, [this, message = std::move(message)]() mutable {
      Arrive(std::move(message));
    });
  }
  void Arrive(Held message) {
    // On arrival, not on departure: what was under way when a host vanished waits too.
    // Processes of one host still reach each other (Vanish in the header).
    if (message.from != message.to && (At(message.from).vanished || At(message.to).vanished ||
                                       cut_links_.contains({message.from, message.to}))) {
      held_.push_back(std::move(message));
      return;
    }
    message.arrive();
  }

  Simulation& simulation_;
  const NetworkOptions options_;
  Random random_;
  std::deque<Host> hosts_;
  std::map<std::pair<HostId, HostId>, Duration> latencies_;
  std::map<std::pair<HostId, std::uint16_t>, Door> doors_;
  std::vector<std::weak_ptr<Wire>> wires_;
  std::set<ProcessId> watched_;
  std::vector<Held> held_;
  std::set<std::pair<HostId, HostId>> cut_links_;
  std::set<std::pair<HostId, HostId>> damages_;
  std::vector<Reset> resets_;
  std::uint64_t connections_ = 0;
  // Last, so that the events it drops still find the rest.
  std::unique_ptr<Executor> kernel_;
};

void VirtualNetwork::Fabric::Wake(const std::shared_ptr<Wire>& wire, std::size_t side) {
  Wire::Side& own = wire->sides[side];
  if (own.executor == nullptr || own.waking) return;
  own.waking = true;
  own.executor->Post([wire, side] {
    // Before the end looks: what comes during the look then wakes it again.
    wire->sides[side].waking = false;
    if (const std::shared_ptr<End> end = wire->sides[side].end.lock()) end->Answer();
  });
}

// One side of a wire on its way to its owner; closed if it does not get there.
class VirtualNetwork::Ticket {
 public:
  Ticket(Fabric& fabric, std::shared_ptr<Wire> wire, std::size_t side)
      : fabric_(&fabric), wire_(std::move(wire)), side_(side) {}
  Ticket(Ticket&&) noexcept = default;
  Ticket& operator=(Ticket&&) = delete;
  ~Ticket() {
    if (wire_ != nullptr) fabric_->CloseSide(wire_, side_);
  }
  bool empty() const { return wire_ == nullptr; }
  std::shared_ptr<Wire> Redeem() { return std::exchange(wire_, nullptr); }

 private:
  Fabric* fabric_;
  std::shared_ptr<Wire> wire_;
  std::size_t side_;
};

void VirtualNetwork::Fabric::Ask(HostId from, ProcessId process, const Address& address,
                                 Answer answer) {
  const auto named = std::find_if(hosts_.begin(), hosts_.end(), [&](const Host& host) {
    return host.options.name == address.host;
  });
  // No answer, as from an address that no machine has: the connect runs into its timeout.
  if (named == hosts_.end()) return;
  const HostId to(static_cast<std::uint32_t>(named - hosts_.begin()));
  Task arrive = [this, from, to, process, port = address.port,
                 answer = std::move(answer)]() mutable {
    const auto door = doors_.find({to, port});
    if (door == doors_.end()) {
      Travel({to, from, [this, answer = std::move(answer)] { answer(Ticket(*this, nullptr, 0)); }},
             LatencyBetween(to, from));
      return;
    }
    const auto wire = std::make_shared<Wire>();
    wire->sides[0].host = from;
    wire->sides[0].process = process;
    for (Wire::Side& side : wire->sides) side.send_buffer = options_.send_buffer_bytes;
    wire->sides[1].host = to;
    wire->sides[1].process = door->second.process;
    std::erase_if(wires_, [](const auto& weak) { return weak.expired(); });
    wires_.push_back(wire);
    std::string peer_name = NameOf(from) + ":" + std::to_string(++connections_);
    door->second.executor->Post([this, weak = door->second.acceptor, ticket = Ticket(*this, wire, 1),
                                 peer_name = std::move(peer_name)]() mutable {
      const std::shared_ptr<Acceptor> acceptor = weak.lock();
      if (acceptor == nullptr || !acceptor->open) return;
      acceptor->accept(ConnectionOf(acceptor->executor, ticket.Redeem(), 1, std::move(peer_name)));
    });
    // In order: as on a real network the connection is there before the first bytes of the accepting side.
    InOrder(wire, 1, [answer = std::move(answer), ticket = Ticket(*this, wire, 0)]() mutable {
      answer(std::move(ticket));
    });
  };
  Travel({from, to, std::move(arrive)}, LatencyBetween(from, to));
}

std::unique_ptr<Connection> VirtualNetwork::Fabric::ConnectionOf(Executor& executor, std::shared_ptr<Wire> wire,
                                                                 std::size_t side, std::string peer_name) {
  auto end = std::make_shared<End>(executor, *this, std::move(wire), side);
  end->Attach();
  return std::make_unique<MemoryConnection>(std::move(end), std::move(peer_name));
}

void VirtualNetwork::End::Attach() {
  own().executor = &executor();
  own().end = std::static_pointer_cast<End>(shared_from_this());
}

Status VirtualNetwork::End::ReadEnd() const {
  if (wire_->reset) {
    return {StatusCode::kUnavailable, "the connection was reset", StatusScope::kConnection};
  }
  if (own().damaged) {
    return {StatusCode::kDataLoss, "bytes were changed on their way", StatusScope::kConnection};
  }
  if (own().ended) {
    return {StatusCode::kUnavailable, "the peer closed the connection", StatusScope::kConnection};
  }
  return OkStatus();
}

Status VirtualNetwork::End::WriteEnd() const {
  if (own().refused) {
    return {StatusCode::kUnavailable, "the peer closed the connection", StatusScope::kConnection};
  }
  return own().damaged ? OkStatus() : ReadEnd();
}

std::size_t VirtualNetwork::End::Take(MutableBytes into) {
  const std::size_t count = own().rx.Pop(into);
  fabric_.Charge(own().host, count, &TransferCosts::seconds_per_byte_in);
  return count;
}

std::size_t VirtualNetwork::End::Put(ConstBytes from) {
  const std::size_t count = std::min(from.size(), fabric_.RoomToSend(*wire_, side_));
  if (fabric_.IsHollow(from)) {
    own().tx.PushHollow(count);
  } else {
    own().tx.Push(from.first(count));
  }
  fabric_.Charge(own().host, count, &TransferCosts::seconds_per_byte_out);
  return count;
}

void VirtualNetwork::End::LimitUndelivered(std::size_t bytes) {
  fabric_.LimitUndelivered(wire_, side_, bytes);
}

void VirtualNetwork::End::Pace(double bytes_per_second) { fabric_.Pace(wire_, side_, bytes_per_second); }

void VirtualNetwork::End::Took(std::size_t bytes) { fabric_.Consumed(wire_, side_, bytes); }
void VirtualNetwork::End::HasPut(std::size_t) { fabric_.Written(wire_, side_); }
void VirtualNetwork::End::Wake() { fabric_.Wake(wire_, side_); }
void VirtualNetwork::End::Shut() { fabric_.CloseSide(wire_, side_); }

class VirtualNetwork::SimListener final : public Listener {
 public:
  SimListener(Fabric& fabric, HostId host, Address address, std::shared_ptr<Acceptor> acceptor)
      : fabric_(fabric),
        host_(host),
        address_(std::move(address)),
        acceptor_(std::move(acceptor)) {}
  ~SimListener() override {
    fabric_.Unregister(host_, address_.port, acceptor_);
    acceptor_->open = false;
  }
  const Address& address() const override { return address_; }

 private:
  Fabric& fabric_;
  const HostId host_;
  const Address address_;
  // Shared with an accept under way, inside which this object may be destroyed.
  const std::shared_ptr<Acceptor> acceptor_;
};

// Connects under way. Shared with the answers and timers that look for it.
class VirtualNetwork::Connector : public std::enable_shared_from_this<Connector> {
 public:
  Connector(Fabric& fabric, HostId host, ProcessId process, Executor& executor)
      : fabric_(fabric), host_(host), process_(process), executor_(executor) {}

  void Start(const Address& address, Duration timeout, ConnectCompletion done) {
    const std::uint64_t id = ++last_id_;
    const TimerId timer = executor_.PostAfter(timeout, [weak = weak_from_this(), id, timeout] {
      if (const auto self = weak.lock()) self->GiveUp(id, timeout);
    });
    attempts_.emplace(id, Attempt{address, timer, std::move(done)});
    Try(id);
  }
  void Stop() {
    for (auto& [id, attempt] : std::exchange(attempts_, {})) {
      executor_.Cancel(attempt.timer);
      Finish(std::move(attempt.done), Unavailable("connect to " + attempt.address.ToString() +
                                                  " was given up: its context is closed"));
    }
  }

 private:
  struct Attempt {
    Address address;
    TimerId timer = 0;
    ConnectCompletion done;
  };

  void Try(std::uint64_t id) {
    const auto found = attempts_.find(id);
    if (found == attempts_.end()) return;
    // The answer comes on the network's executor, when this and its executor may be gone.
    fabric_.Ask(host_, process_, found->second.address,
                [weak = weak_from_this(), id](Ticket ticket) {
                  const auto self = weak.lock();
                  if (self == nullptr) return;
                  self->executor_.Post([weak, id, ticket = std::move(ticket)]() mutable {
                    if (const auto again = weak.lock()) again->Answered(id, std::move(ticket));
                  });
                });
  }

  void Answered(std::uint64_t id, Ticket ticket) {
    const auto found = attempts_.find(id);
    // Given up meanwhile. The ticket closes its side, so that the accepted connection ends.
    if (found == attempts_.end()) return;
    if (ticket.empty()) {
      executor_.PostAfter(fabric_.options().retry, [weak = weak_from_this(), id] {
        if (const auto self = weak.lock()) self->Try(id);
      });
      return;
    }
    Attempt attempt = std::move(found->second);
    attempts_.erase(found);
    executor_.Cancel(attempt.timer);
    Finish(std::move(attempt.done),
           fabric_.ConnectionOf(executor_, ticket.Redeem(), 0, attempt.address.ToString()));
  }

  void GiveUp(std::uint64_t id, Duration timeout) {
    const auto found = attempts_.find(id);
    if (found == attempts_.end()) return;
    Attempt attempt = std::move(found->second);
    attempts_.erase(found);
    Finish(std::move(attempt.done),
           Status(StatusCode::kDeadlineExceeded, "nobody answered at " +
                                                     attempt.address.ToString() + " within " +
                                                     std::to_string(ToSeconds(timeout)) + " s"));
  }

  void Finish(ConnectCompletion completion, Result<std::unique_ptr<Connection>> result) {
    executor_.Post([done = std::move(completion), result = std::move(result)]() mutable {
      done(std::move(result));
    });
  }

  Fabric& fabric_;
  const HostId host_;
  const ProcessId process_;
  Executor& executor_;
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, Attempt> attempts_;
};

class VirtualNetwork::SimContext final : public Context {
 public:
  SimContext(Fabric& fabric, HostId host, ProcessId process, Executor& executor)
      : fabric_(fabric),
        host_(host),
        process_(process),
        executor_(executor),
        connector_(std::make_shared<Connector>(fabric, host, process, executor)) {}
  ~SimContext() override { connector_->Stop(); }

  Executor& executor() override { return executor_; }

  Result<std::unique_ptr<Listener>> Listen(const Address& address,
                                           AcceptCallback accept) override {
    POSEIDON_ASSERT_ON(executor_);
    auto acceptor = std::make_shared<Acceptor>(Acceptor{executor_, std::move(accept)});
    POSEIDON_ASSIGN_OR_RETURN(Address taken,
                              fabric_.Register(host_, process_, address, executor_, acceptor));
    return std::unique_ptr<Listener>(
        std::make_unique<SimListener>(fabric_, host_, std::move(taken), std::move(acceptor)));
  }

  void Connect(const Address& address, Duration timeout, ConnectCompletion done) override {
    POSEIDON_ASSERT_ON(executor_);
    connector_->Start(address, timeout, std::move(done));
  }

 private:
  Fabric& fabric_;
  const HostId host_;
  const ProcessId process_;
  Executor& executor_;
  const std::shared_ptr<Connector> connector_;
};

VirtualNetwork::VirtualNetwork(Simulation& simulation, NetworkOptions options)
    : fabric_(std::make_unique<Fabric>(simulation, options)) {}
VirtualNetwork::~VirtualNetwork() = default;

HostId VirtualNetwork::AddHost(HostOptions options) { return fabric_->AddHost(std::move(options)); }
void VirtualNetwork::SetLatency(HostId a, HostId b, Duration latency) {
  fabric_->SetLatency(a, b, latency);
}
std::unique_ptr<Context> VirtualNetwork::MakeContext(HostId host, ProcessId process,
                                                     Executor& executor) {
  fabric_->Watch(process);
  return std::make_unique<SimContext>(*fabric_, host, process, executor);
}
void VirtualNetwork::Vanish(HostId host) { fabric_->Vanish(host); }
void VirtualNetwork::Return(HostId host) { fabric_->Return(host); }
void VirtualNetwork::Cut(HostId from, HostId to) { fabric_->CutLink(from, to); }
void VirtualNetwork::DamageNext(HostId from, HostId to) { fabric_->DamageNext(from, to); }
void VirtualNetwork::ResetAfter(Reset reset) { fabric_->ResetAfter(reset); }
HostTraffic VirtualNetwork::traffic(HostId host) const { return fabric_->TrafficOf(host); }
HostWork VirtualNetwork::work(HostId host) const { return fabric_->WorkOf(host); }

}  // namespace poseidon::sim
