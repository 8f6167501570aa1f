// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/launcher.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "tools/console/exit_code.h"
#include "tools/launch/ending.h"
#include "tools/launch/member.h"
#include "tools/launch/members.h"
#include "tools/launch/process.h"
#include "tools/launch/signal_queue.h"
#include "tools/launch/verdict.h"

namespace poseidon::launch {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;
using tools::kExitFailed;
using tools::kExitMemberLost;
using tools::kExitOk;

// The time that members have, beyond that in which all must have joined, to report the failure themselves.
constexpr auto kOwnWords = std::chrono::seconds(5);
// The time that the accused of a verdict gets when everybody else has ended: a lost one would be gone.
constexpr auto kLastMoment = std::chrono::milliseconds(500);
// How often the launcher looks whether somebody reads its output again.
constexpr auto kUntilHeard = std::chrono::milliseconds(20);
// After a failure or a stop nothing that takes longer to be taken is waited for.
constexpr auto kUntilTaken = std::chrono::seconds(2);
// A job that has not stopped so long after the request says what it waits for.
constexpr auto kUntilNotice = std::chrono::seconds(1);
// How often members elsewhere hear that this machine is there, and after how long a silence it is gone for them.
constexpr auto kBetweenBeats = std::chrono::seconds(15);
constexpr auto kGone = std::chrono::seconds(60);
// How often LaunchOptions::look is called.
constexpr auto kBetweenLooks = std::chrono::milliseconds(500);
// The time that a member which has ended the job by an error of its own has to end itself, with its own exit code.
constexpr auto kOwnEnd = std::chrono::seconds(5);

// One job from its first member to its last.
class Job {
 public:
  Job(const std::vector<MemberProcess>& members, const LaunchOptions& options)
      : processes_(members), options_(options), members_(FromSeconds(options.answer_seconds)), ending_(options) {}

  LaunchResult Run();

 private:
  using Moment = std::optional<Clock::time_point>;

  // Starting.
  void StartOthers(const Listening& rank_zero);
  bool Formed() const;
  void LimitForming(Clock::duration more);
  void OnNotFormed();

  // Waiting.
  void Step();
  int TimeoutOfPoll(bool deaf) const;
  void Print(std::function<void()> print);
  void PrintWhatWaits();
  bool MustPrintMore() const;
  void OnTimers();
  void Look();

  // What members say.
  void ReadFrom(Member& member);
  void OnLine(Member& member, const std::string& line);
  void On(Member& member, const Listening& event);
  void On(Member& member, const Joined& event);
  void On(Member& member, const Saving& event);
  void On(Member& member, const Saved& event);
  void On(Member& member, const Here& event);
  void On(Member& member, const Failed& event);
  void On(Member& member, const Figures& event);
  template <typename ForPeople>
  void On(Member& member, const ForPeople& event);

  // What the user wants.
  void OnSignals();
  void OnInterrupt();
  void StopWished(int signal);
  void EndEarly();
  void SayWhatIsAwaited();
  void Suspend();

  // What members hear.
  void Tell(const std::string& command);
  void Beat();

  // The end.
  void Reap();
  void OnFailedMember();
  void EndWhereOnlyAccusedAreLeft();
  void NoteFirstFailure(const Member& member);
  void LetGo();
  std::optional<std::size_t> WhoseOwnEndIsAwaited();
  JobRecord Record() const;
  LaunchResult Result() const;

  void Say(const std::string& sentence) const;
  std::size_t PlaceOf(const Member& member) const { return static_cast<std::size_t>(member.record().member - processes_.data()); }
  bool members_are_apart() const { return options_.let_go_seconds.has_value(); }
  bool ended_early() const { return ended_early_ && stop_requests_ == 1; }

