// SPDX-License-Identifier: Apache-2.0
#include "tools/console/help.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <utility>
#include <vector>

#include "poseidon/base/wrapped.h"

namespace poseidon::tools {
namespace {

constexpr std::size_t kIndent = 2;
constexpr std::size_t kMeaningColumn = 26;

// ---- what a flag says

// "N" and "1 to 1024" of "N:1 to 1024"; of "a|b", which are all that is taken, the words alone.
struct Taken {
  std::string placeholder;
  std::string range;
  std::vector<std::string> words;
};

Taken TakenBy(const CLI::Option& option) {
  Taken taken;
  if (option.get_items_expected_max() == 0) return taken;  // a switch
  const std::string type = option.get_type_name();
  const std::size_t colon = std::min(type.find(':'), type.size());
  taken.placeholder = type.substr(0, colon);
  taken.range = type.substr(std::min(colon + 1, type.size()));
  if (taken.range.find('|') == std::string::npos) return taken;
  taken.placeholder = std::exchange(taken.range, "");
  for (std::size_t begin = 0; begin <= taken.placeholder.size();) {
    const std::size_t end = std::min(taken.placeholder.find('|', begin), taken.placeholder.size());
    taken.words.push_back(taken.placeholder.substr(begin, end - begin));
    begin = end + 1;
  }
  return taken;
}

std::string Upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::vector<std::string> NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

// "-n, --workers N"; of an argument that has a place "TARGET".
std::string LeftOf(const CLI::Option& option) {
  if (option.get_positional() && NamesOf(option).empty()) return Upper(option.get_name(true, false));
  std::string left;
  for (const std::string& name : NamesOf(option)) left += (left.empty() ? "" : ", ") + name;
  const Taken taken = TakenBy(option);
  return taken.placeholder.empty() ? left : left + " " + taken.placeholder;
}

// "Number of workers (1 to 1024, default 1)".
std::string RightOf(const CLI::Option& option) {
  std::string facts = TakenBy(option).range;
  const auto add = [&facts](const std::string& fact) { facts += (facts.empty() ? "" : ", ") + fact; };
  if (option.get_required()) add("required");
  if (const std::string value = option.get_default_str(); !value.empty() && value != "[]") add("default " + value);
  return option.get_description() + (facts.empty() ? "" : " (" + facts + ")");
}

std::vector<const CLI::Option*> OptionsOf(const CLI::App& command, bool with_place) {
  return command.get_options([=](const CLI::Option* option) {
    return !option->get_group().empty() && option->get_positional() == with_place;
  });
}

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

// ---- the help

class Help final : public CLI::FormatterBase {
 public:
  explicit Help(std::size_t width) : width_(width) {}

  std::string make_help(const CLI::App* command, std::string name, CLI::AppFormatMode) const override {
    std::string text = Wrapped("Usage: " + UsageOf(*command, name), width_, 4) + "\n\n" +
                       Wrapped(command->get_description() + ".", width_) + "\n";
    if (const auto commands = CommandsOf(*command); !commands.empty()) {
      text += "\nCommands:\n";
      for (const CLI::App* one : commands) text += Row(one->get_name(), one->get_description());
    }
    AddOptions("Arguments", OptionsOf(*command, true), &text);
    for (const std::string& group : command->get_groups()) {
      std::vector<const CLI::Option*> flags = OptionsOf(*command, false);
      std::erase_if(flags, [&](const CLI::Option* option) { return option->get_group() != group; });
      AddOptions(group == "Options" ? "Flags" : group, flags, &text);
    }
    if (!command->get_footer().empty()) text += "\nExamples:\n" + command->get_footer() + "\n";
    return text;
  }

 private:
  std::string Row(const std::string& left, const std::string& right) const {
    std::string row = std::string(kIndent, ' ') + left;
    const bool fits = Columns(row) + 2 <= kMeaningColumn;
    row += fits ? std::string(kMeaningColumn - Columns(row), ' ') : "\n" + std::string(kMeaningColumn, ' ');
    return row + Wrapped(right, width_, kMeaningColumn, kMeaningColumn) + "\n";
  }

  void AddOptions(const std::string& heading, const std::vector<const CLI::Option*>& options, std::string* text) const {
    if (options.empty()) return;
    *text += "\n" + heading + ":\n";
    for (const CLI::Option* option : options) *text += Row(LeftOf(*option), RightOf(*option));
  }

  std::size_t width_;
};

// ---- the manual page

// Text of a man page: what its language would read as a request or as a minus is neither.
std::string Roff(const std::string& text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '\\') quoted += "\\e";
    else if (c == '-') quoted += "\\-";
    else quoted += c;
  }
  return quoted.starts_with('.') || quoted.starts_with('\'') ? "\\&" + quoted : quoted;
}

