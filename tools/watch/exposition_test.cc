// SPDX-License-Identifier: Apache-2.0
#include "tools/watch/exposition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace poseidon::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Standing One(const std::string& rank, const std::string& host) {
  return {.seat = {rank, host},
          .told = true,
          .up = true,
          .figures = {.steps = 12, .measured = 11, .seconds = 1.5, .communication = 0.25, .slower_workers = 0.5, .hidden = 0.75, .sent = 1000000,
                      .received = 7, .link = 1.25e9}};
}

// The grammar of the text format 0.0.4, as far as this program writes it, and its rules: a metric's lines are together, after one HELP
// and one TYPE, and no series comes twice. Returns the number of samples of each metric.
std::map<std::string, int> Checked(const std::string& text) {
  static const std::regex help(R"(# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) ([^\\\n]|\\\\|\\n)*)");
  static const std::regex type(R"(# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram|summary|untyped))");
  static const std::regex sample(
      R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[a-zA-Z_][a-zA-Z0-9_]*="([^"\\\n]|\\\\|\\"|\\n)*"(,[a-zA-Z_][a-zA-Z0-9_]*="([^"\\\n]|\\\\|\\"|\\n)*")*\}) )re"
      R"re(([-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?|NaN|[-+]Inf))re");
  std::map<std::string, int> samples;
  std::set<std::string> series;
  std::string of, of_type;
  EXPECT_TRUE(text.ends_with('\n'));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch parts;
    if (std::regex_match(line, parts, help)) {
      of = parts[1];
      EXPECT_TRUE(samples.emplace(of, 0).second) << "twice: " << line;
    } else if (std::regex_match(line, parts, type)) {
      EXPECT_EQ(parts[1], of) << line;
      of_type = parts[2];
      EXPECT_EQ(of.ends_with("_total"), of_type == "counter") << line;
    } else {
      EXPECT_TRUE(std::regex_match(line, parts, sample)) << line;
      const std::string name = parts[1];
      EXPECT_TRUE(name == of || (of_type == "summary" && (name == of + "_sum" || name == of + "_count"))) << line;
      EXPECT_TRUE(series.insert(name + std::string(parts[2])).second) << "twice: " << line;
      ++samples[of];
    }
  }
  return samples;
}

TEST(ExpositionTest, EveryMemberHasEverySeries) {
  const std::string text = Exposition({One("0", "a"), One("1", "b")});
  EXPECT_EQ(Checked(text), (std::map<std::string, int>{{"poseidon_up", 2},
                                                       {"poseidon_steps_total", 2},
                                                       {"poseidon_sent_bytes_total", 2},
                                                       {"poseidon_received_bytes_total", 2},
                                                       {"poseidon_step_seconds", 4},
                                                       {"poseidon_wait_seconds_total", 4},
                                                       {"poseidon_hidden_ratio", 2},
                                                       {"poseidon_link_bytes_per_second", 2},
                                                       {"poseidon_slow", 2}}));
  EXPECT_THAT(text, HasSubstr("\nposeidon_steps_total{rank=\"1\",host=\"b\"} 12\n"));
  EXPECT_THAT(text, HasSubstr("\nposeidon_wait_seconds_total{rank=\"0\",host=\"a\",reason=\"slower_workers\"} 0.5\n"));
  EXPECT_THAT(text, HasSubstr("\nposeidon_sent_bytes_total{rank=\"0\",host=\"a\"} 1e+06\n"));
}

TEST(ExpositionTest, WhoHasToldNothingIsDown) {
  const std::string text = Exposition({{.seat = {"0", "a"}}});
  const std::map<std::string, int> samples = Checked(text);
  for (const auto& [name, count] : samples) EXPECT_EQ(count, name == "poseidon_up" ? 1 : 0) << name;
  EXPECT_THAT(text, HasSubstr("poseidon_up{rank=\"0\",host=\"a\"} 0\n"));
}

TEST(ExpositionTest, NamesOfHostsAreQuoted) {
  const std::string text = Exposition({One("server 0", "a\"b\\c\nd")});
  Checked(text);
  EXPECT_THAT(text, HasSubstr(R"re(poseidon_up{rank="server 0",host="a\"b\\c\nd"} 1)re"));
}

}  // namespace
}  // namespace poseidon::tools
