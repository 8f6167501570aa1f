// SPDX-License-Identifier: Apache-2.0
#include "poseidon/coordinator/membership.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <set>
#include <string_view>

#include "poseidon/base/check.h"
#include "poseidon/base/lesser.h"
#include "poseidon/base/listed.h"
#include "poseidon/coordinator/silence.h"

namespace poseidon::coordinator {
namespace {

std::string_view Plural(Role role) { return role == Role::kWorker ? "workers" : "servers"; }

// A process that is no member yet.
std::string Describe(const JoinRequest& request) {
  std::string text = request.role == Role::kWorker ? "the worker" : "the server";
  if (!request.host.empty()) text += " on host " + request.host;
  return text + " (" + request.address + ":" + std::to_string(request.port) + ")";
}

// How long a reported silent link is tolerated; its reporter had waited for suspect_after before.
Duration LinkPatience(const LivenessRule& rule) {
  return rule.dead_after_silence() - rule.suspect_after();
}

// One step of the state machine: the state under change, and what was decided.
class Machine {
 public:
  Machine(MembershipState state, TimePoint now) : state_(std::move(state)), now_(now) {}
  Transition Take() { return {std::move(state_), std::move(actions_), std::move(reason_)}; }

  // Silence while the observer itself was suspended is nobody's fault: its peers' messages may wait
  // unread behind the event that woke it.
  void ForgiveOwnAbsence() {
    const Duration absent = now_ - state_.last_event;
    state_.last_event = now_;
    if (!Watching() || absent <= state_.options.liveness.own_absence()) return;
    for (MemberState& member : state_.liveness) member.last_heard = member.last_heard + absent;
    for (auto& link : state_.silent_links) link.second = link.second + absent;
    reason_ = "did not run for " + InSeconds(absent) + ", which is not held against anyone";
  }

  void On(const Joined& joined) {
    const JoinRequest& request = joined.request;
    if (std::string why = WhyRefused(request); !why.empty()) {
      // A process that joins twice on one stream is confused: it is not counted on any longer.
      std::erase_if(state_.joined,
                    [&](const JoinRequest& j) { return j.connection == request.connection; });
      reason_ = Describe(request) + " was refused: " + why;
      actions_.push_back(Refuse{request.connection, std::move(why)});
      return;
    }
    state_.joined.push_back(request);
    reason_ = Describe(request) + " joined; " + Progress();
    if (Joiners(Role::kWorker) < state_.options.workers ||
        Joiners(Role::kServer) < state_.options.servers) {
      return;
    }
    for (const JoinRequest& one : state_.joined) state_.bandwidth = LesserRate(state_.bandwidth, one.bandwidth);
    state_.members = AssignMembers(state_.joined, state_.options.workers);
    state_.joined.clear();
    state_.liveness.assign(state_.members.size(), MemberState{});
    // Watching begins here: silence counts, and looks are due, from now on.
    for (MemberState& member : state_.liveness) member.last_heard = now_;
    state_.last_look = now_;
    state_.phase = Phase::kPreparing;
    actions_.push_back(WelcomeAll{});
  }

  void On(const LeftEarly& left) {
    if (state_.phase != Phase::kForming) return;
    const auto found =
        std::find_if(state_.joined.begin(), state_.joined.end(),
                     [&](const JoinRequest& j) { return j.connection == left.connection; });
    if (found == state_.joined.end()) return;
    std::optional<MemberId> culprit;
    std::string text = Describe(*found);
    if (const std::optional<std::uint16_t> number = NumberOf(*found)) {
      culprit = PlaceOf(found->role, *number);
      text += ", " + Numbered(found->role, std::to_string(*number)) + ",";
    }
    text += " " + left.how + " before the job had formed";
    if (!left.why.ok()) text += ": " + left.why.message();
    Judge(culprit, std::move(text));
  }

  void On(const Ready& ready) {
    if (state_.phase != Phase::kPreparing || !Known(ready.member)) return;
    Of(ready.member).ready = true;
    On(Heard{ready.member});
    const bool all = std::all_of(state_.liveness.begin(), state_.liveness.end(),
                                 [](const MemberState& member) { return member.ready; });
    if (!all) return;
    state_.phase = Phase::kRunning;
    reason_ = "all members are ready";
    actions_.push_back(StartAll{});
  }