std::string RoffLines(const std::string& text) {
  std::string lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines += Roff(text.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  return lines;
}

std::string Items(const std::vector<const CLI::Option*>& options) {
  std::string text;
  for (const CLI::Option* option : options) text += ".TP\n.B " + Roff(LeftOf(*option)) + "\n" + Roff(RightOf(*option)) + "\n";
  return text;
}

// ---- completion

std::string Spaced(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// One branch of the script: what may follow in `command`.
std::string Branch(const CLI::App& command) {
  std::string values;
  for (const CLI::Option* option : OptionsOf(command, false)) {
    const Taken taken = TakenBy(*option);
    if (taken.placeholder.empty()) continue;
    std::string pattern;
    for (const std::string& name : NamesOf(*option)) pattern += (pattern.empty() ? "" : "|") + name;
    // Nothing to offer: the shell completes names of files, which many flags take.
    values += "        " + pattern + ") words=\"" + Spaced(taken.words) + "\"; flags= ;;\n";
  }
  return "    " + command.get_name() + ")\n      flags=\"" + Spaced(FlagsOf(command)) + "\"\n      case \"$before\" in\n" + values +
         "      esac ;;\n";
}

}  // namespace

std::string UsageOf(const CLI::App& command, const std::string& name) {
  std::string usage = name;
  const std::vector<const CLI::Option*> flags = OptionsOf(command, false);
  for (const CLI::Option* option : flags) {
    if (option->get_required()) usage += " " + NamesOf(*option).back() + " " + TakenBy(*option).placeholder;
  }
  if (!flags.empty()) usage += " [FLAGS]";
  for (const CLI::Option* option : OptionsOf(command, true)) {
    usage += option->get_required() ? " " + LeftOf(*option) : " [" + LeftOf(*option) + "]";
  }
  if (command.get_prefix_command() && !flags.empty()) usage += " COMMAND [ARGUMENT...]";
  if (!CommandsOf(command).empty()) usage += " COMMAND";
  return usage;
}

std::vector<std::string> FlagsOf(const CLI::App& command) {
  std::vector<std::string> all;
  for (const CLI::Option* option : OptionsOf(command, false)) {
    const std::vector<std::string> names = NamesOf(*option);
    all.insert(all.end(), names.begin(), names.end());
  }
  return all;
}

void FormatHelp(CLI::App& app, std::size_t width) {
  app.formatter(std::make_shared<Help>(width));
  app.option_defaults()->always_capture_default();
}

std::string ManualPage(const CLI::App& app, const std::string& version) {
  const std::string name = app.get_name();
  std::string page = ".TH " + Upper(name) + " 1 \"\" \"" + name + " " + version + "\"\n.SH NAME\n" + name + " \\- " +
                     Roff(app.get_description()) + "\n.SH SYNOPSIS\n.B " + Roff(UsageOf(app, name)) + "\n.SH COMMANDS\n";
  for (const CLI::App* command : CommandsOf(app)) {
    page += ".SS " + Roff(UsageOf(*command, name + " " + command->get_name())) + "\n" + Roff(command->get_description()) + ".\n" +
            Items(OptionsOf(*command, true)) + Items(OptionsOf(*command, false));
    if (!command->get_footer().empty()) page += ".PP\nExamples:\n.nf\n" + RoffLines(command->get_footer()) + ".fi\n";
  }
  return page + ".SH OPTIONS\n" + Items(OptionsOf(app, false)) +
         ".SH EXIT STATUS\n0 after success, 2 where the command line is wrong, 3 where a member of the job was lost, 4 where the loss "
         "became NaN or infinite, and 1 after any other failure. \\fBrun\\fP ends with the code of the rank that failed first, "
         "\\fBdoctor\\fP with 1 where it found something.\n";
}

std::string BashCompletion(const CLI::App& app) {
  std::vector<std::string> commands;
  std::string branches;
  for (const CLI::App* command : CommandsOf(app)) {
    commands.push_back(command->get_name());
    branches += Branch(*command);
  }
  const std::string function = "_" + app.get_name();
  return "# bash: source <(" + app.get_name() + " completion); zsh: autoload -U bashcompinit && bashcompinit before that\n" +
         function + "() {\n  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words= flags=\n"
         "  COMPREPLY=()\n  if [ \"$COMP_CWORD\" = 1 ]; then\n    COMPREPLY=($(compgen -W \"" + Spaced(commands) + " " + Spaced(FlagsOf(app)) +
         "\" -- \"$word\"))\n    return\n  fi\n  case \"${COMP_WORDS[1]}\" in\n" + branches +
         "  esac\n  case \"$word\" in -*) words=$flags ;; esac\n"
         "  [ -z \"$words\" ] || COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\n"
         "complete -o default -F " + function + " " + app.get_name() + "\n";
}

}  // namespace poseidon::tools
