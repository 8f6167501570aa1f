// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_LAUNCHER_H_
#define POSEIDON_TOOLS_LAUNCH_LAUNCHER_H_

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/launch/events.h"

namespace poseidon::launch {

// One process of a job: how to start it and what it gets on its standard input.
//
// Launcher and member exchange JSON objects, one a line. To the member:
//   its task, first; a task of any rank but 0 has as "coordinator" what the event "listening" of rank 0 says
//   {"command": "terminate" | "interrupt" | "hangup"}   to rank 0 only, because what one worker is asked for all
//                                                        do at the same iteration; to all with `let_go_seconds`
//   {"command": "end", "code"}                           to everybody: the member ends with that code
//   {"command": "hold" | "go on"}                         to all with `may_speak`: nobody takes the output
//   {"command": "answer"}                                to a member that is saving while the job ends
//   the commands of beats.h, to members elsewhere
// The end of the input means that the launcher is gone. From the member: events.h.
struct MemberProcess {
  std::string name;               // "worker 2 on host b"
  std::vector<std::string> argv;  // ends in the program or begins with ssh
  nlohmann::json task;            // secrets travel here, never in argv
  bool remote = false;            // argv is a command that starts the program elsewhere
};

struct LaunchOptions {
  // Rank 0 has so long to listen, and then all members to join, and a moment more to report themselves who is
  // missing. A member that is still missing then ends the job.
  double join_seconds = 120;
  // The time that the others have after a child has failed: then they are ended too, sooner when all that
  // are left are accused. A child that is saving then is left alone until it has saved, and has as long
  // again; but not one that the failure accuses of making no progress (code DEADLINE_EXCEEDED), nor one that
  // does not answer within `answer_seconds`, because it is frozen.
  double grace_seconds = 10;
  double answer_seconds = 3;
  double saving_seconds = 600;  // after the first failure; whoever still saves then is ended
  bool interrupt_stops = true;  // SIGINT asks the members to stop, and not for a snapshot or for nothing
  // For members that know nothing of each other and do not agree on a verdict. Each hears every command; so long after
  // the first failure, or `stop_seconds` after a request to stop, the rest is let go; and the result is the first
  // failure in time, with what its event or its process has as exit code.
  std::optional<double> let_go_seconds = {};
  double stop_seconds = 10;
  // Called with a member's name and each of its events that is for the person who started the job: Print, Progress, Log,
  // Line.
  std::function<void(const std::string& name, const Event& event)> on_event = {};
  // Called with the place of a member and the line of each of its events Figures, at once.
  std::function<void(std::size_t place, const std::string& line)> on_figures = {};
  // Called when a member has ended, with how: "exited with code 0".
  std::function<void(std::size_t place, const std::string& how)> on_ended = {};
  // Called about twice a second, and when the terminal has another size.
  std::function<void()> look = {};
  // Called before this process is suspended by Ctrl-Z.
  std::function<void()> suspending = {};
  // Called with each line of a member that is no event; its libraries print those.
  std::function<void(const std::string& line)> on_line = {};
  // Called with the launcher's own messages, one sentence at a time.
  std::function<void(const std::string& sentence)> say = {};
  // While it says no, nothing is printed, and members hear that what their command prints is to wait. After success that
  // lasts until all is printed, else until nothing has been for two seconds.
  std::function<bool()> may_speak = {};
  // Whether a request to stop came before Launch was called.
  std::function<bool()> stop_wished = {};
};

// How a member ended.
struct MemberEnd {
  std::string name;
  pid_t pid = 0;
  std::string how;                // "exited with code 0"
  std::optional<Failed> failure;  // none where it said nothing
};

struct LaunchResult {
  int exit_code = 0;
  std::string failure;  // one sentence; empty after success
  int failed = -1;      // with `let_go_seconds`: the place of the member that failed first
  int stop_signal = 0;  // the first that asked for a stop; 0: none has
  std::vector<MemberEnd> ends = {};
};

// Starts members[0], waits until it listens, starts the others, and stays until all have ended.
// SIGTERM asks the job to stop with a snapshot, SIGINT and SIGHUP for what the member's options say.
// A request to stop before all have joined ends the members, which is a success: nothing is lost. A
// second request ends them at once, which is a failure. The exit code is 3 when a member was lost: it
// was killed, or the others accuse it. Children never outlive this process.
// Thread: the main thread, once; it blocks SIGINT, SIGTERM, SIGHUP and SIGCHLD for the program.
LaunchResult Launch(const std::vector<MemberProcess>& members, const LaunchOptions& options);

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_LAUNCHER_H_
