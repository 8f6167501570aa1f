// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <list>
#include <set>
#include <utility>
#include <variant>

#include "poseidon/base/listed.h"
#include "tools/launch/descendants.h"
#include "tools/launch/process.h"

namespace poseidon::launch {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitPeerLost = 3;
// The time that members have, beyond that in which all must have joined, to report the failure themselves.
constexpr auto kOwnWords = std::chrono::seconds(5);
// The time that the accused of a verdict gets when everybody else has ended: a lost one would be gone.
constexpr auto kLastMoment = std::chrono::milliseconds(500);
// How often the launcher looks whether somebody reads its output again.
constexpr auto kUntilHeard = std::chrono::milliseconds(20);
// A job that has not stopped so long after the request says what it waits for.
constexpr auto kUntilNotice = std::chrono::seconds(1);
// How often members elsewhere hear that this machine is there, and after how long a silence it is gone for them.
constexpr auto kBetweenBeats = std::chrono::seconds(15);
constexpr auto kGone = std::chrono::seconds(60);

struct Child {
  const MemberProcess* member = nullptr;
  Process process;
  std::string partial_line;
  bool output_open = true;
  std::optional<int> wait_status;
  std::optional<Failed> failure;
  bool spoke = false;  // an event came
  bool joined = false;
  bool saving = false;
  std::optional<Clock::time_point> asked;  // whether it lives, and has not answered
  std::optional<Clock::time_point> spared_until;  // it has saved while the job ends
  bool ended_by_us = false;
};

Clock::duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Where a member was to start elsewhere and never spoke, what ended is the command that should have
// reached it; its own words are on standard error.
std::string DescribeEnd(const Child& child) {
  std::string how = DescribeWaitStatus(*child.wait_status);
  if (!child.member->remote) return how;
  const bool by_ssh = WIFEXITED(*child.wait_status) && WEXITSTATUS(*child.wait_status) == 255;
  if (child.spoke) return by_ssh ? "was killed, or its host is gone: " + child.member->argv.front() + " " + how : how;
  return "could not be started: " + child.member->argv.front() + " " + how;
}

// Whether somebody else ended the member. On another host what ended is the command that reached it:
// a shell adds 128 to the signal's number, and 255 is ssh's when it lost the host.
bool WasKilled(const Child& child) {
  if (!child.wait_status || child.ended_by_us || child.failure) return false;
  if (WIFSIGNALED(*child.wait_status)) return true;
  return child.member->remote && child.spoke && WEXITSTATUS(*child.wait_status) > 128;
}

// Who no longer reads is ending, which is noticed by itself.
void TellChild(Child& child, const json& command) {
  if (!child.process.ended()) static_cast<void>(child.process.WriteLine(command.dump()));
}

// Whether a process of this host is stopped (SIGSTOP, a debugger), so that it answers nobody.
bool IsStopped(pid_t pid) {
  const std::optional<ProcessState> state = StateOf(pid);
  return state && (state->letter == 'T' || state->letter == 't');
}

// One job from its first child to its last.
class Job {
 public:
  Job(const std::vector<MemberProcess>& members, const LaunchOptions& options)
      : members_(members), options_(options) {}
  ~Job();

  LaunchResult Run();

 private:
  bool Begin();
  Status StartChild(const MemberProcess& member, const json& task);
  void StartOthers(const Listening& rank_zero);
  void Step();
  void OnSignal();
  void OnLine(Child& child, const std::string& line);
  void On(Child& child, const Listening& event);
  void On(Child& child, const Joined& event);
  void On(Child& child, const Saving& event);
  void On(Child& child, const Saved& event);
  void On(Child& child, const Here& event);
  void On(Child& child, const Failed& event);
  template <typename ForPeople>
  void On(Child& child, const ForPeople& event);
  void ReadFrom(Child& child);
  void Reap();
  void OnFailedChild();
  void NoteFirstFailure(const Child& child);
  bool OnlyAccusedAreLeft() const;
  bool IsStuck(int place) const;
  bool Lives(Child& child);
  bool Formed() const;
  void EndWithin(Clock::duration time);
  void OnDeadline();
  void StopWished(int signal);
  void SayWhatIsAwaited();
  void Say(const std::string& sentence) const;
  void EndEarly();
  bool ended_early() const { return ended_early_ && interrupts_ == 1; }
  void LetGo();
  void LimitForming(Clock::duration more);
  void OnNotFormed();
  void Tell(const std::string& command);
  void TellElsewhere(const json& command);
  void Beat();
  void Suspend();
  void EndAll(int signal);
  bool AllEnded() const;
  bool members_are_apart() const { return options_.let_go_seconds.has_value(); }
  LaunchResult Verdict() const;
  LaunchResult FirstFailure() const;
  std::vector<MemberEnd> Ends() const;

