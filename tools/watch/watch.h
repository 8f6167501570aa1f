// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_WATCH_WATCH_H_
#define POSEIDON_TOOLS_WATCH_WATCH_H_

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/console/pinned_lines.h"
#include "tools/launch/launcher.h"
#include "tools/watch/board.h"
#include "tools/watch/metrics_port.h"

namespace poseidon::tools {

struct WatchFlags {
  bool watch = false;
  std::uint16_t metrics_port = 0;  // 0: none

  // Whether members are to tell their figures.
  bool given() const { return watch || metrics_port > 0; }
};
void AddWatchFlags(CLI::App& command, WatchFlags& flags);

// A running job before somebody's eyes, as the flags ask for it: a table below all output where standard output is a terminal, else a
// line now and then; and a port for Prometheus. Thread: one.
class Watch {
 public:
  // Where the port cannot be listened at, it ends the program with a sentence.
  Watch(const WatchFlags& flags, std::vector<Seat> seats);
  ~Watch() { Close(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // The table, below which nothing is to be printed; null where there is none.
  PinnedLines* pinned() { return pinned_.get(); }
  // Has the launcher tell and ask this object. `options->say` gets the lines where there is no table. Lifetime: this object's.
  void Follow(launch::LaunchOptions* options);
  // The job has ended: what the table showed last stays, and what follows comes below.
  void Close();

 private:
  std::vector<PinnedLines::Line> Lines() const;
  void SayNowAndThen();

  const WatchFlags flags_;
  Board board_;
  std::unique_ptr<PinnedLines> pinned_;
  std::function<void(const std::string&)> say_;
  std::optional<std::chrono::steady_clock::time_point> said_at_;
  std::unique_ptr<MetricsPort> port_;  // last: its thread reads the board
};

}  // namespace poseidon::tools

#endif  // POSEIDON_TOOLS_WATCH_WATCH_H_
