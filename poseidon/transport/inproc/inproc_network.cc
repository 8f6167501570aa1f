// SPDX-License-Identifier: Apache-2.0
#include "poseidon/transport/inproc/inproc_network.h"

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "poseidon/base/check.h"
#include "poseidon/base/mutex.h"
#include "poseidon/transport/inproc/pipe.h"
#include "poseidon/transport/memory_stream.h"

namespace poseidon::transport {
namespace inproc {
namespace {

class End;

// How one end asks the other, on the other's executor, to look at the pipes again. The asking side
// may be a foreign thread and the asked one may just be dying: the mutex makes "is it still there"
// and "post to it" one step. Rings while one is under way are the same ring.
class Doorbell {
 public:
  void Attach(Executor& executor, std::weak_ptr<End> end) {
    MutexLock lock(mutex_);
    executor_ = &executor;
    end_ = std::move(end);
  }
  void Detach() {
    MutexLock lock(mutex_);
    executor_ = nullptr;
  }
  static void Ring(const std::shared_ptr<Doorbell>& bell);

 private:
  Mutex mutex_;
  Executor* executor_ POSEIDON_GUARDED_BY(mutex_) = nullptr;
  std::weak_ptr<End> end_ POSEIDON_GUARDED_BY(mutex_);
  bool ringing_ POSEIDON_GUARDED_BY(mutex_) = false;
};

// Shared by both ends. Side 0 connected, side 1 accepted; side s writes pipes[s], reads pipes[1-s].
struct Link {
  explicit Link(std::size_t buffer_bytes) : pipes{Pipe(buffer_bytes), Pipe(buffer_bytes)} {}
  std::array<Pipe, 2> pipes;
  std::array<std::shared_ptr<Doorbell>, 2> bells = {std::make_shared<Doorbell>(),
                                                    std::make_shared<Doorbell>()};

  void CloseSide(std::size_t side) {
    pipes[side].CloseWriter();
    pipes[1 - side].CloseReader();
    bells[side]->Detach();
    // Last: the look that it causes has to find the pipes closed.
    Doorbell::Ring(bells[1 - side]);
  }
};

// One side of a connection; lives on its executor.
class End final : public MemoryStream {
 public:
  End(Executor& on, std::shared_ptr<Link> link, std::size_t side)
      : MemoryStream(on), link_(std::move(link)), side_(side) {}

  void Attach() {
    own_bell()->Attach(executor(), std::static_pointer_cast<End>(shared_from_this()));
  }
  void Answer() { Advance(); }

 private:
  std::size_t Take(MutableBytes into) override { return inward().Take(into); }
  std::size_t Put(ConstBytes from) override { return outward().Put(from); }
  Status ReadEnd() const override {
    return inward().state().writer_closed ? PeerClosed() : OkStatus();
  }
  Status WriteEnd() const override {
    return outward().state().reader_closed ? PeerClosed() : OkStatus();
  }
  void Took(std::size_t) override { Doorbell::Ring(peer_bell()); }
  void HasPut(std::size_t) override { Doorbell::Ring(peer_bell()); }
  void Wake() override { Doorbell::Ring(own_bell()); }
  void Shut() override { link_->CloseSide(side_); }

  static Status PeerClosed() {
    return {StatusCode::kUnavailable, "the peer closed the connection", StatusScope::kConnection};
  }
  Pipe& inward() const { return link_->pipes[1 - side_]; }
  Pipe& outward() const { return link_->pipes[side_]; }
  const std::shared_ptr<Doorbell>& own_bell() const { return link_->bells[side_]; }
  const std::shared_ptr<Doorbell>& peer_bell() const { return link_->bells[1 - side_]; }