  const std::vector<MemberProcess>& members_;
  const LaunchOptions& options_;
  int signals_ = -1;
  sigset_t old_mask_{};
  std::list<Child> children_;
  std::string start_failure_;
  int interrupts_ = 0;
  int stop_signal_ = 0;
  const Child* first_failed_ = nullptr;
  bool ended_early_ = false;  // by a request to stop, before all had joined
  std::optional<Clock::time_point> deadline_;         // when who does not save is ended
  std::optional<Clock::time_point> saving_deadline_;  // when who saves is; set by the first failure
  std::optional<Clock::time_point> notice_at_;
  std::optional<Clock::time_point> let_go_at_;
  std::optional<Clock::time_point> beat_at_;    // none where all members are here
  std::optional<Clock::time_point> formed_by_;  // none once all have joined, or the job ends
};

Job::~Job() {
  EndAll(SIGKILL);
  for (Child& child : children_) {
    if (!child.process.ended()) waitpid(child.process.pid(), nullptr, 0);
  }
  if (signals_ >= 0) {
    close(signals_);
    sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  }
}

bool Job::Begin() {
  signal(SIGPIPE, SIG_IGN);
  sigset_t mask;
  sigemptyset(&mask);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGTSTP}) sigaddset(&mask, s);
  sigprocmask(SIG_BLOCK, &mask, &old_mask_);
  signals_ = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
  return signals_ >= 0;
}

Status Job::StartChild(const MemberProcess& member, const json& task) {
  POSEIDON_ASSIGN_OR_RETURN(Process process, Process::Start(member.argv));
  children_.push_back(Child{&member, std::move(process), {}, true, {}, {}});
  return children_.back().process.WriteLine(task.dump());
}

void Job::StartOthers(const Listening& rank_zero) {
  for (std::size_t i = 1; i < members_.size(); ++i) {
    json task = members_[i].task;
    task["coordinator"] = EventJson(rank_zero);
    if (const Status status = StartChild(members_[i], task); !status.ok()) {
      start_failure_ = "cannot start " + members_[i].name + ": " + status.message();
      LetGo();
      return;
    }
  }
}

LaunchResult Job::Run() {
  if (!Begin()) return {kExitFailed, "cannot receive signals"};
  // From here on the signals come to this object.
  if (options_.stop_wished && options_.stop_wished()) {
    ++interrupts_;
    stop_signal_ = SIGTERM;
    EndEarly();
    return Verdict();
  }
  if (const Status status = StartChild(members_.front(), members_.front().task); !status.ok()) {
    return {kExitFailed, "cannot start " + members_.front().name + ": " + status.message()};
  }
  LimitForming({});
  if (std::any_of(members_.begin(), members_.end(), [](const MemberProcess& member) { return member.remote; })) Beat();
  while (!AllEnded()) Step();
  return Verdict();
}

bool Job::AllEnded() const {
  for (const Child& child : children_) {
    if (!child.process.ended() || child.output_open) return false;
  }
  return true;
}

// Waits for output of a member, a signal or the next moment of the timers, and handles what has come. While nobody
// reads what this process prints (`deaf`), members' output waits in their pipes.
void Job::Step() {
  std::vector<pollfd> polled = {{signals_, POLLIN, 0}};
  std::vector<Child*> by_index = {nullptr};
  const bool deaf = options_.may_speak && !options_.may_speak();
  for (Child& child : children_) {
    if (!child.output_open || deaf) continue;
    polled.push_back({child.process.output(), POLLIN, 0});
    by_index.push_back(&child);
  }
  int timeout = deaf ? static_cast<int>(kUntilHeard.count()) : -1;
  for (const auto& moment : {deadline_, notice_at_, formed_by_, let_go_at_, beat_at_}) {
    if (!moment) continue;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(*moment - Clock::now()).count();
    const int until = left > 0 ? static_cast<int>(left) + 1 : 0;
    timeout = timeout < 0 ? until : std::min(timeout, until);
  }
  poll(polled.data(), polled.size(), timeout);
  for (std::size_t i = 1; i < polled.size(); ++i) {
    if (polled[i].revents != 0) ReadFrom(*by_index[i]);
  }
  // Deadlines come after the output that came in time.
  if (deadline_ && Clock::now() >= *deadline_) OnDeadline();
  if (notice_at_ && Clock::now() >= *notice_at_) SayWhatIsAwaited();
  if (formed_by_ && Clock::now() >= *formed_by_) OnNotFormed();
  if (let_go_at_ && Clock::now() >= *let_go_at_) LetGo();
  if (beat_at_ && Clock::now() >= *beat_at_) Beat();
  // The signal comes last: it may suspend this process, and members' output is to be read first.
  if (polled[0].revents != 0) OnSignal();
  Reap();
}

