// SPDX-License-Identifier: Apache-2.0
#include "tools/watch/exposition.h"

#include <charconv>
#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

namespace poseidon::tools {
namespace {

using Value = std::function<std::optional<double>(const Standing&)>;

std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? "\\n" : std::string(1, c);
  }
  return escaped;
}

std::string Shortest(double number) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof text, number).ptr);
}

class Text {
 public:
  explicit Text(const std::vector<Standing>& members) : members_(members) {}

  // What follows is of this metric.
  void Metric(std::string_view name, std::string_view type, std::string_view help) {
    text_ += "# HELP " + std::string(name) + " " + std::string(help) + "\n# TYPE " + std::string(name) + " " + std::string(type) + "\n";
  }
  // A sample of every member that has the value. `also`: further labels, each after a comma.
  void Samples(const std::string& name, const Value& value, const std::string& also = "") {
    for (const Standing& member : members_) {
      const std::optional<double> known = value(member);
      if (!known) continue;
      text_ += name + "{rank=\"" + Escaped(member.seat.name) + "\",host=\"" + Escaped(member.seat.host) + "\"" + also + "} " +
               Shortest(*known) + "\n";
    }
  }
  void One(std::string_view name, std::string_view type, std::string_view help, const Value& value) {
    Metric(name, type, help);
    Samples(std::string(name), value);
  }
  std::string Take() { return std::move(text_); }

 private:
  const std::vector<Standing>& members_;
  std::string text_;
};

// Of those that have told something.
Value Told(std::function<double(const Standing&)> value) {
  return [value = std::move(value)](const Standing& member) { return member.told ? std::optional(value(member)) : std::nullopt; };
}

}  // namespace

std::string Exposition(const std::vector<Standing>& members) {
  Text text(members);
  text.One("poseidon_up", "gauge", "Whether the member has told its figures in the last 10 seconds and has not ended.",
           [](const Standing& m) { return std::optional(m.up ? 1.0 : 0.0); });
  text.One("poseidon_steps_total", "counter", "Steps begun, of all models.",
           Told([](const Standing& m) { return static_cast<double>(m.figures.steps); }));
  text.One("poseidon_sent_bytes_total", "counter", "Bytes sent on the network, with headers and what encryption adds.",
           Told([](const Standing& m) { return static_cast<double>(m.figures.sent); }));
  text.One("poseidon_received_bytes_total", "counter", "Bytes received from the network, with headers and what encryption adds.",
           Told([](const Standing& m) { return static_cast<double>(m.figures.received); }));
  text.Metric("poseidon_step_seconds", "summary", "Time of the steps that have ended, each to the beginning of the next.");
  text.Samples("poseidon_step_seconds_sum", Told([](const Standing& m) { return m.figures.seconds; }));
  text.Samples("poseidon_step_seconds_count", Told([](const Standing& m) { return static_cast<double>(m.figures.measured); }));
  text.Metric("poseidon_wait_seconds_total", "counter", "Time in which the program waited for layers, by what it waited for.");
  text.Samples("poseidon_wait_seconds_total", Told([](const Standing& m) { return m.figures.communication; }), ",reason=\"communication\"");
  text.Samples("poseidon_wait_seconds_total", Told([](const Standing& m) { return m.figures.slower_workers; }), ",reason=\"slower_workers\"");
  text.One("poseidon_hidden_ratio", "gauge", "Share of the communication that computing hid in the last 10 seconds.",
           [](const Standing& m) { return m.figures.measured > 0 ? std::optional(m.figures.hidden) : std::nullopt; });
  text.One("poseidon_link_bytes_per_second", "gauge", "What the link carries in one direction, as measured when the job formed, or as the job may use.",
           [](const Standing& m) { return m.figures.link > 0 ? std::optional(m.figures.link) : std::nullopt; });
  text.One("poseidon_slow", "gauge", "Whether the other members wait for this one.",
           Told([](const Standing& m) { return m.slow ? 1.0 : 0.0; }));
  return text.Take();
}

}  // namespace poseidon::tools