  const std::shared_ptr<Link> link_;
  const std::size_t side_;
};

void Doorbell::Ring(const std::shared_ptr<Doorbell>& bell) {
  MutexLock lock(bell->mutex_);
  if (bell->executor_ == nullptr || bell->ringing_) return;
  bell->ringing_ = true;
  bell->executor_->Post([bell] {
    std::shared_ptr<End> end;
    {
      MutexLock answered(bell->mutex_);
      // Before the end looks: bytes that come during the look then ring again, and are not missed.
      bell->ringing_ = false;
      end = bell->end_.lock();
    }
    if (end != nullptr) end->Answer();
  });
}

// A connection that owns one side of a link. Its bytes never leave the memory of the process.
std::unique_ptr<Connection> ConnectionOf(Executor& executor, std::shared_ptr<Link> link, std::size_t side,
                                         std::string peer_name) {
  auto end = std::make_shared<End>(executor, std::move(link), side);
  end->Attach();
  return std::make_unique<MemoryConnection>(std::move(end), std::move(peer_name));
}

// The accepting side of a connection that its listener has not seen yet. If it never does, because
// it or its executor is gone, the connecting side reads the end of the stream.
class Ticket {
 public:
  explicit Ticket(std::shared_ptr<Link> link) : link_(std::move(link)) {}
  Ticket(Ticket&&) noexcept = default;
  Ticket& operator=(Ticket&&) = delete;
  ~Ticket() {
    if (link_ != nullptr) link_->CloseSide(1);
  }
  std::shared_ptr<Link> Redeem() { return std::exchange(link_, nullptr); }

 private:
  std::shared_ptr<Link> link_;
};

}  // namespace

// The part of a listener that lives on its executor.
struct Acceptor {
  Executor& executor;
  AcceptCallback accept;
  bool open = true;
};

// Where listeners are found. Connecting threads come here, so everything is under one mutex; under
// it an acceptor is only posted to, never touched.
class Hub {
 public:
  explicit Hub(InprocOptions options) : options_(options) {}

  Result<Address> Register(Address address, Executor& executor, std::weak_ptr<Acceptor> acceptor) {
    MutexLock lock(mutex_);
    if (address.port == 0) {
      for (address.port = kFirstFreePort; doors_.contains(address);) {
        if (++address.port == 0) return ResourceExhausted(address.host + " has no free port");
      }
    }
    const bool fresh = doors_.try_emplace(address, Door{&executor, std::move(acceptor)}).second;
    if (!fresh) return FailedPrecondition("address " + address.ToString() + " is in use");
    return address;
  }
  void Unregister(const Address& address) {
    MutexLock lock(mutex_);
    doors_.erase(address);
  }

  // The connecting side of a new link, or null when nobody listens at `address`.
  std::shared_ptr<Link> Knock(const Address& address, const std::string& from) {
    MutexLock lock(mutex_);
    const auto door = doors_.find(address);
    if (door == doors_.end()) return nullptr;
    auto link = std::make_shared<Link>(options_.buffer_bytes);
    std::string peer_name = from + ":" + std::to_string(++connections_);
    door->second.executor->Post([weak = door->second.acceptor, ticket = Ticket(link),
                                 peer_name = std::move(peer_name)]() mutable {
      const std::shared_ptr<Acceptor> acceptor = weak.lock();
      // The listener may have gone since the knock. The ticket then closes its side.
      if (acceptor == nullptr || !acceptor->open) return;
      acceptor->accept(ConnectionOf(acceptor->executor, ticket.Redeem(), 1, std::move(peer_name)));
    });
    return link;
  }
  const InprocOptions& options() const { return options_; }

 private:
  static constexpr std::uint16_t kFirstFreePort = 49152;  // IANA's dynamic range
  struct Door {
    Executor* executor = nullptr;
    std::weak_ptr<Acceptor> acceptor;
  };
  const InprocOptions options_;
  Mutex mutex_;
  std::map<Address, Door> doors_ POSEIDON_GUARDED_BY(mutex_);
  std::uint64_t connections_ POSEIDON_GUARDED_BY(mutex_) = 0;
};

namespace {

class InprocListener final : public Listener {
 public:
  InprocListener(std::shared_ptr<Hub> hub, Address address, std::shared_ptr<Acceptor> acceptor)
      : hub_(std::move(hub)), address_(std::move(address)), acceptor_(std::move(acceptor)) {}
  ~InprocListener() override {
    hub_->Unregister(address_);
    // For knocks that are posted already: nothing may call the callback of a listener that is gone.
    acceptor_->open = false;
  }
  const Address& address() const override { return address_; }