  void On(const Heard& heard) {
    if (!Watching() || !Known(heard.member)) return;
    MemberState& member = Of(heard.member);
    const TimePoint at = std::min(heard.at.value_or(now_), now_);
    if (at <= member.last_heard) return;
    const Duration silence = at - member.last_heard;
    member.last_heard = at;
    // A sign of life may be noted late and then be itself too old to lift the suspicion.
    if (!member.suspected || now_ - at >= state_.options.liveness.suspect_after()) return;
    member.suspected = false;
    reason_ = Name(heard.member) + " is heard again after " + InSeconds(silence) + " of silence";
    actions_.push_back(NameSuspect{
        .member = heard.member, .heard_again = true, .tell = true, .line = reason_});
  }

  void On(const Lost& lost) {
    if (!Watching() || !Known(lost.member) || !Known(lost.from) || lost.member == lost.from) return;
    if (Of(lost.member).done) {
      // Nobody hears a member that has left, and links to it must not end the job as silent ones.
      Of(lost.member).left = true;
      std::erase_if(state_.silent_links, [&](const auto& link) {
        return link.first.first == lost.member || link.first.second == lost.member;
      });
      reason_ = Name(lost.member) + " was done and has left";
      return;
    }
    // The host of the coordinator lives, or nobody could judge: the reporter's link is at fault.
    if (lost.member == kHost) {
      std::string text = Name(lost.from) + " lost its connection to " + Name(kHost) +
                         ", which runs the coordinator";
      if (!lost.why.ok()) text += ": " + lost.why.message();
      return Judge(lost.from, std::move(text));
    }
    Judge(lost.member, DescribeLoss(Name(lost.member), Name(lost.from), lost.why));
  }

  void On(const Aborted& aborted) {
    if (state_.phase == Phase::kForming) {
      // There is no roster yet: only the process with the coordinator can end the job.
      if (aborted.from == kHost) Judge(aborted.culprit, aborted.reason);
      return;
    }
    if (!Watching() || !Known(aborted.from)) return;
    std::optional<MemberId> culprit = aborted.culprit;
    // The number comes from the network. A member that names one that does not exist is itself at fault.
    if (culprit && !Known(*culprit)) culprit = aborted.from;
    // The sender names no culprit and does not hear the coordinator: who hears whom decides.
    if (!culprit && state_.silent_links.contains({aborted.from, kHost})) {
      culprit = BlameForSilence(OwnHearing(), state_.options.liveness).culprit;
    }
    std::string text = aborted.reason.empty() ? "gave up" : aborted.reason;
    if (!aborted.names && (!culprit || culprit == aborted.from)) {
      text = Name(aborted.from) + (aborted.reason.empty() ? " " : ": ") + text;
    } else if (aborted.reason.empty()) {
      text = Name(aborted.from) + " gave up because of " + Name(*culprit);
    }
    Judge(culprit, std::move(text));
  }

  void On(const Suspected& suspected) {
    if (!Watching() || !Known(suspected.by) || !Known(suspected.about) ||
        suspected.by == suspected.about || Of(suspected.by).left || Of(suspected.about).left) {
      return;
    }
    const auto link = std::pair(suspected.by, suspected.about);
    const std::string ends = " hears " + std::string(suspected.heard_again ? "" : "nothing from ");
    if (suspected.heard_again) {
      if (state_.silent_links.erase(link) == 0) return;
    } else if (!state_.silent_links.emplace(link, now_).second) {
      return;
    }
    reason_ =
        Name(suspected.by) + ends + Name(suspected.about) + (suspected.heard_again ? " again" : "");
    actions_.push_back(NameSuspect{
        .member = suspected.about, .heard_again = suspected.heard_again, .line = reason_});
  }

  void On(const Done& done) {
    if (!Watching() || !Known(done.member)) return;
    Of(done.member).done = true;
    On(Heard{done.member});
    // Servers are not asked: they leave when the workers have.
    for (const Member& member : state_.members) {
      if (member.role == Role::kWorker && !Of(member.id).done) return;
    }
    state_.phase = Phase::kFinished;
    reason_ = "all workers are done";
    actions_.push_back(FinishAll{});
  }

  void On(const Tick&) {
    state_.last_look = now_;
    if (state_.phase == Phase::kForming) return JudgeForming();
    if (!Watching()) return;
    NameTheSilent();
    JudgeSilence();
  }

