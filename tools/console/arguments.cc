// SPDX-License-Identifier: Apache-2.0
#include "tools/console/arguments.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "poseidon/base/listed.h"
#include "tools/console/fail.h"
#include "tools/console/help.h"
#include "tools/console/nearest.h"
#include "tools/console/programs.h"

namespace poseidon::tools {
namespace {

enum class LogFlag { kSwitch, kNumber, kText };

// Of glog, as far as it has flags for every program.
const std::map<std::string, LogFlag, std::less<>> kLogFlags = {
    {"alsologtoemail", LogFlag::kText},     {"alsologtostderr", LogFlag::kSwitch},
    {"colorlogtostderr", LogFlag::kSwitch}, {"drop_log_memory", LogFlag::kSwitch},
    {"log_backtrace_at", LogFlag::kText},   {"log_dir", LogFlag::kText},
    {"log_link", LogFlag::kText},           {"log_prefix", LogFlag::kSwitch},
    {"logbuflevel", LogFlag::kNumber},      {"logbufsecs", LogFlag::kNumber},
    {"logemaillevel", LogFlag::kNumber},    {"logmailer", LogFlag::kText},
    {"logtostderr", LogFlag::kSwitch},      {"max_log_size", LogFlag::kNumber},
    {"minloglevel", LogFlag::kNumber},      {"stderrthreshold", LogFlag::kNumber},
    {"stop_logging_if_full_disk", LogFlag::kSwitch}, {"v", LogFlag::kNumber},
    {"vmodule", LogFlag::kText},
};

std::vector<std::string> WithTwoDashes(std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    const bool word = argument.size() > 2 || argument == "-v";
    if (word && argument[0] == '-' && argument[1] != '-' &&
        std::isalpha(static_cast<unsigned char>(argument[1])) != 0) {
      argument.insert(0, "-");
    }
  }
  return arguments;
}

bool IsNumber(std::string_view text) {
  int value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  return !text.empty() && read.ec == std::errc() && read.ptr == text.data() + text.size();
}

// The flag that `argument` is, with its name and the value behind '='.
struct Flag {
  std::string name;
  std::optional<std::string> value;
};
std::optional<Flag> FlagIn(const std::string& argument) {
  if (!argument.starts_with("--") || argument.size() == 2) return std::nullopt;
  const std::size_t equals = argument.find('=');
  Flag flag{argument.substr(2, equals == std::string::npos ? equals : equals - 2), std::nullopt};
  if (equals != std::string::npos) flag.value = argument.substr(equals + 1);
  return flag;
}

std::vector<std::string> WithoutLogFlags(std::vector<std::string> arguments) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::optional<Flag> flag = FlagIn(arguments[i]);
    auto known = flag ? kLogFlags.find(flag->name) : kLogFlags.end();
    if (flag && known == kLogFlags.end() && flag->name.starts_with("no")) {
      known = kLogFlags.find(std::string_view(flag->name).substr(2));
      if (known != kLogFlags.end() && known->second != LogFlag::kSwitch) known = kLogFlags.end();
    }
    // Scripts give an empty one where there is none.
    if (flag && flag->value == "" && (flag->name == "snapshot" || flag->name == "weights")) continue;
    if (known == kLogFlags.end()) {
      kept.push_back(std::move(arguments[i]));
      continue;
    }
    if (known->second == LogFlag::kSwitch) continue;
    if (!flag->value && i + 1 < arguments.size()) flag->value = arguments[++i];
    if (!flag->value) FailUsage("--" + flag->name + " has no value");
    if (known->second == LogFlag::kNumber && !IsNumber(*flag->value)) {
      FailUsage("--" + flag->name + " is '" + *flag->value + "', expected a number");
    }
  }
  return kept;
}

// Whether the word behind `word`, which gives this flag, is the flag's value.
bool TakesNextWord(const CLI::Option& flag, const std::string& word) {
  return flag.get_items_expected_min() > 0 && word.find('=') == std::string::npos;
}

