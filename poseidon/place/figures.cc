// SPDX-License-Identifier: Apache-2.0
#include "poseidon/place/figures.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <memory>
#include <utility>

#include "poseidon/base/take_until.h"

namespace poseidon::place {
namespace {

constexpr std::string_view kMark = "figures 1";  // and the form's number
constexpr std::size_t kLongestText = 200;
constexpr std::size_t kMostAwaited = 32;
constexpr std::string_view kOfTexts = "\t";

// Calls `field` with every field but the texts and the list, in the order of the line.
template <typename F, typename Field>
void EachNumber(F& figures, const Field& field) {
  field(figures.at);
  field(figures.steps);
  field(figures.measured);
  field(figures.seconds);
  field(figures.communication);
  field(figures.slower_workers);
  field(figures.hidden);
  field(figures.sent);
  field(figures.received);
  field(figures.link);
  field(figures.blocked);
}

template <typename Number>
std::string TextOf(Number number) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof text, number).ptr);
}
std::string TextOf(bool yes) { return yes ? "1" : "0"; }

std::string Plain(const std::string& text) {
  std::string plain = text.substr(0, kLongestText);
  // Not in the middle of a character of UTF-8.
  if (plain.size() < text.size()) {
    while (!plain.empty() && (static_cast<unsigned char>(text[plain.size()]) & 0xc0) == 0x80) plain.pop_back();
  }
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  std::replace_if(plain.begin(), plain.end(), is_control, '?');
  return plain;
}

template <typename Number>
bool Read(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}
bool Read(std::string_view text, double* number) {
  return Read<double>(text, number) && std::isfinite(*number) && *number >= 0;
}
bool Read(std::string_view text, bool* yes) {
  *yes = text == "1";
  return *yes || text == "0";
}

bool ReadRanks(std::string_view text, std::vector<std::uint16_t>* ranks) {
  while (!text.empty()) {
    if (ranks->size() == kMostAwaited || !Read(TakeUntil(",", &text), &ranks->emplace_back())) return false;
  }
  return true;
}

}  // namespace

std::string EncodeFigures(const Figures& figures) {
  std::string line(kMark);
  EachNumber(figures, [&line](const auto& number) { line += " " + TextOf(number); });
  line += kOfTexts;
  const std::size_t named = std::min(figures.waits_on.size(), kMostAwaited);
  for (std::size_t i = 0; i < named; ++i) line += (i > 0 ? "," : "") + std::to_string(figures.waits_on[i]);
  for (const std::string& text : {figures.waits_for, figures.busy_with}) {
    line += kOfTexts;
    line += Plain(text);
  }
  return line + "\n";
}

std::optional<Figures> DecodeFigures(std::string_view line) {
  if (!line.starts_with(kMark)) return std::nullopt;
  std::string_view numbers = TakeUntil(kOfTexts, &line).substr(kMark.size());
  Figures figures;
  bool good = numbers.starts_with(' ');
  if (good) numbers.remove_prefix(1);
  EachNumber(figures, [&](auto& number) { good = good && Read(TakeUntil(" ", &numbers), &number); });
  good = good && numbers.empty() && figures.hidden <= 1 && ReadRanks(TakeUntil(kOfTexts, &line), &figures.waits_on);
  if (!good) return std::nullopt;
  figures.waits_for = TakeUntil(kOfTexts, &line);
  figures.busy_with = line;
  return figures;
}

TellFigures FiguresInto(const std::string& path) {
  // Open for reading too: a pipe that the launcher has left must not end this process by a signal.
  const int fd = open(path.c_str(), O_RDWR | O_APPEND | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return {};
  const std::shared_ptr<const int> file(new int(fd), [](const int* opened) {
    close(*opened);
    delete opened;
  });
  return [file](const Figures& figures) {
    const std::string line = EncodeFigures(figures);
    static_cast<void>(!write(*file, line.data(), line.size()));
  };
}

}  // namespace poseidon::place