void Job::OnSignal() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
    switch (info.ssi_signo) {
      case SIGCHLD: break;
      case SIGHUP: Tell("hangup"); break;
      case SIGTSTP: Suspend(); break;
      default: {
        const bool interrupt = info.ssi_signo == SIGINT;
        if (interrupt && !options_.interrupt_stops && Formed()) {
          Tell("interrupt");
        } else {
          StopWished(interrupt ? SIGINT : SIGTERM);
        }
      }
    }
  }
}

void Job::StopWished(int signal) {
  if (stop_signal_ == 0) stop_signal_ = signal;
  if (++interrupts_ > 1) return EndAll(SIGKILL);
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
  std::string awaited;
  for (const Child& child : children_) {
    if (child.process.ended()) continue;
    AddListed(child.member->name + (child.saving                       ? " (is saving)"
                                    : IsStopped(child.process.pid()) ? " (is stopped)"
                                                                       : ""),
              &awaited);
  }
  Say("stopping; waiting for " + std::string(members_are_apart() ? "" : "the end of an iteration of ") + awaited +
      "; a second Ctrl-C or SIGTERM ends all at once");
}

void Job::Say(const std::string& sentence) const {
  if (options_.say) options_.say(sentence);
}

void Job::Tell(const std::string& command) {
  for (Child& child : children_) {
    TellChild(child, {{"command", command}});
    if (!members_are_apart()) return;  // the leader alone
  }
}

void Job::TellElsewhere(const json& command) {
  for (Child& child : children_) {
    if (child.member->remote) TellChild(child, command);
  }
}

void Job::Beat() {
  TellElsewhere({{"command", "beat"}, {"within", std::chrono::duration<double>(kGone).count()}});
  beat_at_ = Clock::now() + kBetweenBeats;
}

// Ctrl-Z: members work on, until nobody takes what they print. The kernel decides whether it stops us: not where no shell
// could let us go on, nor where the signal is ignored.
void Job::Suspend() {
  TellElsewhere({{"command", "pause"}});
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  raise(SIGTSTP);
  pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  if (beat_at_) Beat();
}

void Job::EndAll(int signal) {
  for (Child& child : children_) {
    if (child.process.ended()) continue;
    child.ended_by_us = true;
    child.process.Signal(signal);
  }
}

// Members whose input ends, end: also on other hosts, and also while they wait for others to join.
void Job::LetGo() {
  let_go_at_.reset();
  const bool lost = std::any_of(children_.begin(), children_.end(), WasKilled);
  const json end = {{"command", "end"},
                    {"code", lost ? kExitPeerLost : ended_early() ? kExitOk : kExitFailed}};
  for (Child& child : children_) {
    if (child.process.ended()) continue;
    child.ended_by_us = true;
    TellChild(child, end);
    child.process.CloseInput();
  }
  EndWithin(FromSeconds(options_.grace_seconds));
}

bool Job::Formed() const {
  return children_.size() == members_.size() &&
         std::all_of(children_.begin(), children_.end(),
                     [](const Child& child) { return child.joined; });
}

void Job::LimitForming(Clock::duration more) {
  formed_by_ = Clock::now() + more +
               std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.join_seconds));
}

// A member that is frozen, or whose disk or ssh hangs, says nothing, and neither may those that wait for it.
void Job::OnNotFormed() {
  formed_by_.reset();
  const bool first_only = children_.size() < members_.size();
  std::string missing;
  for (const Child& child : children_) {
    if (!child.joined && !child.process.ended()) AddListed(child.member->name, &missing);
  }
  if (missing.empty()) return;  // who has ended is known, and the others follow
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g s", options_.join_seconds);
  start_failure_ = missing + (first_only ? " did not listen" : " did not join") + " within " + seconds +
                   ": it is frozen, or waits for a disk, a host or another member that does not answer";
  LetGo();
  EndWithin(kLastMoment);
}

void Job::EndWithin(Clock::duration time) {
  const Clock::time_point deadline = Clock::now() + time;
  if (!deadline_ || deadline < *deadline_) deadline_ = deadline;
}