// The command that `word` names, with '-' and '_' taken for each other; null where there is none.
const CLI::App* CommandNamed(const CLI::App& app, const std::string& word) {
  const auto named = app.get_subcommands([&](const CLI::App* command) { return SameName(command->get_name(), word); });
  return named.empty() ? nullptr : named.front();
}

std::string NameOf(const CLI::App& app, const std::string& word) {
  const CLI::App* const command = CommandNamed(app, word);
  return command == nullptr ? word : command->get_name();
}

// Flags of `command` that are given with '-' for '_', or the other way round, get the name that they have.
void GiveFlagsTheirNames(const CLI::App& command, std::vector<std::string>* arguments) {
  const std::vector<std::string> names = FlagsOf(command);
  for (std::size_t i = 1; i < arguments->size() && (*arguments)[i] != "--"; ++i) {
    std::string& argument = (*arguments)[i];
    const std::optional<Flag> flag = FlagIn(argument);
    if (!flag || command.get_option_no_throw("--" + flag->name) != nullptr) continue;
    const auto name = std::find_if(names.begin(), names.end(), [&](const std::string& one) { return SameName(one, "--" + flag->name); });
    if (name != names.end()) argument.replace(0, flag->name.size() + 2, *name);
  }
}

// The words behind the program's name, and before them the command that this name is.
std::vector<std::string> WordsOf(const CLI::App& app, int argc, char** argv) {
  if (argc < 1) return {};
  std::vector<std::string> words(argv + 1, argv + argc);
  const std::string command = CommandCalledBy(argv[0]);
  if (!command.empty() && CommandNamed(app, command) != nullptr) words.insert(words.begin(), command);
  return words;
}

// Whether the words before `command` are flags of that command, each with its values.
bool AreFlagsOf(const CLI::App& command, const std::vector<std::string>& arguments, std::size_t end) {
  std::size_t i = 0;
  while (i < end) {
    const std::optional<Flag> flag = FlagIn(arguments[i]);
    const CLI::Option* const option =
        flag ? command.get_option_no_throw("--" + flag->name) : nullptr;
    if (option == nullptr) return false;
    i += TakesNextWord(*option, arguments[i]) ? 2 : 1;
  }
  return i == end;
}

// The words of `run`: its own flags, then somebody else's command line, which stays as it is. Between the two may be
// "--", which the library takes for an end of its own.
std::vector<std::string> WordsOfRun(const CLI::App& run, std::vector<std::string> words) {
  std::size_t i = 1;
  while (i < words.size() && words[i].size() > 1 && words[i][0] == '-') {
    if (words[i] == "--") {
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
    const CLI::Option* const option = run.get_option_no_throw(words[i]);
    i += option != nullptr && TakesNextWord(*option, words[i]) ? 2 : 1;
  }
  return words;
}

// Where in a command line of `profile` a command of somebody else's begins, which stays as it is: a script, or "--". The end
// where it names a net.
std::size_t CommandIn(const CLI::App& profile, const std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "--" || (words[i].ends_with(".py") && words[i][0] != '-')) return i;
    if (words[i].size() < 2 || words[i][0] != '-') continue;
    const CLI::Option* const option = profile.get_option_no_throw(words[i][1] == '-' ? words[i] : "-" + words[i]);
    if (option != nullptr && TakesNextWord(*option, words[i])) ++i;
  }
  return words.size();
}

// The words of `profile`: its own, then somebody else's command line behind "--".
std::vector<std::string> WordsOfProfile(const CLI::App& profile, const std::vector<std::string>& given) {
  const auto command = given.begin() + static_cast<std::ptrdiff_t>(CommandIn(profile, given));
  std::vector<std::string> words = WithoutLogFlags(WithTwoDashes({given.begin(), command}));
  if (command == given.end()) return words;
  if (*command != "--") words.emplace_back("--");
  words.insert(words.end(), command, given.end());
  return words;
}

