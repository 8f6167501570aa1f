// SPDX-License-Identifier: Apache-2.0
// `poseidon profile`: measures a script's model, or a net, into a profile that `poseidon plan` and the benchmarks read.
#include "tools/profile/profile_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "poseidon/base/file.h"
#include "poseidon/base/wrapped.h"
#include "poseidon/plan/units.h"
#include "tools/console/fail.h"
#include "tools/console/values.h"
#include "tools/console/width.h"

namespace poseidon::profile {
namespace {

namespace fs = std::filesystem;
using tools::Fail;
using tools::FailUsage;

struct ProfileFlags {
  std::string target;                  // a script, the first word of a command, or a net
  std::vector<std::string> arguments;  // behind it
  std::string net;                     // --model
  MeasureOptions measure;
  int steps = 20;
  std::string out;
};

bool IsInPath(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((fs::path(folder) / program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// The command that runs the script, by the Python that a shell would find.
std::vector<std::string> CommandOf(const ProfileFlags& flags) {
  std::vector<std::string> command;
  if (flags.target.ends_with(".py")) {
    if (const std::string why = tools::InputFile()(flags.target); !why.empty()) FailUsage(why);
    command.push_back(IsInPath("python") ? "python" : "python3");
  }
  command.push_back(flags.target);
  command.insert(command.end(), flags.arguments.begin(), flags.arguments.end());
  return command;
}

// The script among the words of a command; its first word where there is none.
std::string ScriptOf(const std::vector<std::string>& command) {
  const auto script = std::find_if(command.begin(), command.end(), [](const std::string& word) { return word.ends_with(".py"); });
  return script == command.end() ? command.front() : *script;
}

std::string Right(std::string text, std::size_t width) {
  text.insert(0, width > text.size() ? width - text.size() : 0, ' ');
  return text;
}

std::string TableOf(const Profile& profile, std::size_t width) {
  std::string text = Right("forward", 9) + Right("backward", 10) + Right("rows", 8) + "  layer\n";
  for (const Layer& layer : profile.layers) {
    const std::string numbers = Right(plan::SecondsText(layer.forward_seconds), 9) + Right(plan::SecondsText(layer.backward_seconds), 10) +
                                Right(layer.rows > 0 ? std::to_string(layer.rows) : "-", 8) + "  ";
    text += numbers + Wrapped(layer.spec.name + " " + layer.spec.shape, width, numbers.size() + 2, numbers.size()) + "\n";
  }
  return text;
}

void ProfileScript(const ProfileFlags& flags, const RunScript& run) {
  const std::vector<std::string> command = CommandOf(flags);
  const std::string script = ScriptOf(command);
  const std::string out = flags.out.empty() ? fs::path(script).replace_extension(".profile.json").string() : flags.out;
  if (const std::string why = tools::OutputFile()(out); !why.empty()) FailUsage(why);
  const Result<ScriptEnd> ended = run(command, flags.steps);
  if (!ended.ok()) Fail(ended.status().message(), 127);
  if (ended->exit_code != 0) Fail(script + " " + ended->how + ", so there is no profile", ended->exit_code);
  if (ended->answer.empty()) {
    Fail(script + " ended without a model to measure, expected distribute(model) of poseidon.torch or poseidon.keras in it");
  }
  const nlohmann::json answer = nlohmann::json::parse(ended->answer, nullptr, false);
  if (answer.is_object() && answer.contains("failure")) Fail(script + ": " + answer["failure"].get<std::string>());
  const Result<Profile> profile = ParseProfile(ended->answer, "of " + script);
  if (!profile.ok()) Fail(profile.status().message());
  if (const Status s = WriteFileAtomically(TextOf(*profile), out); !s.ok()) Fail(s.message());
  const std::size_t width = tools::OutputWidth();
  std::cout << Heading(*profile, width) << "\n" << TableOf(*profile, width)
            << "\n" << Wrapped("written to " + out + ", of which this makes a plan:", width, 2) << "\n"
            << "  poseidon plan " << out << " --workers 8 --rate 10G\n" << std::flush;
}

void ProfileNet(const ProfileFlags& flags, const Measure& measure) {
  MeasureOptions options = flags.measure;
  options.model = flags.net.empty() ? flags.target : flags.net;
  const Result<Profile> measured = measure(options);
  if (!measured.ok()) Fail(measured.status().message());
  const std::string text = TextOf(*measured);
  if (flags.out.empty()) {
    std::cout << text << std::flush;
  } else if (const Status s = WriteFileAtomically(text, flags.out); !s.ok()) {
    Fail(s.message());
  }
}

// Refuses flags that are for something else than what is measured.
void RefuseOf(const CLI::App& command, const std::vector<std::string>& names, const std::string& is_for, const std::string& target) {
  for (const std::string& name : names) {
    if (command.count(name) > 0) FailUsage(name + " is for " + is_for + ", and " + target + " is none");
  }
}

}  // namespace

void AddProfile(CLI::App& app, Measure net, RunScript script) {
  auto flags = std::make_shared<ProfileFlags>();
  CLI::App* c = app.add_subcommand("profile", "Measure a PyTorch or Keras script's model, or a Caffe net, into a profile (JSON) for plan");
  c->footer("  poseidon profile train.py --epochs 1\n  poseidon profile --steps 50 -- python -m my.train\n"
            "  poseidon profile net.prototxt --out net.json\n  poseidon plan train.profile.json --workers 8 --rate 10G");
  c->add_option("target", flags->target,
                "A script, *.py, which python runs as one worker until its model is measured; behind -- a command that does so; or a "
                "net of Caffe's (a prototxt)");
  c->add_option("arguments", flags->arguments, "Of the script or the command; flags of profile come before it");
  c->add_option("--out", flags->out, "File to write; without it SCRIPT.profile.json, or of a net standard output")
      ->type_name("FILE")
      ->check(tools::OutputFile());
  c->option_defaults()->group("Measuring a script");
  c->add_option("--steps", flags->steps, "Training steps to time, after 5 that warm up")
      ->type_name("N")
      ->check(tools::WholeNumber(3, 1 << 20));
  c->option_defaults()->group("Measuring a net");
  c->add_option("--model", flags->net, "The net, as other commands name it")->type_name("PROTOTXT")->check(tools::InputFile());
  AddMeasureFlags(*c, flags->measure);
  c->callback([flags, c, net = std::move(net), script = std::move(script)] {
    const std::vector<std::string> left = c->remaining();
    // Put there before a script by ArgumentsOf.
    const bool is_command = std::find(left.begin(), left.end(), "--") != left.end();
    if (flags->target.empty() == flags->net.empty()) {
      FailUsage("profile measures one script or one net, expected poseidon profile train.py, or poseidon profile net.prototxt");
    }
    if (is_command && flags->net.empty()) {
      RefuseOf(*c, {"--iterations", "--threads", "--level", "--stage"}, "a net", flags->target);
      return ProfileScript(*flags, script);
    }
    RefuseOf(*c, {"--steps"}, "a script", flags->net.empty() ? flags->target : flags->net);
    if (!flags->arguments.empty()) FailUsage("profile was given " + flags->arguments.front() + " behind a net, expected nothing");
    if (const std::string why = flags->net.empty() ? tools::InputFile()(flags->target) : ""; !why.empty()) FailUsage(why);
    ProfileNet(*flags, net);
  });
}

}  // namespace poseidon::profile
