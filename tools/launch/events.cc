// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/events.h"

#include <algorithm>
#include <concepts>
#include <cstdio>
#include <type_traits>
#include <utility>

namespace poseidon::launch {
namespace {

using nlohmann::json;

// Calls `field(key, value)` for every field of an event: what a line of each kind contains is written here alone.
template <typename E, typename Field>
void EachField(E& event, const Field& field) {
  using Kind = std::remove_const_t<E>;
  if constexpr (std::is_same_v<Kind, Listening>) {
    field("host", event.host);
    field("port", event.port);
    field("poseidon_port", event.poseidon_port);
  } else if constexpr (std::is_same_v<Kind, Failed>) {
    field("message", event.message);
    field("culprit", event.culprit);
    field("lost", event.lost);
    field("code", event.code);
    field("exit", event.exit);
    field("verdict", event.verdict);
  } else if constexpr (std::is_same_v<Kind, Print>) {
    field("text", event.text);
  } else if constexpr (std::is_same_v<Kind, Progress>) {
    field("line", event.line);
  } else if constexpr (std::is_same_v<Kind, Log>) {
    field("level", event.level);
    field("line", event.line);
  } else if constexpr (std::is_same_v<Kind, LogLine> || std::is_same_v<Kind, Figures>) {
    field("line", event.line);
  } else if constexpr (std::is_same_v<Kind, Line>) {
    field("rank", event.rank);
    field("error", event.error);
    field("line", event.line);
    field("passing", event.passing);
  } else {
    static_assert(std::is_empty_v<Kind>, "its fields are missing above");
  }
}

// ---- from an event to its line

template <typename T>
void Put(json& object, const char* key, const T& value) {
  object[key] = value;
}
void Put(json& object, const char* key, LogLevel level) { object[key] = static_cast<int>(level); }
void Put(json& object, const char* key, StatusCode code) { object[key] = StatusCodeName(code); }
template <typename T>
void Put(json& object, const char* key, const std::optional<T>& value) {
  if (value) Put(object, key, *value);
}

// ---- from a line to its event. Take returns false where `value` is none of that type.

bool Take(const json& value, std::string& into) {
  if (!value.is_string()) return false;
  into = value.get<std::string>();
  return true;
}
bool Take(const json& value, bool& into) {
  if (!value.is_boolean()) return false;
  into = value.get<bool>();
  return true;
}
template <std::integral T>
bool Take(const json& value, T& into) {
  const auto fits = [&into](auto number) {
    if (!std::in_range<T>(number)) return false;
    into = static_cast<T>(number);
    return true;
  };
  if (value.is_number_unsigned()) return fits(value.get<std::uint64_t>());
  return value.is_number_integer() && fits(value.get<std::int64_t>());
}
bool Take(const json& value, LogLevel& into) {
  int level = 0;
  if (!Take(value, level) || level < 0 || level > static_cast<int>(LogLevel::kError)) return false;
  into = static_cast<LogLevel>(level);
  return true;
}
bool Take(const json& value, StatusCode& into) {
  if (!value.is_string()) return false;
  const std::optional<StatusCode> code = StatusCodeNamed(value.get_ref<const std::string&>());
  into = code.value_or(StatusCode::kOk);
  return code.has_value();
}

template <typename T>
bool TakeField(const json& object, const char* key, T& into) {
  const auto found = object.find(key);
  return found != object.end() && Take(*found, into);
}
template <typename T>
bool TakeField(const json& object, const char* key, std::optional<T>& into) {
  const auto found = object.find(key);
  return found == object.end() || Take(*found, into.emplace());
}

template <typename Kind>
std::optional<Event> DecodeKind(const json& object) {
  Kind event;
  bool whole = true;
  EachField(event, [&](const char* key, auto& value) { whole = whole && TakeField(object, key, value); });
  return whole ? std::optional<Event>(std::move(event)) : std::nullopt;
}

template <typename... Kinds>
std::optional<Event> DecodeAmong(const json& object, const std::string& kind, std::type_identity<std::variant<Kinds...>>) {
  std::optional<Event> event;
  static_cast<void>(((kind == Kinds::kKind && (event = DecodeKind<Kinds>(object), true)) || ...));
  return event;
}

}  // namespace

std::optional<StatusCode> StatusCodeNamed(std::string_view name) {
  for (int number = 0; number <= static_cast<int>(StatusCode::kInternal); ++number) {
    const auto code = static_cast<StatusCode>(number);
    if (name == StatusCodeName(code)) return code;
  }
  return std::nullopt;
}

json EventJson(const Event& event) {
  return std::visit(
      [](const auto& said) {
        json object;
        object["event"] = said.kKind;
        EachField(said, [&](const char* key, const auto& value) { Put(object, key, value); });
        return object;
      },
      event);
}

std::string EncodeEvent(const Event& event) {
  return EventJson(event).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<Event> DecodeEvent(const std::string& line) {
  const json object = json::parse(line, nullptr, false);
  std::string kind;
  if (!object.is_object() || !TakeField(object, "event", kind)) return std::nullopt;
  return DecodeAmong(object, kind, std::type_identity<Event>());
}

std::size_t EncodeLastWords(std::span<char> line, const char* member, std::string_view sentence) {
  const int length = std::snprintf(line.data(), line.size(),
                                   R"({"event":"failed","message":"%s: %.*s","culprit":-1})"
                                   "\n",
                                   member, static_cast<int>(sentence.size()), sentence.data());
  return std::min(line.size() - 1, static_cast<std::size_t>(std::max(length, 0)));
}

}  // namespace poseidon::launch