 private:
  const std::shared_ptr<Hub> hub_;
  const Address address_;
  // Shared with an accept under way, inside which this object may be destroyed.
  const std::shared_ptr<Acceptor> acceptor_;
};

// Connects under way. Shared with their retry timers, which may outlive the context.
class Connector : public std::enable_shared_from_this<Connector> {
 public:
  Connector(std::shared_ptr<Hub> hub, Executor& executor, std::string name)
      : hub_(std::move(hub)), executor_(executor), name_(std::move(name)) {}

  void Start(const Address& address, Duration timeout, ConnectCompletion done) {
    const std::uint64_t id = ++last_id_;
    attempts_.emplace(id, Attempt{address, timeout, executor_.now() + timeout,
                                  hub_->options().first_retry, std::move(done)});
    Try(id);
  }
  void Stop() {
    for (auto& [id, attempt] : std::exchange(attempts_, {})) {
      Finish(std::move(attempt.done), Unavailable("connect to " + attempt.address.ToString() +
                                                  " was given up: its context is closed"));
    }
  }

 private:
  struct Attempt {
    Address address;
    Duration timeout;
    TimePoint deadline;
    Duration pause;
    ConnectCompletion done;
  };

  void Try(std::uint64_t id) {
    const auto found = attempts_.find(id);
    if (found == attempts_.end()) return;
    Attempt& attempt = found->second;
    std::shared_ptr<Link> link = hub_->Knock(attempt.address, name_);
    const Duration left = attempt.deadline - executor_.now();
    if (link == nullptr && left > Duration::zero()) {
      const Duration pause = std::min(attempt.pause, left);
      attempt.pause = std::min(attempt.pause * 2, hub_->options().first_retry * 64);
      // Weak: the retry must not keep the connector of a context that has gone. The number finds the attempt,
      // which Stop may have ended.
      executor_.PostAfter(pause, [weak = weak_from_this(), id] {
        if (const auto self = weak.lock()) self->Try(id);
      });
      return;
    }
    Attempt finished = std::move(attempt);
    attempts_.erase(found);
    if (link == nullptr) {
      Finish(std::move(finished.done),
             Status(StatusCode::kDeadlineExceeded,
                    "nobody listened at " + finished.address.ToString() + " within " +
                        std::to_string(ToSeconds(finished.timeout)) + " s"));
      return;
    }
    Finish(std::move(finished.done), ConnectionOf(executor_, std::move(link), 0, finished.address.ToString()));
  }

  void Finish(ConnectCompletion completion, Result<std::unique_ptr<Connection>> result) {
    executor_.Post([done = std::move(completion), result = std::move(result)]() mutable {
      done(std::move(result));
    });
  }

  const std::shared_ptr<Hub> hub_;
  Executor& executor_;
  const std::string name_;
  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, Attempt> attempts_;
};

class InprocContext final : public Context {
 public:
  InprocContext(std::shared_ptr<Hub> hub, Executor& executor, std::string name)
      : hub_(hub),
        executor_(executor),
        connector_(std::make_shared<Connector>(std::move(hub), executor, std::move(name))) {}
  ~InprocContext() override { connector_->Stop(); }

  Executor& executor() override { return executor_; }

  Result<std::unique_ptr<Listener>> Listen(const Address& address,
                                           AcceptCallback accept) override {
    POSEIDON_ASSERT_ON(executor_);
    auto acceptor = std::make_shared<Acceptor>(Acceptor{executor_, std::move(accept)});
    POSEIDON_ASSIGN_OR_RETURN(Address taken, hub_->Register(address, executor_, acceptor));
    return std::unique_ptr<Listener>(
        std::make_unique<InprocListener>(hub_, std::move(taken), std::move(acceptor)));
  }

  void Connect(const Address& address, Duration timeout, ConnectCompletion done) override {
    POSEIDON_ASSERT_ON(executor_);
    connector_->Start(address, timeout, std::move(done));
  }

 private:
  const std::shared_ptr<Hub> hub_;
  Executor& executor_;
  const std::shared_ptr<Connector> connector_;
};

}  // namespace
}  // namespace inproc

InprocNetwork::InprocNetwork(InprocOptions options)
    : hub_(std::make_shared<inproc::Hub>(options)) {}
InprocNetwork::~InprocNetwork() = default;

std::unique_ptr<Context> InprocNetwork::MakeContext(Executor& executor, std::string name) {
  return std::make_unique<inproc::InprocContext>(hub_, executor, std::move(name));
}

}  // namespace poseidon::transport