 private:
  bool Watching() const {
    return state_.phase == Phase::kPreparing || state_.phase == Phase::kRunning;
  }
  bool Known(MemberId member) const { return member.value() < state_.members.size(); }
  MemberState& Of(MemberId member) { return state_.liveness[member.value()]; }
  std::string Name(MemberId member) const {
    return coordinator::Describe(state_.members[member.value()]);
  }
  std::size_t Joiners(Role role) const {
    return static_cast<std::size_t>(
        std::count_if(state_.joined.begin(), state_.joined.end(),
                      [role](const JoinRequest& j) { return j.role == role; }));
  }
  std::string Progress() const {
    std::string text = std::to_string(Joiners(Role::kWorker)) + " of " +
                       std::to_string(state_.options.workers) + " workers";
    if (state_.options.servers == 0) return text;
    return text + " and " + std::to_string(Joiners(Role::kServer)) + " of " +
           std::to_string(state_.options.servers) + " servers";
  }

  // The rank or shard that a joined process asks for; none where it has not said.
  static std::optional<std::uint16_t> NumberOf(const JoinRequest& joiner) {
    if (joiner.hosts_coordinator) return std::uint16_t{0};
    return joiner.rank ? std::optional(joiner.rank->value()) : std::nullopt;
  }
  static std::string Numbered(Role role, const std::string& numbers) {
    return (role == Role::kWorker ? "rank " : "server ") + numbers;
  }

  // The member that a process with this number will be.
  MemberId PlaceOf(Role role, std::uint16_t number) const {
    const int first = role == Role::kWorker ? 0 : state_.options.workers;
    return MemberId(static_cast<std::uint16_t>(first + number));
  }

  // Empty where the process may join.
  std::string WhyRefused(const JoinRequest& request) const {
    const MembershipOptions& options = state_.options;
    if (state_.phase == Phase::kEnded) return "the job has ended";
    if (state_.phase != Phase::kForming) {
      return "the job has started with all of its " + std::to_string(options.workers) + " workers";
    }
    if (request.protocol_version != options.protocol_version) {
      return "it speaks protocol version " + std::to_string(request.protocol_version) +
             ", this job speaks version " + std::to_string(options.protocol_version);
    }
    if (request.strategy != options.strategy) {
      return "its strategy is " + request.strategy + ", expected " + options.strategy + ", which the process that runs the coordinator has";
    }
    for (const JoinRequest& other : state_.joined) {
      if (other.connection == request.connection) return "it has joined before";
      if (other.hosts_coordinator && request.hosts_coordinator) {
        return "the process that runs the coordinator has joined before";
      }
    }
    if (request.role == Role::kServer) {
      if (request.hosts_coordinator) return "a server cannot run the coordinator";
    } else if (std::string why = WhyRankRefused(request); !why.empty()) {
      return why;
    }
    const std::size_t limit = request.role == Role::kServer ? options.servers : options.workers;
    // A worker's place is kept for the coordinator's host.
    const bool host_here = request.hosts_coordinator ||
                           std::any_of(state_.joined.begin(), state_.joined.end(),
                                       [](const JoinRequest& j) { return j.hosts_coordinator; });
    const std::size_t kept = request.role == Role::kWorker && !host_here ? 1 : 0;
    if (Joiners(request.role) + kept >= limit) {
      return "this job of " + std::to_string(limit) + " " + std::string(Plural(request.role)) +
             " has all of them";
    }
    return "";
  }
  std::string WhyRankRefused(const JoinRequest& request) const {
    if (!request.rank) return "";
    const std::uint16_t rank = request.rank->value();
    const std::string asked = "rank " + std::to_string(rank) + " was asked for";
    if (rank >= state_.options.workers) {
      return asked + ", expected 0 to " + std::to_string(state_.options.workers - 1);
    }
    if (request.hosts_coordinator && rank != 0) {
      return asked + " by the process that runs the coordinator, which is rank 0";
    }
    if (!request.hosts_coordinator && rank == 0) {
      return asked + ", which belongs to the process that runs the coordinator";
    }
    for (const JoinRequest& other : state_.joined) {
      if (other.role == request.role && other.rank == request.rank) {
        return asked + " by " + Describe(other) + " and by " + Describe(request);
      }
    }
    return "";
  }

  void Judge(std::optional<MemberId> culprit, std::string text) {
    state_.verdict = AbortAll{culprit, text};
    state_.phase = Phase::kEnded;
    reason_ = std::move(text);
    actions_.push_back(*state_.verdict);
  }

  void JudgeForming() {
    if (now_ < state_.began + state_.options.form_within) return;
    std::string text =
        "only " + Progress() + " have joined within " + InSeconds(state_.options.form_within);
    std::optional<MemberId> culprit;
    std::string missing;
    for (const Role role : {Role::kWorker, Role::kServer}) {
      const std::vector<std::uint16_t> numbers = Missing(role);
      std::string list;
      for (const std::uint16_t number : numbers) AddListed(std::to_string(number), &list);
      if (!list.empty()) AddListed(Numbered(role, list), &missing);
      if (!culprit && !numbers.empty()) culprit = PlaceOf(role, numbers.front());
    }
    if (!missing.empty()) text += "; missing: " + missing;
    Judge(culprit, std::move(text));
  }