// Nobody who is saving is ended, for so long as a failed disk may take; but for one whose saving hangs, or who is frozen.
void Job::OnDeadline() {
  deadline_.reset();
  int place = -1;
  for (Child& child : children_) {
    ++place;
    if (child.process.ended()) continue;
    if (child.saving && !IsStuck(place) && saving_deadline_ && Clock::now() < *saving_deadline_ && Lives(child)) {
      EndWithin(std::min(FromSeconds(options_.answer_seconds), *saving_deadline_ - Clock::now()));
    } else if (child.spared_until && Clock::now() < *child.spared_until) {
      EndWithin(*child.spared_until - Clock::now());
    } else {
      child.ended_by_us = true;
      child.process.Signal(SIGKILL);
    }
  }
}

// Asks a member whether it lives. False where the last question is older than `answer_seconds` and has no answer. A member
// reads and answers in a thread of its own, whatever it is writing.
bool Job::Lives(Child& child) {
  if (child.asked) return Clock::now() < *child.asked + FromSeconds(options_.answer_seconds);
  child.asked = Clock::now();
  TellChild(child, {{"command", "answer"}});
  return true;
}

void Job::ReadFrom(Child& child) {
  const std::optional<std::string> text = child.process.ReadSome();
  if (!text) {
    child.output_open = false;
    return;
  }
  child.partial_line += *text;
  for (std::size_t end; (end = child.partial_line.find('\n')) != std::string::npos;) {
    const std::string line = child.partial_line.substr(0, end);
    child.partial_line.erase(0, end + 1);
    OnLine(child, line);
  }
}

void Job::OnLine(Child& child, const std::string& line) {
  const std::optional<Event> event = DecodeEvent(line);
  if (!event) {
    if (options_.on_line) options_.on_line(line);
    return;
  }
  child.spoke = true;
  std::visit([&](const auto& said) { On(child, said); }, *event);
}

void Job::On(Child& child, const Listening& event) {
  if (child.member != &members_.front() || children_.size() > 1) return;
  LimitForming(kOwnWords);
  StartOthers(event);
}

void Job::On(Child& child, const Joined&) {
  child.joined = true;
  if (Formed()) formed_by_.reset();
}

void Job::On(Child& child, const Saving&) { child.saving = true; }

void Job::On(Child& child, const Saved&) {
  child.saving = false;
  if (!saving_deadline_) return;
  child.spared_until = Clock::now() + FromSeconds(options_.grace_seconds);
  EndWithin(FromSeconds(options_.grace_seconds));
}

void Job::On(Child& child, const Here&) { child.asked.reset(); }

void Job::On(Child& child, const Failed& event) {
  if (!child.failure) child.failure = event;
  NoteFirstFailure(child);
}

template <typename ForPeople>
void Job::On(Child& child, const ForPeople& event) {
  if (options_.on_event) options_.on_event(child.member->name, event);
}

void Job::Reap() {
  bool failed = false;
  for (Child& child : children_) {
    const std::optional<int> status = child.process.TryWait();
    if (!status) continue;
    child.wait_status = status;
    child.process.CloseInput();
    // A grandchild may hold the output open; what the child said is there by now.
    ReadFrom(child);
    child.output_open = false;
    failed |= *status != 0 || child.failure;
    if (*status != 0) NoteFirstFailure(child);
  }
  if (failed) OnFailedChild();
}

void Job::NoteFirstFailure(const Child& child) {
  if (first_failed_ == nullptr && !child.ended_by_us) first_failed_ = &child;
}

// The other members find out by themselves; this is for those that cannot.
void Job::OnFailedChild() {
  if (members_are_apart()) {
    // Who was asked to stop may say so by failing.
    if (interrupts_ == 0 && !let_go_at_) let_go_at_ = Clock::now() + FromSeconds(*options_.let_go_seconds);
    if (!Formed()) LetGo();
    return;
  }
  if (!saving_deadline_) saving_deadline_ = Clock::now() + FromSeconds(options_.saving_seconds);
  EndWithin(FromSeconds(options_.grace_seconds));
  if (!Formed()) return LetGo();
  if (OnlyAccusedAreLeft()) EndWithin(kLastMoment);
}

