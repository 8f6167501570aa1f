// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/events.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "tools/launch/task_text.h"

namespace poseidon::launch {
namespace {

// Every event, and the bytes of its line: a launcher and a member on another host agree on them.
std::vector<std::pair<Event, std::string>> All() {
  return {
      {Listening{"10.0.0.1", 4000}, R"({"event":"listening","host":"10.0.0.1","port":4000})"},
      {Listening{"10.0.0.1", 65535, 1}, R"({"event":"listening","host":"10.0.0.1","port":65535,"poseidon_port":1})"},
      {Joined{}, R"({"event":"joined"})"},
      {Saving{}, R"({"event":"saving"})"},
      {Saved{}, R"({"event":"saved"})"},
      {Here{}, R"({"event":"here"})"},
      {Failed{.message = "rank 1 exited with code 7", .exit = 7},
       R"({"event":"failed","exit":7,"message":"rank 1 exited with code 7"})"},
      {Failed{.message = "the loss is NaN", .culprit = kNoCulprit, .exit = 4},
       R"({"culprit":-1,"event":"failed","exit":4,"message":"the loss is NaN"})"},
      {Failed{.message = "worker 2 is silent", .culprit = 2, .lost = true, .code = StatusCode::kDeadlineExceeded},
       R"({"code":"DEADLINE_EXCEEDED","culprit":2,"event":"failed","lost":true,"message":"worker 2 is silent"})"},
      {Print{"one\n\"two\""}, R"({"event":"print","text":"one\n\"two\""})"},
      {Progress{"12 %"}, R"({"event":"progress","line":"12 %"})"},
      {Log{LogLevel::kError, "no room"}, R"({"event":"log","level":3,"line":"no room"})"},
      {LogLine{"I1127 x] y"}, R"({"event":"log_line","line":"I1127 x] y"})"},
      {Line{3, true, "Zürich"}, R"({"error":true,"event":"line","line":"Zürich","rank":3})"},
      {Figures{"figures 1 2 3"}, R"({"event":"figures","line":"figures 1 2 3"})"},
      {Alone{}, R"({"event":"alone"})"},
  };
}

TEST(EventsTest, EncodeToTheSameBytesAndBack) {
  for (const auto& [event, line] : All()) {
    EXPECT_EQ(EncodeEvent(event), line);
    EXPECT_EQ(DecodeEvent(line), event) << line;
  }
}

TEST(EventsTest, EveryKindIsAmongThem) {
  std::array<bool, std::variant_size_v<Event>> seen{};
  for (const auto& [event, line] : All()) seen[event.index()] = true;
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_TRUE(seen[i]) << i;
}

TEST(EventsTest, ALineThatIsNoneSaysNothing) {
  for (const char* line : {
           "", " ", "Epoch 1", "7", "null", "[]", R"(["event","joined"])", "{", R"({"event":"joined")", "{}",
           R"({"kind":"joined"})", R"({"event":"joined"} and more)",
           // kinds that nobody knows
           R"({"event":""})", R"({"event":"Joined"})", R"({"event":"lines"})", R"({"event":7})", R"({"event":null})",
           R"({"event":["joined"]})",
           // fields that are missing, of another type, out of range
           R"({"event":"listening","host":"h"})", R"({"event":"listening","host":"h","port":65536})",
           R"({"event":"listening","host":"h","port":-1})", R"({"event":"listening","host":"h","port":"7"})",
           R"({"event":"listening","host":"h","port":7.5})", R"({"event":"listening","host":"h","port":true})",
           R"({"event":"listening","host":7,"port":7})", R"({"event":"listening","host":"h","port":7,"poseidon_port":null})",
           R"({"event":"failed"})", R"({"event":"failed","message":["m"]})",
           R"({"event":"failed","message":"m","culprit":"1"})", R"({"event":"failed","message":"m","culprit":4294967296})",
           R"({"event":"failed","message":"m","lost":1})", R"({"event":"failed","message":"m","code":5})",
           R"({"event":"failed","message":"m","code":"LATE"})", R"({"event":"failed","message":"m","exit":1e300})",
           R"({"event":"print"})", R"({"event":"print","text":null})", R"({"event":"log","level":4,"line":"l"})",
           R"({"event":"log","level":-1,"line":"l"})", R"({"event":"log","level":18446744073709551615,"line":"l"})",
           R"({"event":"line","rank":-1,"error":false,"line":"l"})", R"({"event":"line","rank":0,"line":"l"})",
           "{\"event\":\"print\",\"text\":\"\xff\"}"}) {
    EXPECT_FALSE(DecodeEvent(line).has_value()) << line;
  }
}

// Deeper than any event, longer than any buffer: a line of a library may be anything.
TEST(EventsTest, ALongLineIsReadWhole) {
  const std::string text(1 << 20, 'x');
  EXPECT_EQ(DecodeEvent(EncodeEvent(Print{text})), Event(Print{text}));
  EXPECT_FALSE(DecodeEvent(std::string(10000, '[')).has_value());
}

TEST(EventsTest, FieldsThatNobodyKnowsAreLeftOut) {
  EXPECT_EQ(DecodeEvent(R"({"event":"joined","at":7,"host":{"name":"h"}})"), Event(Joined{}));
}

// Names of files and what libraries say may be any bytes.
TEST(EventsTest, BytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(DecodeEvent(EncodeEvent(Line{0, false, "a\xff" "b"})), Event(Line{0, false, "a\xef\xbf\xbd" "b"}));
}

TEST(EventsTest, AFailureAccusesOrNamesALoss) {
  const Failed silent{.message = "m", .culprit = 2};
  EXPECT_TRUE(silent.Accuses() && silent.Accuses(2) && silent.NamesLoss());
  EXPECT_FALSE(silent.Accuses(1));
  const Failed in_doubt{.message = "m", .culprit = kNoCulprit, .lost = true};
  EXPECT_TRUE(in_doubt.NamesLoss());
  EXPECT_FALSE(in_doubt.Accuses());
  const Failed own{.message = "m"};
  EXPECT_FALSE(own.Accuses() || own.NamesLoss());
}

TEST(EventsTest, LastWordsAreAFailure) {
  std::array<char, 1024> line;
  const std::size_t length = EncodeLastWords(line, "worker 1 on host b", "there is not enough memory");
  const std::string text(line.data(), length);
  EXPECT_EQ(text,
            R"({"event":"failed","message":"worker 1 on host b: there is not enough memory","culprit":-1})" "\n");
  EXPECT_EQ(DecodeEvent(text),
            Event(Failed{.message = "worker 1 on host b: there is not enough memory", .culprit = kNoCulprit}));
}

TEST(TaskText, BytesOfAnyKindArrive) {
  std::string bytes;
  for (int byte = 1; byte < 256; ++byte) bytes += static_cast<char>(byte);
  for (const nlohmann::json& task : {nlohmann::json{{"argv", {"train", "ü"}}, {"rank", 3}},
                                     nlohmann::json{{"argv", {"ü", bytes}}, {"set", {{"A\xff", "\xfe"}}}, {"rank", 3}}}) {
    const std::string line = EncodeTask(task);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_EQ(DecodeTask(line), task);
  }
  EXPECT_TRUE(DecodeTask("{").is_discarded());
}

}  // namespace
}  // namespace poseidon::launch