  const std::vector<MemberProcess>& processes_;
  const LaunchOptions& options_;
  const SignalQueue signals_{SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGTSTP, SIGWINCH};
  Members members_;
  Ending ending_;
  std::string start_failure_;
  std::vector<std::size_t> missing_;  // the places of those for whom it was waited in vain
  bool missing_asked_ = false;        // whether they live
  std::optional<std::size_t> first_failed_;
  int stop_requests_ = 0;
  int stop_signal_ = 0;
  bool own_end_awaited_ = false;
  bool ended_early_ = false;  // by a request to stop, before all had joined
  bool deaf_ = false;                             // nobody takes what is printed
  std::deque<std::function<void()>> unprinted_;   // what came since
  Clock::time_point printed_at_;                  // when something of that was printed last
  Clock::time_point ended_at_;                    // when a member ended last
  Moment notice_at_;
  Moment let_go_at_;
  bool rest_asked_ = false;  // after a failure, whether they live
  Moment answers_by_;        // when those have answered that live
  Moment look_at_;    // none where nobody looks
  Moment beat_at_;    // none where all members are here
  Moment formed_by_;  // none once all have joined, or the job ends
};

LaunchResult Job::Run() {
  signal(SIGPIPE, SIG_IGN);
  if (!signals_.ok()) return {kExitFailed, "cannot receive signals"};
  // From here on the signals come to this object.
  if (options_.stop_wished && options_.stop_wished()) {
    ++stop_requests_;
    stop_signal_ = SIGTERM;
    EndEarly();
    return Result();
  }
  if (const Status status = members_.Start(processes_.front(), processes_.front().task); !status.ok()) {
    return {kExitFailed, "cannot start " + processes_.front().name + ": " + status.message()};
  }
  LimitForming({});
  Look();
  if (std::any_of(processes_.begin(), processes_.end(), [](const MemberProcess& member) { return member.remote; })) {
    Beat();
  }
  while (!members_.AllEnded() || MustPrintMore()) Step();
  for (const auto& print : unprinted_) print();
  return Result();
}

// ---- starting

void Job::StartOthers(const Listening& rank_zero) {
  for (std::size_t i = 1; i < processes_.size(); ++i) {
    json task = processes_[i].task;
    task["coordinator"] = EventJson(rank_zero);
    if (const Status status = members_.Start(processes_[i], task); !status.ok()) {
      start_failure_ = "cannot start " + processes_[i].name + ": " + status.message();
      LetGo();
      return;
    }
  }
  if (deaf_) members_.TellAll({{"command", "hold"}});
}

bool Job::Formed() const { return members_.size() == processes_.size() && members_.AllJoined(); }

void Job::LimitForming(Clock::duration more) {
  formed_by_ = Clock::now() + more + FromSeconds(options_.join_seconds);
}

// A member that is frozen, or whose disk or ssh hangs, says nothing, and neither may those that wait for it. These answer
// where they are asked, but for the ranks of other programs.
void Job::OnNotFormed() {
  formed_by_.reset();
  const bool first_only = members_.size() < processes_.size();
  std::vector<std::size_t> missing = members_.Missing();
  if (missing.empty()) return;  // who has ended is known, and the others follow
  if (missing.size() > 1 && !members_are_apart() && !std::exchange(missing_asked_, true)) {
    members_.AskWhoLives(/*elsewhere_only=*/false);
    formed_by_ = Clock::now() + FromSeconds(options_.answer_seconds);
    return;
  }
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g s", options_.join_seconds);
  start_failure_ = members_.NamesOf(missing) + (first_only ? " did not listen" : " did not join") + " within " + seconds +
                   ": it is frozen, or waits for a disk, a host or another member that does not answer";
  missing_ = std::move(missing);
  LetGo();
  ending_.Within(kLastMoment);
}

// ---- waiting

// Waits for output of a member, a signal or the next moment of the timers, and handles what has come. While nobody
// reads what this process prints (`deaf`), what members bring is kept: they hear of it and bring no more lines, but still
// that they fail.
void Job::Step() {
  std::vector<pollfd> polled = {{signals_.descriptor(), POLLIN, 0}};
  std::vector<Member*> by_index = {nullptr};
  const bool deaf = options_.may_speak && !options_.may_speak();
  if (std::exchange(deaf_, deaf) != deaf) members_.TellAll({{"command", deaf ? "hold" : "go on"}});
  PrintWhatWaits();
  for (Member& member : members_) {
    if (member.output() < 0) continue;
    polled.push_back({member.output(), POLLIN, 0});
    by_index.push_back(&member);
  }
  poll(polled.data(), polled.size(), TimeoutOfPoll(deaf || !unprinted_.empty()));
  for (std::size_t i = 1; i < polled.size(); ++i) {
    if (polled[i].revents != 0) ReadFrom(*by_index[i]);
  }
  // Deadlines come after the output that came in time.
  OnTimers();
  // The signal comes last: it may suspend this process, and members' output is to be read first.
  if (polled[0].revents != 0) OnSignals();
  Reap();
}

void Job::Print(std::function<void()> print) {
  if (!deaf_ && unprinted_.empty()) return print();
  unprinted_.push_back(std::move(print));
}

void Job::PrintWhatWaits() {
  while (!unprinted_.empty() && options_.may_speak()) {
    unprinted_.front()();
    unprinted_.pop_front();
    printed_at_ = Clock::now();
  }
}

bool Job::MustPrintMore() const {
  if (unprinted_.empty()) return false;
  if (!first_failed_ && stop_requests_ == 0 && start_failure_.empty()) return true;
  return Clock::now() < std::max(printed_at_, ended_at_) + kUntilTaken;
}

int Job::TimeoutOfPoll(bool deaf) const {
  int timeout = deaf ? static_cast<int>(kUntilHeard.count()) : -1;
  for (const Moment& moment : {ending_.deadline(), notice_at_, formed_by_, let_go_at_, answers_by_, beat_at_, look_at_}) {
    if (!moment) continue;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*moment - Clock::now()).count();
    const int until = left > 0 ? static_cast<int>(left) + 1 : 0;
    timeout = timeout < 0 ? until : std::min(timeout, until);
  }
  return timeout;
}