// An accused is named by its place among the members.
bool Job::OnlyAccusedAreLeft() const {
  std::set<int> accused;
  bool in_doubt = false;
  for (const Child& child : children_) {
    if (!child.failure) continue;
    accused.insert(child.failure->culprit.value_or(kNoCulprit));
    in_doubt |= child.failure->NamesLoss() && !child.failure->Accuses();
  }
  int place = 0;
  for (const Child& child : children_) {
    const bool is_accused = accused.contains(place++);
    // Nobody is accused where nobody can know who is cut off. A member of another host may be on the far side, from
    // which no end of its process comes.
    const bool may_be_cut_off = in_doubt && child.member->remote;
    if (!child.process.ended() && !is_accused && !may_be_cut_off) return false;
  }
  return true;
}

// Whether the members ended the job because this one, alive, kept them waiting for too long. Nobody needs what it may
// still be saving.
bool Job::IsStuck(int place) const {
  return std::any_of(children_.begin(), children_.end(), [place](const Child& child) {
    return child.failure && child.failure->Accuses(place) && child.failure->code == StatusCode::kDeadlineExceeded;
  });
}

std::vector<MemberEnd> Job::Ends() const {
  std::vector<MemberEnd> ends;
  for (const Child& child : children_) {
    ends.push_back({child.member->name, child.process.pid(),
                    child.wait_status ? DescribeWaitStatus(*child.wait_status) : "",
                    child.failure});
  }
  return ends;
}

// Returns the failure that came first in time; the others may follow from it.
LaunchResult Job::FirstFailure() const {
  LaunchResult result{.stop_signal = stop_signal_, .ends = Ends()};
  if (!start_failure_.empty()) {
    result.exit_code = kExitFailed;
    result.failure = start_failure_;
  } else if (first_failed_ != nullptr) {
    const Child& child = *first_failed_;
    result.failed = static_cast<int>(child.member - members_.data());
    result.exit_code = child.failure ? child.failure->exit.value_or(kExitFailed) : ExitCodeOf(*child.wait_status);
    result.failure = child.failure ? child.failure->message : child.member->name + " " + DescribeEnd(child);
  } else if (std::any_of(children_.begin(), children_.end(), [](const Child& child) { return child.ended_by_us; })) {
    result.exit_code = kExitFailed;
    result.failure = "the job was ended";
  }
  return result;
}

// Of all that failed: what the members agree on, else what happened to the first child.
LaunchResult Job::Verdict() const {
  if (members_are_apart()) return FirstFailure();
  LaunchResult result{.stop_signal = stop_signal_, .ends = Ends()};
  if (!start_failure_.empty()) {
    result.exit_code = kExitFailed;
    result.failure = start_failure_;
    return result;
  }
  bool in_doubt = false;  // the failure so far has no culprit among those who may be lost
  std::string other_side;
  const bool killed = std::any_of(children_.begin(), children_.end(), WasKilled);
  for (const Child& child : children_) {
    // Who is let go may complain that another one has gone before.
    if (!child.failure || (child.ended_by_us && ended_early())) continue;
    const bool accuses = child.failure->Accuses();
    const bool lost = child.failure->NamesLoss();
    // Where a member was killed, only a message that a member is lost counts: other failures follow from that.
    if (killed && !lost) continue;
    const std::string& message = child.failure->message;
    // A message with a culprit counts more than one of a side that is cut off and has none.
    if (result.failure.empty() || (!lost && result.exit_code == kExitPeerLost) ||
        (accuses && in_doubt)) {
      result.failure = message;
      result.exit_code = lost ? kExitPeerLost : child.failure->exit.value_or(kExitFailed);
      in_doubt = lost && !accuses;
    } else if (in_doubt && other_side.empty() && message != result.failure) {
      other_side = "; " + child.member->name + " says: " + message;
    }
  }
  if (in_doubt) result.failure += other_side;
  std::string ended;
  for (const Child& child : children_) {
    if (!child.wait_status || *child.wait_status == 0 || child.failure) continue;
    if (child.ended_by_us) {
      if (ended_early()) continue;
      AddListed(child.member->name, &ended);
    } else {
      result.failure += (result.failure.empty() ? "" : "; ") + child.member->name + " " +
                        DescribeEnd(child);
    }
    if (result.exit_code == 0) result.exit_code = killed ? kExitPeerLost : kExitFailed;
  }
  if (result.exit_code != 0 && result.failure.empty()) {
    result.failure = interrupts_ > 1 ? "the job was ended at once by a second request to stop"
                                     : "the job was ended";
  }
  if (!ended.empty() && interrupts_ == 0) result.failure += " (ended by the launcher: " + ended + ")";
  return result;
}

}  // namespace

LaunchResult Launch(const std::vector<MemberProcess>& members, const LaunchOptions& options) {
  return Job(members, options).Run();
}

}  // namespace poseidon::launch
