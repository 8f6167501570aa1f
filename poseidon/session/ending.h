// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_ENDING_H_
#define POSEIDON_SESSION_ENDING_H_

#include <chrono>
#include <functional>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/base/executor.h"
#include "poseidon/session/member.h"

namespace poseidon::session {

// How long the last messages (ABORT, goodbye) may take to leave, after what the sockets hold already; a
// frozen peer never reads them.
inline constexpr Duration kTimeForLastMessages = std::chrono::milliseconds(200);

// How a member's job ends: by agreement (Leave, then End with OK), by a failure of this member or of another
// (Abort, End), or as a process that is killed (Vanish). Everything outstanding completes exactly once, after
// every connection has closed.
//
// Thread: the I/O executor. Lifetime: the member outlives it.
class Ending {
 public:
  struct Hooks {
    // Called once with the failure, before anything completes with it.
    UniqueFunction<void(const Status&)> on_failure;
    // Called when the job ends: the other rooms stop waiting.
    std::function<void()> stop;
    // Closes the connections of the other lanes, at an orderly end or not, then calls what it is given.
    std::function<void(bool orderly, Task)> close;
    // Calls what it is given once what the other lanes had to do has run, and what that has posted to them.
    std::function<void(Task)> settle;
    // Called after every connection has closed: fails what the other rooms have outstanding, with Member::failure.
    std::function<void()> abandon;
  };
  Ending(Member& member, Hooks hooks);
  ~Ending();

  // This member is done; `done` fires when all workers are and the connections may end.
  void Leave(Completion done);
  // Ends the job for everybody. `reason` should carry the culprit, if any.
  void Abort(const Status& reason);
  // Ends it here. `reason` OK is the orderly end. The last messages get a moment to leave; then every
  // connection is closed before anything completes, because until then memory may still be read and written.
  void End(const Status& reason);
  // Ends at once without a message, as a process that is killed: the others see a lost member. Not reported
  // through `on_failure`.
  void Vanish();
  // `done` fires when the job has ended here and everything outstanding has been completed: OK after
  // the orderly end, else the failure.
  void AwaitEnd(Completion done);

 private:
  void Finish();
  void OnClosed();
  void TellOver();
  Status Outcome() const { return ended_well_ ? OkStatus() : member_.failure; }

  Member& member_;
  Hooks hooks_;
  bool ended_well_ = false;
  bool over_ = false;  // nothing is in flight any more
  TimerId timer_ = 0;
  Completion left_;
  std::vector<Completion> awaiting_;
  Alive alive_;
};

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_ENDING_H_
