// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_PLACE_FIGURES_H_
#define POSEIDON_PLACE_FIGURES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What a member of a job tells the launcher of its process about its part, about once a second, and the line in which it does.
namespace poseidon::place {

// Counts grow from the beginning of the job, all models of the member together, and begin anew with its next job.
struct Figures {
  double at = 0;                  // seconds of the member's steady clock
  std::uint64_t steps = 0;        // begun
  std::uint64_t measured = 0;     // steps that the four counts of seconds below are of
  double seconds = 0;             // of those steps
  double communication = 0;       // of these, waited for bytes
  double slower_workers = 0;      // of these, waited for slower workers
  double hidden = 0;              // share of the communication that computing hid lately, 0 to 1
  std::uint64_t sent = 0;         // bytes on the wire
  std::uint64_t received = 0;
  double link = 0;                // what the link carries in one direction, bytes per second; 0: not measured
  bool blocked = false;           // its program waits in a call
  std::vector<std::uint16_t> waits_on = {};  // who has not brought what it lacks: the workers by rank, then the servers
  std::string waits_for = {};     // what that is: "the gradient of layer 'ip1' in step 17"; empty: nothing, or nobody knows
  std::string busy_with = {};     // what the program says that it does besides steps: "evaluates"; may be empty

  // Of the measured steps, the seconds that the member did not wait.
  double computing() const { return seconds - communication - slower_workers; }
  friend bool operator==(const Figures&, const Figures&) = default;
};

// A line, with its end, that is shorter than what a pipe takes at once: of long texts and lists it has the beginning. Control
// characters become question marks.
std::string EncodeFigures(const Figures& figures);
// None where the line, which has no end, is no such line.
std::optional<Figures> DecodeFigures(std::string_view line);

using TellFigures = std::function<void(const Figures&)>;
// Returns what adds lines to the file `path`, usually a launcher's pipe. Never blocks, and fails in silence: a line that is not taken
// at once is lost. Thread of what it returns: one at a time.
TellFigures FiguresInto(const std::string& path);

}  // namespace poseidon::place

#endif  // POSEIDON_PLACE_FIGURES_H_