void Job::OnTimers() {
  const auto is_due = [](const Moment& moment) { return moment && Clock::now() >= *moment; };
  if (is_due(ending_.deadline())) ending_.OnDeadline(members_);
  if (is_due(notice_at_)) SayWhatIsAwaited();
  if (is_due(formed_by_)) OnNotFormed();
  if (is_due(let_go_at_)) LetGo();
  if (is_due(answers_by_)) {
    answers_by_.reset();
    EndWhereOnlyAccusedAreLeft();
  }
  if (is_due(beat_at_)) Beat();
  if (is_due(look_at_)) Look();
}

void Job::Look() {
  if (!options_.look) return;
  options_.look();
  look_at_ = Clock::now() + kBetweenLooks;
}

// ---- what members say

void Job::ReadFrom(Member& member) {
  for (const std::string& line : member.ReadLines()) OnLine(member, line);
}

void Job::OnLine(Member& member, const std::string& line) {
  const std::optional<Event> event = DecodeEvent(line);
  if (!event) {
    if (options_.on_line) Print([this, line] { options_.on_line(line); });
    return;
  }
  member.NoteEvent();
  std::visit([&](const auto& said) { On(member, said); }, *event);
}

void Job::On(Member& member, const Listening& event) {
  if (!members_.IsFirst(member) || members_.size() > 1) return;
  LimitForming(kOwnWords);
  StartOthers(event);
}

void Job::On(Member& member, const Joined&) {
  member.NoteJoined();
  if (Formed()) formed_by_.reset();
}

void Job::On(Member& member, const Saving&) { member.NoteSaving(true); }

void Job::On(Member& member, const Saved&) {
  member.NoteSaving(false);
  ending_.NoteSaved(member);
}

void Job::On(Member& member, const Here&) { member.NoteAnswer(); }

void Job::On(Member& member, const Failed& event) {
  member.NoteFailure(event);
  NoteFirstFailure(member);
}

void Job::On(Member& member, const Figures& event) {
  if (options_.on_figures) options_.on_figures(PlaceOf(member), event.line);
}

template <typename ForPeople>
void Job::On(Member& member, const ForPeople& event) {
  if (options_.on_event) Print([this, name = member.name(), event] { options_.on_event(name, event); });
}

// ---- what the user wants

void Job::OnSignals() {
  while (const std::optional<int> signal = signals_.Next()) {
    switch (*signal) {
      case SIGCHLD: break;
      case SIGHUP: Tell("hangup"); break;
      case SIGTSTP: Suspend(); break;
      case SIGWINCH: Look(); break;
      case SIGINT: OnInterrupt(); break;
      default: StopWished(SIGTERM);
    }
  }
}

void Job::OnInterrupt() {
  if (!options_.interrupt_stops && Formed()) {
    Tell("interrupt");
  } else {
    StopWished(SIGINT);
  }
}

void Job::StopWished(int signal) {
  if (stop_signal_ == 0) stop_signal_ = signal;
  if (++stop_requests_ > 1) return members_.Kill();
  if (!Formed()) return EndEarly();
  Tell(signal == SIGINT ? "interrupt" : "terminate");
  notice_at_ = Clock::now() + kUntilNotice;
  if (members_are_apart()) let_go_at_ = Clock::now() + FromSeconds(options_.stop_seconds);
}

void Job::EndEarly() {
  ended_early_ = true;
  formed_by_.reset();
  Say(members_are_apart() ? "stopped before all had started" : "stopped before training began");
  LetGo();
}

