// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_LANES_H_
#define POSEIDON_SESSION_LANES_H_

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/session/ending.h"
#include "poseidon/session/lane.h"
#include "poseidon/session/liveness.h"
#include "poseidon/session/member.h"
#include "poseidon/sync/laned_exchange.h"

namespace poseidon::session {

// The lanes of a member beside lane 0, which is the member itself (plan/lanes.h). They are opened when the first plan says
// how many there are, and stay until the job ends.
//
// Thread: the I/O executor; the lanes live on executors of their own. Failure: a lane that cannot be opened, and one whose
// connection ends, is the member's failure: the job ends through Ending, or as for a connection of lane 0. Lifetime: member,
// ending and liveness outlive it.
class Lanes {
 public:
  Lanes(Member& member, Ending& ending, Liveness& liveness, std::function<void(MemberId, ByteBuffer)> on_message);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Opens so many lanes, lane 0 counted, with exchanges as `env` describes lane 0's. Calls `open` once every lane has a
  // connection to every other member, and the exchanges of every lane but 0 are made; never, where the job ends before. Once.
  void Open(std::uint16_t lanes, const sync::ExchangeEnvironment& env, std::function<void()> open);
  bool is_open() const { return open_; }
  bool is_opening() const { return begun_ && !open_; }
  // Once open.
  std::uint16_t count() const { return static_cast<std::uint16_t>(lanes_.size() + 1); }
  // The exchanges of every other lane of one scheme, by lane.
  std::vector<sync::LanedExchange::Other> ExchangesOf(plan::Scheme scheme) const;
  // A peer's lane listens there. It may come before Open.
  void OnAddress(MemberId from, const wire::LaneAddress& address);

  // Of every connection of every lane, lane 0 included, from now on.
  void SetFlow(const messaging::Flow& flow);
  // Holds every connection of every lane to these rates, from now on (messaging::Mesh::Hold).
  void Hold(const messaging::Paces& paces, const std::set<MemberId>& layer_peers);
  // Calls `then` when everything that was posted to the lanes before has run, with their sums. At once where there is only
  // lane 0.
  void Collect(UniqueFunction<void(const LaneTotals&)> then);
  // The sums of each other lane. They come from its executor.
  std::vector<std::future<LaneTotals>> Ask() const;
  // What the lanes' Traffic::work said when this was called before: they are asked anew here, and answer later.
  std::uint64_t work();
  // Closes every connection of every lane, then calls `then`; at once where there is only lane 0. `orderly`: see Lane::Close.
  // Once.
  void Close(const Status& reason, bool orderly, Task then);

 private:
  struct Entry {
    Executor& executor;
    std::unique_ptr<Lane> lane;  // lives there
    bool met = false;
  };
  // Calls `f(lane)` on the executor of every lane.
  template <typename F>
  void Post(const F& f) const;
  void Make(LaneServices services, std::uint16_t number, const sync::ExchangeEnvironment& env);
  Lane::Hooks HooksOf(std::uint16_t number);
  void OnListening(std::uint16_t number, const Result<std::uint16_t>& port);
  void OnMet(std::uint16_t number);

  Member& member_;
  Ending& ending_;
  Liveness& liveness_;
  const std::function<void(MemberId, ByteBuffer)> on_message_;
  std::vector<Entry> lanes_;  // lane 1 first
  std::function<void()> on_open_;
  bool open_ = false;
  bool begun_ = false;
  std::vector<std::pair<MemberId, wire::LaneAddress>> early_;
  std::uint64_t work_ = 0;
  Alive alive_;
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_LANES_H_
