// SPDX-License-Identifier: Apache-2.0
// Commands that the Python package has (frontends/python/poseidon): this program becomes Python for them.
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "tools/console/arguments.h"
#include "tools/console/fail.h"
#include "tools/console/values.h"
#include "tools/launch/child.h"
#include "tools/launch/python_package.h"
#include "tools/run/commands.h"

namespace poseidon::tools {
namespace {

// `name`: of the command, for people; `module`: of the package.
void BecomePython(const std::string& name, const std::string& module, const std::vector<std::string>& words) {
  const std::string python = launch::ShowPythonOurPackage();
  std::vector<std::string> all = {python, "-m", "poseidon." + module};
  all.insert(all.end(), words.begin(), words.end());
  const std::vector<char*> argv = launch::ArgvOf(all);
  execvp(argv[0], argv.data());
  Fail("'" + name + "' needs Python, and " + python + " cannot be run: " + ErrnoText(errno));
}

// A flag that Python reads. What Python would do without it is in its help.
CLI::Option* AddText(CLI::App& command, const std::string& name, const std::string& placeholder, const std::string& meaning) {
  return command.add_option(name, meaning)->type_name(placeholder)->type_size(1)->default_str("");
}

// The flags that were given, each with its value, and what the command leaves to another one.
std::vector<std::string> WordsOf(const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::Option* option : command.get_options([](const CLI::Option* one) { return one->count() > 0; })) {
    for (const std::string& value : option->results()) words.push_back(option->get_name() + "=" + value);
  }
  for (const std::string& word : command.remaining()) words.push_back(word);
  return words;
}

}  // namespace

void AddPythonCommands(CLI::App& app) {
  CLI::App* const doctor = app.add_subcommand("doctor", "Find what keeps a job from running well on hosts, or on this machine");
  doctor->footer("  poseidon doctor\n  poseidon doctor --hosts a:2,b:2\n"
                 "The exit code is 1 where something will break or slow a job.");
  AddText(*doctor, "--hosts", "HOSTS", "Hosts and workers on each, as in a:2,b:2; without them this machine alone");
  AddText(*doctor, "--hostfile", "FILE", "File with a host a line: NAME, NAME:N, NAME slots=N or ID IP PORT")->check(InputFile());
  AddText(*doctor, "--ssh", "COMMAND", "Command that reaches another host")->default_str("ssh");
  AddText(*doctor, "--python", "FILE", "Path of the interpreter on every host; without it the path here");
  AddText(*doctor, "--port", "PORT", "Port of the measurements on every host; without it a free one")->check(WholeNumber(1, 65535));
  AddText(*doctor, "--timeout", "SECONDS", "Time in which a host must answer, more than 0")->check(Number(0, 3600))->default_str("30");
  AddText(*doctor, "--json", "FILE", "File to write everything to")->check(OutputFile());
  CLI::App* const demo = app.add_subcommand("demo", "Half a minute of two workers on this machine: trained, then one killed");
  CLI::App* const compare = app.add_subcommand("compare", "Train a net or a script a little under each strategy, and show what differs");
  compare->footer("  poseidon compare --solver solver.prototxt --workers 4\n"
                  "  poseidon compare --strategies poseidon,wfbp --solver s.prototxt --hosts a,b\n"
                  "  poseidon compare --strategies poseidon,wfbp -n 2 python train.py\n"
                  "All other flags are those of train, or, behind these, of run with its command.\n"
                  "A net is not tested, and no snapshot written. A script is ended when it has been\n"
                  "measured.");
  AddText(*compare, "--strategies", "NAME,...", "Strategies to take turns; the others are compared with the first one")
      ->default_str("poseidon,dense,wfbp,p3,dear,ps-2017");
  AddText(*compare, "--iterations", "N", "Iterations of a net, those before the final plan left out; of a script those after it")
      ->check(WholeNumber(1, 1000000))
      ->default_str("60");
  AddText(*compare, "--rounds", "N", "Runs of each strategy")->check(WholeNumber(1, 1000))->default_str("3");
  compare->allow_extras();
  compare->prefix_command();  // from the first value of another flag on everything stays as it is
  for (CLI::App* const command : {doctor, demo}) {
    command->callback([command] { BecomePython(command->get_name(), command->get_name(), WordsOf(*command)); });
  }
  compare->callback([&app, compare] {
    std::vector<std::string> words = WordsOf(*compare);
    words.insert(words.begin(), TrainsANet(app, compare->remaining()) ? "net" : "script");
    BecomePython(compare->get_name(), compare->get_name(), words);
  });
  CLI::App* const report = app.add_subcommand("report", "Write a page of HTML about a run: plan, times, curves, a step, waiting");
  report->footer("  poseidon train --solver solver.prototxt --workers 4 --run-dir run\n  poseidon report run");
  auto folder = std::make_shared<std::string>();
  auto page = std::make_shared<std::string>();
  report->add_option("run_dir", *folder, "Folder that train, or a script with init(run_dir=...), wrote")->type_name("FOLDER")->required();
  report->add_option("--out", *page, "The page; without it report.html in the folder")->type_name("FILE")->check(OutputFile());
  report->callback([report, folder, page] {
    BecomePython(report->get_name(), "run_page", page->empty() ? std::vector{*folder} : std::vector{"--out=" + *page, *folder});
  });
}

}  // namespace poseidon::tools