  // The numbers of those who have not joined; none where one who has joined has not said its number.
  std::vector<std::uint16_t> Missing(Role role) const {
    std::set<std::uint16_t> taken;
    for (const JoinRequest& joiner : state_.joined) {
      if (joiner.role != role) continue;
      const std::optional<std::uint16_t> number = NumberOf(joiner);
      if (!number) return {};
      taken.insert(*number);
    }
    std::vector<std::uint16_t> missing;
    const std::uint16_t all =
        role == Role::kWorker ? state_.options.workers : state_.options.servers;
    for (std::uint16_t number = 0; number < all; ++number) {
      if (!taken.contains(number)) missing.push_back(number);
    }
    return missing;
  }

  void NameTheSilent() {
    for (const Member& member : state_.members) {
      MemberState& state = Of(member.id);
      if (member.id == kHost || state.left || state.suspected) continue;
      const Duration silence = now_ - state.last_heard;
      if (silence < state_.options.liveness.suspect_after()) continue;
      state.suspected = true;
      reason_ = coordinator::Describe(member) + " has been silent for " + InSeconds(silence);
      actions_.push_back(NameSuspect{
          .member = member.id, .heard_again = false, .tell = true, .line = reason_});
    }
  }

  // What the coordinator hears itself and what members report of links are weighed together: the two
  // become due at other phases of the heartbeats.
  void JudgeSilence() {
    const LivenessRule& rule = state_.options.liveness;
    const Hearing hearing = OwnHearing();
    const bool own_due =
        std::any_of(hearing.silence.begin(), hearing.silence.end(), [&](const auto& silence) {
          return silence && *silence >= rule.dead_after_silence();
        });
    const bool link_due = std::any_of(
        state_.silent_links.begin(), state_.silent_links.end(), [&](const auto& entry) {
          const auto& [link, since] = entry;
          const auto& reporter = hearing.silence[link.first.value()];
          return now_ - since >= LinkPatience(rule) &&
                 // A report counts while its reporter is heard: a silent reporter may itself be cut off.
                 (link.first == kHost || (reporter && *reporter < rule.suspect_after()));
        });
    if (!own_due && !link_due) return;
    Blame blame = BlameForSilence(hearing, rule);
    Judge(blame.culprit, std::move(blame.reason));
  }
  Hearing OwnHearing() {
    Hearing hearing{.self = kHost, .members = state_.members, .silence = {}};
    for (const Member& member : state_.members) {
      const MemberState& state = Of(member.id);
      const bool here = member.id != kHost && !state.left;
      hearing.silence.push_back(here ? std::optional(now_ - state.last_heard) : std::nullopt);
    }
    const Duration before = state_.options.liveness.suspect_after();
    for (const auto& [link, since] : state_.silent_links) {
      hearing.reported.emplace(link, before + (now_ - since));
    }
    return hearing;
  }

