// SPDX-License-Identifier: Apache-2.0
#include "tools/watch/watch.h"

#include <unistd.h>

#include <utility>

#include "tools/console/colour.h"
#include "tools/console/fail.h"
#include "tools/console/line_writer.h"
#include "tools/console/values.h"
#include "tools/watch/exposition.h"
#include "tools/watch/table.h"

namespace poseidon::tools {
namespace {

using Clock = std::chrono::steady_clock;

// Between two lines where there is no table.
constexpr std::chrono::seconds kBetweenLines{10};
// What a terminal has to take what it shows before this process is suspended.
constexpr std::chrono::milliseconds kToTake{200};

}  // namespace

void AddWatchFlags(CLI::App& command, WatchFlags& flags) {
  command.add_flag("--watch", flags.watch,
                   "Show below the output, a row a rank, how each does: steps, use of the link, what it waits for, who is slow; "
                   "a line every 10 s where standard output is no terminal");
  command.add_option("--metrics-port", flags.metrics_port, "Port of 127.0.0.1 that serves the same to Prometheus, at /metrics")
      ->type_name("PORT")
      ->check(WholeNumber(1, 65535))
      ->default_str("");
}

Watch::Watch(const WatchFlags& flags, std::vector<Seat> seats) : flags_(flags), board_(std::move(seats)) {
  if (flags_.metrics_port > 0) {
    Result<std::unique_ptr<MetricsPort>> port =
        MetricsPort::Open(flags_.metrics_port, [this] { return Exposition(board_.Look(Clock::now())); });
    if (!port.ok()) FailUsage("--metrics-port: " + port.status().message());
    port_ = *std::move(port);
  }
  if (flags_.watch && isatty(STDOUT_FILENO) == 1) {
    pinned_ = std::make_unique<PinnedLines>(StandardOutput(), [] { return SizeOfTerminal(STDOUT_FILENO); });
  }
}

void Watch::Follow(launch::LaunchOptions* options) {
  if (!flags_.given()) return;
  options->on_figures = [this](std::size_t place, const std::string& line) { board_.Take(place, line, Clock::now()); };
  options->on_ended = [this](std::size_t place, const std::string& how) { board_.End(place, how); };
  if (!flags_.watch) return;
  say_ = options->say;
  options->look = [this] { pinned_ ? pinned_->Show(Lines()) : SayNowAndThen(); };
  options->suspending = [this] {
    if (!pinned_) return;
    pinned_->Hide();
    StandardOutput().Drain(kToTake);
  };
}

std::vector<PinnedLines::Line> Watch::Lines() const {
  return Table(board_.Look(Clock::now()), SizeOfTerminal(STDOUT_FILENO), ShowsColours(STDOUT_FILENO));
}

void Watch::SayNowAndThen() {
  if (said_at_ && Clock::now() < *said_at_ + kBetweenLines) return;
  const std::string line = SummaryLine(board_.Look(Clock::now()));
  if (line.empty()) return;
  said_at_ = Clock::now();
  say_(line);
}

void Watch::Close() {
  port_.reset();
  if (pinned_) pinned_->Close(Lines());
  pinned_.reset();
}

}  // namespace poseidon::tools