void Job::SayWhatIsAwaited() {
  notice_at_.reset();
  Say("stopping; waiting for " + std::string(members_are_apart() ? "" : "the end of an iteration of ") +
      members_.Remaining() + "; a second Ctrl-C or SIGTERM ends all at once");
}

// Ctrl-Z: members work on, until nobody takes what they print.
void Job::Suspend() {
  members_.TellElsewhere({{"command", "pause"}});
  if (options_.suspending) options_.suspending();
  TakeAsByDefault(SIGTSTP);
  if (beat_at_) Beat();
}

void Job::Say(const std::string& sentence) const {
  if (options_.say) options_.say(sentence);
}

// ---- what members hear

void Job::Tell(const std::string& command) {
  const json line = {{"command", command}};
  if (members_are_apart()) {
    members_.TellAll(line);
  } else {
    members_.TellFirst(line);
  }
}

void Job::Beat() {
  members_.TellElsewhere({{"command", "beat"}, {"within", std::chrono::duration<double>(kGone).count()}});
  beat_at_ = Clock::now() + kBetweenBeats;
}

// ---- the end

void Job::Reap() {
  bool failed = false;
  for (Member& member : members_) {
    if (!member.Reap()) continue;
    ReadFrom(member);
    member.CloseOutput();
    ended_at_ = Clock::now();
    const bool ended_badly = *member.record().wait_status != 0;
    failed |= ended_badly || member.record().failure;
    if (ended_badly) NoteFirstFailure(member);
    if (options_.on_ended) options_.on_ended(PlaceOf(member), DescribeWaitStatus(*member.record().wait_status));
  }
  if (failed) OnFailedMember();
}

void Job::NoteFirstFailure(const Member& member) {
  if (first_failed_ || member.record().ended_by_us) return;
  first_failed_ = PlaceOf(member);
}

// The other members find out by themselves; this is for those that cannot.
void Job::OnFailedMember() {
  if (members_are_apart()) {
    // Who was asked to stop may say so by failing.
    if (stop_requests_ == 0 && !let_go_at_) let_go_at_ = Clock::now() + FromSeconds(*options_.let_go_seconds);
    if (!Formed()) LetGo();
    return;
  }
  ending_.BeginAfterFailure();
  if (!Formed()) return LetGo();
  // Here it is seen who is frozen; elsewhere no answer comes.
  if (!std::exchange(rest_asked_, true)) {
    members_.AskWhoLives(/*elsewhere_only=*/true);
    answers_by_ = Clock::now() + FromSeconds(options_.answer_seconds);
  }
  EndWhereOnlyAccusedAreLeft();
}

void Job::EndWhereOnlyAccusedAreLeft() {
  if (OnlyAccusedAreLeft(members_.Records())) ending_.Within(kLastMoment);
}

void Job::LetGo() {
  let_go_at_.reset();
  const std::optional<std::size_t> awaited = WhoseOwnEndIsAwaited();
  if (awaited) {
    const auto until = Clock::now() + kOwnEnd;
    let_go_at_ = until;
    members_.Spare(*awaited, until + FromSeconds(options_.grace_seconds));
  }
  const int code = AnyWasKilled(members_.Records()) ? kExitMemberLost : ended_early() ? kExitOk : kExitFailed;
  members_.LetGo(code, awaited);
  ending_.Within(FromSeconds(options_.grace_seconds));
}

// Who has ended the job by an error of its own is slower to end than those that hear of it: it is let go later.
std::optional<std::size_t> Job::WhoseOwnEndIsAwaited() {
  if (!members_are_apart() || stop_requests_ > 0 || std::exchange(own_end_awaited_, true)) return std::nullopt;
  const JobRecord job = Record();
  const std::optional<std::size_t> blamed = Blamed(job);
  return blamed && EndsByItself(job, *blamed) ? blamed : std::nullopt;
}

JobRecord Job::Record() const {
  return {.members = members_.Records(),
          .start_failure = start_failure_,
          .missing = missing_,
          .first_failed = first_failed_,
          .stop_requests = stop_requests_,
          .stop_signal = stop_signal_,
          .ended_early = ended_early()};
}

LaunchResult Job::Result() const {
  const JobRecord job = Record();
  return members_are_apart() ? FirstFailure(job) : CommonVerdict(job);
}

}  // namespace

LaunchResult Launch(const std::vector<MemberProcess>& members, const LaunchOptions& options) {
  return Job(members, options).Run();
}

}  // namespace poseidon::launch
