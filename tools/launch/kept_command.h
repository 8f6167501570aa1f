// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_KEPT_COMMAND_H_
#define POSEIDON_TOOLS_LAUNCH_KEPT_COMMAND_H_

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "poseidon/base/result.h"

namespace poseidon::launch {

// Which of a command's streams are a terminal: one that shows a line and knows neither echo nor a cursor that moves.
struct Screen {
  bool output = false;
  bool errors = false;
  int columns = 0;
};

// Somebody's command, with everything that it starts: none of it outlives this process or the command itself.
//
// A keeper, a fork of this process, starts the command. It and this process adopt what loses its parent and watch each
// other, so that either may be killed. What the command leaves running when it ends is killed too.
// Thread: one, and the process has no other. The process becomes a subreaper.
class KeptCommand {
 public:
  // `argv[0]` is looked up in PATH. The command reads nothing; `set` is added to this process's environment.
  // kNotFound when it cannot be run; kResourceExhausted.
  static Result<KeptCommand> Start(const std::vector<std::string>& argv, const std::map<std::string, std::string>& set,
                                   const Screen& screen = {});
  KeptCommand(KeptCommand&& other) noexcept;
  KeptCommand& operator=(KeptCommand&&) = delete;
  // Ends what is left of it.
  ~KeptCommand();

  // Descriptors of its standard output and standard error; non-blocking.
  int output() const { return output_; }
  int errors() const { return errors_; }
  // Readable once the command has ended.
  int ended() const { return status_; }
  // To the command's process group; without effect once it has ended.
  void Signal(int signal) const;
  // Its wait status, once, when it has ended: that of SIGKILL where its keeper was killed.
  std::optional<int> TryWait();
  // Kills the command and all that it started, and waits until they are gone.
  void End();

 private:
  KeptCommand(pid_t keeper, int output, int errors, int orders, int status)
      : keeper_(keeper), output_(output), errors_(errors), orders_(orders), status_(status) {}

  pid_t keeper_ = -1;
  int output_ = -1;
  int errors_ = -1;
  int orders_ = -1;  // numbers of signals, to the keeper; its end is our end
  int status_ = -1;  // the wait status, from the keeper
};

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_KEPT_COMMAND_H_