  MembershipState state_;
  const TimePoint now_;
  std::vector<Action> actions_;
  std::string reason_;
};

}  // namespace

Duration LivenessRule::heartbeat_interval() const {
  return std::min<Duration>(std::chrono::milliseconds(500), dead_after / 10);
}
Duration LivenessRule::suspect_after() const {
  return std::min<Duration>(std::chrono::seconds(4), dead_after_silence() - 2 * heartbeat_interval());
}
Duration LivenessRule::dead_after_silence() const { return dead_after - heartbeat_interval(); }

std::string Describe(const Member& member) {
  std::string text = member.role == Role::kWorker ? "worker " + std::to_string(member.rank.value())
                                                  : "server " + std::to_string(member.shard);
  if (!member.host.empty()) text += " on host " + member.host;
  return text;
}
std::string DescribeLoss(const std::string& lost, const std::string& by, const Status& why) {
  if (why.ok()) return lost + " ended without saying why, as " + by + " saw";
  // The peer ended the connection, or the network did.
  if (why.code() == StatusCode::kUnavailable) {
    return lost + " was lost: " + why.message() + ", as " + by + " saw";
  }
  return by + " closed its connection to " + lost + ": " + why.message();
}
std::string InSeconds(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", ToSeconds(duration));
  return text;
}

MembershipState BeginMembership(const MembershipOptions& options, TimePoint now) {
  MembershipState state;
  state.options = options;
  state.began = now;
  state.last_event = now;
  state.last_look = now;
  return state;
}

Transition Next(MembershipState state, const Event& event, TimePoint now) {
  Machine machine(std::move(state), now);
  machine.ForgiveOwnAbsence();
  std::visit([&](const auto& e) { machine.On(e); }, event);
  return machine.Take();
}

// While members are watched, a look is due every heartbeat interval at least: that is how an
// absence of the observer itself shows.
std::optional<TimePoint> NextDeadline(const MembershipState& state) {
  switch (state.phase) {
    case Phase::kForming:
      return state.began + state.options.form_within;
    case Phase::kPreparing:
    case Phase::kRunning:
      break;
    case Phase::kFinished:
    case Phase::kEnded:
      return std::nullopt;
  }
  const LivenessRule& rule = state.options.liveness;
  TimePoint next = state.last_look + rule.heartbeat_interval();
  for (std::size_t i = 1; i < state.liveness.size(); ++i) {
    const MemberState& member = state.liveness[i];
    if (member.left) continue;
    const Duration limit = member.suspected ? rule.dead_after_silence() : rule.suspect_after();
    next = std::min(next, member.last_heard + limit);
  }
  for (const auto& link : state.silent_links) {
    next = std::min(next, link.second + LinkPatience(rule));
  }
  return next;
}

namespace {

// Host by host, in order of each host's first arrival; arrivals of one host stay in order.
std::vector<const JoinRequest*> ByHost(const std::vector<JoinRequest>& joined) {
  std::vector<std::string> hosts;
  for (const JoinRequest& request : joined) {
    if (std::find(hosts.begin(), hosts.end(), request.host) == hosts.end()) {
      hosts.push_back(request.host);
    }
  }
  std::vector<const JoinRequest*> ordered;
  for (const std::string& host : hosts) {
    for (const JoinRequest& request : joined) {
      if (request.host == host) ordered.push_back(&request);
    }
  }
  return ordered;
}

// Who is given a rank has it; the others fill the gaps in their order.
std::vector<const JoinRequest*> WorkersByRank(const std::vector<const JoinRequest*>& ordered, std::uint16_t workers) {
  std::vector<const JoinRequest*> places(workers, nullptr);
  std::vector<const JoinRequest*> unplaced;
  for (const JoinRequest* request : ordered) {
    if (request->role != Role::kWorker) continue;
    const std::optional<Rank> rank = request->hosts_coordinator ? Rank(0) : request->rank;
    if (rank) {
      places[rank->value()] = request;
    } else {
      unplaced.push_back(request);
    }
  }
  auto next = unplaced.begin();
  for (const JoinRequest*& place : places) {
    if (place == nullptr && next != unplaced.end()) place = *next++;
  }
  return places;
}

// Those that were given numbers come first, by number.
std::vector<const JoinRequest*> ServersByNumber(const std::vector<const JoinRequest*>& ordered) {
  std::vector<const JoinRequest*> servers;
  for (const JoinRequest* request : ordered) {
    if (request->role == Role::kServer) servers.push_back(request);
  }
  std::stable_sort(servers.begin(), servers.end(), [](const JoinRequest* a, const JoinRequest* b) {
    if (a->rank && b->rank) return a->rank->value() < b->rank->value();
    return a->rank.has_value() && !b->rank.has_value();
  });
  return servers;
}

}  // namespace

std::vector<Member> AssignMembers(const std::vector<JoinRequest>& joined, std::uint16_t workers) {
  const std::vector<const JoinRequest*> ordered = ByHost(joined);
  std::vector<const JoinRequest*> places = WorkersByRank(ordered, workers);
  for (const JoinRequest* server : ServersByNumber(ordered)) places.push_back(server);
  std::vector<Member> members;
  for (std::size_t i = 0; i < places.size(); ++i) {
    POSEIDON_CHECK(places[i] != nullptr, "a rank was left without a worker");
    const JoinRequest& request = *places[i];
    const bool worker = request.role == Role::kWorker;
    const auto id = static_cast<std::uint16_t>(i);
    members.push_back(Member{.id = MemberId(id),
                             .role = request.role,
                             .rank = Rank(worker ? id : std::uint16_t{0}),
                             .shard = static_cast<std::uint16_t>(worker ? id : id - workers),
                             .connection = request.connection,
                             .host = request.host,
                             .address = request.address,
                             .port = request.port,
                             .machine = request.machine});
  }
  return members;
}

}  // namespace poseidon::coordinator
