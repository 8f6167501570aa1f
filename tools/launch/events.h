// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_EVENTS_H_
#define POSEIDON_TOOLS_LAUNCH_EVENTS_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "poseidon/base/log.h"
#include "poseidon/base/status.h"

// What members and ranks say to their launcher: events, each a JSON object in a line of their standard output. Other lines
// there come from libraries that print.
//
// A new event is a struct here, a place in `Event` and its fields in events.cc. `kKind` is its name in the line. Fields that
// are optional need not be there.
namespace poseidon::launch {

// Rank 0 listens here for the others. Of a rank, `port` is for its framework's own connections.
struct Listening {
  static constexpr const char* kKind = "listening";
  std::string host;
  std::uint16_t port = 0;
  std::optional<std::uint16_t> poseidon_port = {};  // of a rank: for ours
  friend bool operator==(const Listening&, const Listening&) = default;
};

// The member is part of the job.
struct Joined {
  static constexpr const char* kKind = "joined";
  friend bool operator==(const Joined&, const Joined&) = default;
};

// Around the writing of files.
struct Saving {
  static constexpr const char* kKind = "saving";
  friend bool operator==(const Saving&, const Saving&) = default;
};
struct Saved {
  static constexpr const char* kKind = "saved";
  friend bool operator==(const Saved&, const Saved&) = default;
};

// The answer to the command "answer".
struct Here {
  static constexpr const char* kKind = "here";
  friend bool operator==(const Here&, const Here&) = default;
};

// The member cannot go on.
struct Failed {
  static constexpr const char* kKind = "failed";
  std::string message;
  std::optional<int> culprit = {};      // who is to blame, by place; kNoCulprit where nobody can know
  std::optional<bool> lost = {};        // a member is gone, named or not
  std::optional<StatusCode> code = {};  // of the failure
  std::optional<int> exit = {};         // the exit code that the job gets
  std::optional<std::string> verdict = {};  // of a rank: what its session says that has happened

  bool Accuses() const { return culprit.value_or(kNoCulprit) >= 0; }
  bool Accuses(int place) const { return culprit == place; }
  // Whether it says that a member is gone, and not that something else went wrong.
  bool NamesLoss() const { return Accuses() || lost.value_or(false); }
  friend bool operator==(const Failed&, const Failed&) = default;
};

// For the person who started the job: text, the present state, a line of the log.
struct Print {
  static constexpr const char* kKind = "print";
  std::string text;
  friend bool operator==(const Print&, const Print&) = default;
};
struct Progress {
  static constexpr const char* kKind = "progress";
  std::string line;
  friend bool operator==(const Progress&, const Progress&) = default;
};
struct Log {
  static constexpr const char* kKind = "log";
  LogLevel level = LogLevel::kNotice;
  std::string line;
  friend bool operator==(const Log&, const Log&) = default;
};

// A whole line of a log that scripts read.
struct LogLine {
  static constexpr const char* kKind = "log_line";
  std::string line;
  friend bool operator==(const LogLine&, const LogLine&) = default;
};

// A line that the command of a rank has printed.
struct Line {
  static constexpr const char* kKind = "line";
  std::size_t rank = 0;
  bool error = false;  // on its standard error
  std::string line;
  std::optional<bool> passing = {};  // the next one takes its place, as those of a progress bar
  friend bool operator==(const Line&, const Line&) = default;
};

// How the member does: a line of poseidon/place/figures.h.
struct Figures {
  static constexpr const char* kKind = "figures";
  std::string line;
  friend bool operator==(const Figures&, const Figures&) = default;
};

// The command of a rank has ended well and has joined no job of several workers.
struct Alone {
  static constexpr const char* kKind = "alone";
  friend bool operator==(const Alone&, const Alone&) = default;
};

using Event = std::variant<Listening, Joined, Saving, Saved, Here, Failed, Print, Progress, Log, LogLine, Line, Figures, Alone>;

// The code of that name (StatusCodeName).
std::optional<StatusCode> StatusCodeNamed(std::string_view name);

// Returns the event as an object with "event": kKind and its fields.
nlohmann::json EventJson(const Event& event);
// Returns the line that says it, without its end. Bytes that are no UTF-8 are replaced.
std::string EncodeEvent(const Event& event);
// Returns what a line says; nullopt where it is no event: no JSON object, a kind that nobody here knows, a field that is
// missing, of another type or out of range.
std::optional<Event> DecodeEvent(const std::string& line);

// Writes the line of a Failed without a culprit, "MEMBER: SENTENCE", with its end, into `line`, and returns its length.
// Does not allocate.
std::size_t EncodeLastWords(std::span<char> line, const char* member, std::string_view sentence);

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_EVENTS_H_
