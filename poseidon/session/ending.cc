// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/ending.h"

#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::session {

Ending::Ending(Member& member, Hooks hooks) : member_(member), hooks_(std::move(hooks)) {}
Ending::~Ending() { member_.Cancel(timer_); }

void Ending::Leave(Completion done) {
  POSEIDON_ASSERT_ON(member_.env.io);
  left_ = std::move(done);
  if (member_.phase == Phase::kEnded) return member_.PostDone(left_, member_.failure);
  member_.phase = Phase::kLeaving;
  member_.SendTo(kCoordinatorMember, wire::Reached{wire::Stage::kDone, {}});
}

void Ending::AwaitEnd(Completion done) {
  POSEIDON_ASSERT_ON(member_.env.io);
  awaiting_.push_back(std::move(done));
  if (over_) member_.PostDone(awaiting_.back(), Outcome());
}

void Ending::Abort(const Status& reason) {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (member_.phase == Phase::kEnded) return;
  if (member_.coordinator != nullptr) {
    member_.coordinator->OnOwnAbort(reason);
    // The coordinator gives no verdict where all workers are done. The job has to end here all the same.
    if (member_.phase != Phase::kEnded) End(reason);
    return;
  }
  member_.SendAbort(reason);
  End(reason);
}

void Ending::End(const Status& reason) {
  POSEIDON_ASSERT_ON(member_.env.io);
  if (member_.phase == Phase::kEnded) return;
  // First: a connection that closes from now on finds an ended job and is no evidence of a death.
  member_.phase = Phase::kEnded;
  hooks_.stop();
  // Calls that come after an orderly end need a failure too.
  member_.failure = reason.ok() ? FailedPrecondition("the job has ended") : reason;
  ended_well_ = reason.ok();
  member_.mesh.CloseAllWhenDrained(reason.ok() ? Unavailable("the job has ended") : reason);
  // Posted also where nothing waits to leave: the failure is passed on below before anything completes with it.
  const Duration wait = member_.mesh.drained() ? Duration{0} : kTimeForLastMessages;
  timer_ = member_.env.io.PostAfter(wait, alive_.Guard([this] {
    timer_ = 0;
    Finish();
  }));
  // on_failure is called before anything completes with the failure: a push that comes now is refused at once.
  if (auto told = std::exchange(hooks_.on_failure, {}); told && !ended_well_) told(member_.failure);
}

void Ending::Vanish() {
  POSEIDON_ASSERT_ON(member_.env.io);
  hooks_.on_failure = {};
  if (member_.phase != Phase::kEnded) {
    member_.phase = Phase::kEnded;
    member_.failure = Unavailable("the session was closed");
  } else if (timer_ == 0) {
    return;  // has ended
  } else {
    // The end still waits for last messages to leave. They are given up.
    member_.Cancel(timer_);
  }
  Finish();
}

void Ending::Finish() {
  // Closed before anything completes: until then frames may still read and write the memory that was lent.
  member_.mesh.CloseAll(member_.failure);
  hooks_.close(ended_well_, alive_.Guard([this] { OnClosed(); }));
}

void Ending::OnClosed() {
  hooks_.abandon();
  member_.PostDone(left_, Outcome());
  // A product under way still writes a gradient. After it, and after the completion that its end posts,
  // nothing is in flight any more.
  auto over = alive_.Guard([this] {
    hooks_.settle(alive_.Guard([this, &io = member_.env.io] { io.Post(alive_.Guard([this] { TellOver(); })); }));
  });
  member_.env.compute.Post([over = std::move(over), &io = member_.env.io]() mutable {
    io.Post([over = std::move(over), &io]() mutable { io.Post(std::move(over)); });
  });
}

void Ending::TellOver() {
  over_ = true;
  for (Completion& waiting : std::exchange(awaiting_, {})) member_.PostDone(waiting, Outcome());
}

}  // namespace poseidon::session