std::string UnknownFlag(const CLI::App& app, const std::string& command_line, const std::vector<std::string>& words) {
  if (FlagsOf(app).empty()) return "";  // a command of the trainer's, in a program without it
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") return "";
    if (word.size() < 2 || word[0] != '-' || IsNumber(word)) {
      if (app.get_prefix_command()) return "";  // from here on it is another's
      continue;
    }
    const std::string name = word.substr(0, word.find('='));
    const CLI::Option* option = app.get_option_no_throw(name);
    const bool joined = option == nullptr && word[1] != '-';  // -n4
    if (joined) option = app.get_option_no_throw(word.substr(0, 2));
    const std::string help = " (see " + command_line + " --help)";
    if (option == nullptr && app.get_allow_extras()) continue;  // another command's
    if (option == nullptr) return "unknown flag " + name + DidYouMean(name, FlagsOf(app)) + help;
    if (joined || !TakesNextWord(*option, word)) continue;
    if (++i == words.size()) return name + " has no value" + help;
  }
  return "";
}

}  // namespace

bool TrainsANet(const CLI::App& app, const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size() && words[i].starts_with('-') && words[i] != "--"; ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    if (name == "--solver" || name == "-solver") return true;
    for (const char* const command : {"compare", "run", "train"}) {
      const CLI::App* const of = CommandNamed(app, command);
      const CLI::Option* const option = of == nullptr ? nullptr : of->get_option_no_throw(name);
      if (option == nullptr) continue;
      if (TakesNextWord(*option, words[i])) ++i;
      break;
    }
  }
  return false;
}

std::vector<std::string> ArgumentsOf(const CLI::App& app, int argc, char** argv) {
  const std::vector<std::string> given = WordsOf(app, argc, argv);
  const std::string_view first = given.empty() ? "" : std::string_view(given.front());
  if (first == "run") return WordsOfRun(*app.get_subcommand("run"), given);
  if (first == "profile") return WordsOfProfile(*app.get_subcommand("profile"), given);
  if (first == "compare" && !TrainsANet(app, {given.begin() + 1, given.end()})) return given;
  if (first == "version") return {"--version"};
  if (first == "help") {
    if (given.size() > 1) return {NameOf(app, given[1]), "--help"};
    return {"--help"};
  }
  std::vector<std::string> arguments = WithoutLogFlags(WithTwoDashes(given));
  if (!arguments.empty()) arguments.front() = NameOf(app, arguments.front());
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const CLI::App* const named = CommandNamed(app, arguments[i]);
    if (named == nullptr || !AreFlagsOf(*named, arguments, i)) continue;
    arguments[i] = named->get_name();
    const auto at = arguments.begin() + static_cast<std::ptrdiff_t>(i);
    std::rotate(arguments.begin(), at, at + 1);
    break;
  }
  if (const CLI::App* const command = arguments.empty() ? nullptr : CommandNamed(app, arguments.front())) {
    GiveFlagsTheirNames(*command, &arguments);
  }
  return arguments;
}

std::string UnknownIn(const CLI::App& app, const std::vector<std::string>& arguments) {
  const std::string program = app.get_name();
  if (arguments.empty()) return "there is no command (see " + program + " --help)";
  if (arguments.front().starts_with('-')) return UnknownFlag(app, program, arguments);
  std::string known;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == arguments.front()) {
      return UnknownFlag(*command, program + " " + arguments.front(), {arguments.begin() + 1, arguments.end()});
    }
    if (command->get_group().empty()) continue;
    names.push_back(command->get_name());
    AddListed(command->get_name(), &known);
  }
  const std::string nearest = DidYouMean(arguments.front(), names);
  return "unknown command '" + arguments.front() + "'" + (nearest.empty() ? ", expected one of " + known : nearest);
}

}  // namespace poseidon::tools
