// SPDX-License-Identifier: Apache-2.0
#include "tools/console/help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include "poseidon/base/wrapped.h"
#include "tools/console/values.h"

namespace poseidon::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A program with a command that has a flag of each kind.
struct Program {
  explicit Program(std::size_t width = 80) {
    FormatHelp(app, width);
    CLI::App* const train = app.add_subcommand("train", "Train a model");
    train->add_option("--solver", solver, "What is trained")->type_name("FILE")->required();
    train->add_option("-n,--workers", workers, "Number of workers, each of which is a process of its own on some host")
        ->type_name("N")
        ->check(WholeNumber(1, 1024));
    train->add_option("--policy", policy, "What is least")->check(OneOf({"time", "bytes"}));
    train->add_flag("--sync", sync, "Also alone");
    train->footer("  program train --solver s");
    CLI::App* const run = app.add_subcommand("run", "Start a command");
    run->add_option("--port", workers, "Where it listens")->type_name("PORT")->default_str("");
    run->prefix_command();
    app.add_subcommand("member", "Not for people")->group("");
  }
  std::string HelpOf(const std::string& command) { return app.get_subcommand(command)->help("program"); }

  CLI::App app{"Trains", "program"};
  std::string solver, policy = "time";
  int workers = 2;
  bool sync = false;
};

TEST(Help, HasUsageMeaningRangesDefaultsAndExamples) {
  EXPECT_EQ(Program().HelpOf("train"),
            "Usage: program train --solver FILE [FLAGS]\n\nTrain a model.\n\nFlags:\n"
            "  -h, --help              Print this help message and exit\n"
            "  --solver FILE           What is trained (required)\n"
            "  -n, --workers N         Number of workers, each of which is a process of its\n"
            "                          own on some host (1 to 1024, default 2)\n"
            "  --policy time|bytes     What is least (default time)\n"
            "  --sync                  Also alone\n"
            "\nExamples:\n  program train --solver s\n");
  EXPECT_THAT(Program().HelpOf("run"), HasSubstr("Usage: program run [FLAGS] COMMAND [ARGUMENT...]\n"));
  EXPECT_THAT(Program().HelpOf("run"), Not(HasSubstr("default")));
}

TEST(Help, OfTheProgramListsCommandsForPeople) {
  const std::string help = Program().app.help();
  EXPECT_THAT(help, HasSubstr("Usage: program [FLAGS] COMMAND\n"));
  EXPECT_THAT(help, HasSubstr("\nCommands:\n  train                   Train a model\n"));
  EXPECT_THAT(help, Not(HasSubstr("member")));
}

TEST(Help, FitsItsWidth) {
  for (const std::size_t width : {40, 60, 80, 100}) {
    std::istringstream lines(Program(width).HelpOf("train"));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(Columns(line), width) << line;
  }
}

TEST(ManualPage, HasEveryFlag) {
  Program program;
  const std::string page = ManualPage(program.app, "1.2");
  EXPECT_THAT(page, HasSubstr(".TH PROGRAM 1 \"\" \"program 1.2\"\n"));
  EXPECT_THAT(page, HasSubstr(".SS program train \\-\\-solver FILE [FLAGS]\n"));
  EXPECT_THAT(page, HasSubstr(".B \\-n, \\-\\-workers N\n"));
  EXPECT_THAT(page, HasSubstr("\n.nf\n  program train \\-\\-solver s\n.fi\n"));
  EXPECT_THAT(page, Not(HasSubstr("Not for people")));
}

}  // namespace
}  // namespace poseidon::tools
