// SPDX-License-Identifier: Apache-2.0
#include "tools/console/arguments.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/console/values.h"

namespace poseidon::tools {
namespace {

struct Commands {
  Commands() {
    CLI::App* const train = app.add_subcommand("train", "");
    train->add_option("--solver", text, "");
    train->add_option("-n,--workers", text, "");
    train->add_flag("--sync", flag, "");
    CLI::App* const run = app.add_subcommand("run", "");
    run->add_option("-n,--workers", text, "");
    run->prefix_command();
    CLI::App* const profile = app.add_subcommand("profile", "");
    profile->add_option("--out", text, "");
    app.add_subcommand("elsewhere", "")->prefix_command()->set_help_flag();
    app.add_subcommand("member", "")->group("");
    app.add_subcommand("convert-mnist", "");
    CLI::App* const mean = app.add_subcommand("compute_image_mean", "");
    mean->add_option("--image_size", text, "");
    mean->add_flag("--all-of-it", flag, "");
  }
  CLI::App app{"", "program"};
  std::string text;
  bool flag = false;
};

TEST(TrainsANet, LooksNoFurtherThanTheCommand) {
  const auto trains = [&](const std::vector<std::string>& words) { return TrainsANet(Commands().app, words); };
  EXPECT_TRUE(trains({"--workers", "4", "--solver", "s"}));
  EXPECT_TRUE(trains({"--sync", "-solver=s"}));
  EXPECT_FALSE(trains({"-n", "2", "python", "train.py", "--solver", "adam"}));
  EXPECT_FALSE(trains({"-n2", "--", "--solver"}));
  EXPECT_FALSE(trains({}));
}

std::string Unknown(const std::vector<std::string>& arguments) { return UnknownIn(Commands().app, arguments); }

TEST(UnknownIn, NamesTheNearest) {
  EXPECT_EQ(Unknown({"train", "--slover", "x"}),
            "unknown flag --slover; did you mean --solver? (see program train --help)");
  EXPECT_EQ(Unknown({"train", "--solver=x", "--wokers=2"}),
            "unknown flag --wokers; did you mean --workers? (see program train --help)");
  EXPECT_EQ(Unknown({"--halp"}), "unknown flag --halp; did you mean --help? (see program --help)");
  EXPECT_EQ(Unknown({"tarin"}), "unknown command 'tarin'; did you mean train?");
}

TEST(UnknownIn, NamesNoneWhereNoneIsNear) {
  EXPECT_EQ(Unknown({"train", "--bogus"}), "unknown flag --bogus (see program train --help)");
  EXPECT_EQ(Unknown({"nonsense"}), "unknown command 'nonsense', expected one of train, run, profile, elsewhere, "
            "convert-mnist, compute_image_mean");
  EXPECT_EQ(Unknown({}), "there is no command (see program --help)");
}

TEST(UnknownIn, NamesAFlagWithoutItsValue) {
  EXPECT_EQ(Unknown({"train", "--sync", "--solver"}), "--solver has no value (see program train --help)");
}

TEST(UnknownIn, TakesWhatIsKnown) {
  EXPECT_EQ(Unknown({"train", "--solver", "--slover", "--sync", "-n", "-1", "--solver=a=b", "-n4"}), "");
  EXPECT_EQ(Unknown({"run", "-n", "2", "python", "--slover"}), "");
  EXPECT_EQ(Unknown({"elsewhere", "--slover"}), "");
  EXPECT_EQ(Unknown({"member"}), "");
  EXPECT_EQ(Unknown({"train", "--", "--slover"}), "");
}

std::vector<std::string> Arguments(std::vector<std::string> words, const std::string& program = "program") {
  words.insert(words.begin(), program);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return ArgumentsOf(Commands().app, static_cast<int>(argv.size()), argv.data());
}

TEST(ArgumentsOf, LeavesAScriptItsOwn) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(Arguments({"profile", "-out", "a.py", "-v", "3", "train.py", "-lr", "1", "-v", "--out"}),
            (Words{"profile", "--out", "a.py", "--", "train.py", "-lr", "1", "-v", "--out"}));
  EXPECT_EQ(Arguments({"profile", "--out=x", "--", "python", "train.py", "-v"}),
            (Words{"profile", "--out=x", "--", "python", "train.py", "-v"}));
  EXPECT_EQ(Arguments({"profile", "net.prototxt", "-out", "x", "-logtostderr"}), (Words{"profile", "net.prototxt", "--out", "x"}));
  EXPECT_EQ(Arguments({"profile"}), Words{"profile"});
}

TEST(ArgumentsOf, TakesDashesAndUnderscoresForEachOther) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(Arguments({"convert_mnist", "a-b"}), (Words{"convert-mnist", "a-b"}));
  EXPECT_EQ(Arguments({"compute-image_mean", "-image-size=3", "--all_of_it", "x"}),
            (Words{"compute_image_mean", "--image_size=3", "--all-of-it", "x"}));
  EXPECT_EQ(Arguments({"--image-size", "3", "compute-image-mean"}), (Words{"--image-size", "3", "compute-image-mean"}));
  EXPECT_EQ(Arguments({"--image_size", "3", "compute-image-mean"}), (Words{"compute_image_mean", "--image_size", "3"}));
  EXPECT_EQ(Arguments({"compute_image_mean", "--", "--image-size"}), (Words{"compute_image_mean", "--", "--image-size"}));
  EXPECT_EQ(Arguments({"help", "convert_mnist"}), (Words{"convert-mnist", "--help"}));
}

TEST(ArgumentsOf, ReadsTheNameThatItWasCalledBy) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(Arguments({"db", "out"}, "/usr/bin/compute_image_mean"), (Words{"compute_image_mean", "db", "out"}));
  EXPECT_EQ(Arguments({"-image_size", "3"}, "./compute_image_mean.bin"), (Words{"compute_image_mean", "--image_size", "3"}));
  EXPECT_EQ(Arguments({"train", "-solver", "s"}, "caffe"), (Words{"train", "--solver", "s"}));
  EXPECT_EQ(Arguments({"train"}, "/compute_image_mean/poseidon"), Words{"train"});
  EXPECT_EQ(Arguments({"train"}, "draw_net"), Words{"train"});  // no command of this program
}

TEST(ArgumentsOf, DropsAnEmptyFileThatAScriptGivesForNone) {
  EXPECT_EQ(Arguments({"train", "--snapshot=", "-weights=", "--solver=x", "--workers="}),
            (std::vector<std::string>{"train", "--solver=x", "--workers="}));
}

TEST(Values, SayWhatIsExpected) {
  const CLI::Validator whole = WholeNumber(1, 1024), share = Number(0.01, 1), word = OneOf({"a", "b", "c"});
  for (const char* taken : {"1", "1024"}) EXPECT_EQ(whole(taken), "");
  for (const char* refused : {"", "two", "0", "1025", "1.5", "1e3", " 1", "99999999999999999999"}) {
    EXPECT_EQ(whole(refused), "expected a whole number from 1 to 1024, not '" + std::string(refused) + "'");
  }
  for (const char* taken : {"0.01", "1", "1e-1"}) EXPECT_EQ(share(taken), "");
  for (const char* refused : {"", "nan", "inf", "0", "1.1", "1x"}) {
    EXPECT_EQ(share(refused), "expected a number from 0.01 to 1, not '" + std::string(refused) + "'");
  }
  EXPECT_EQ(word("b"), "");
  EXPECT_EQ(word("d"), "expected a, b or c, not 'd'");
}

TEST(Values, AFileIsOneThatCanBeRead) {
  const CLI::Validator file = InputFile();
  EXPECT_EQ(file("/proc/self/cmdline"), "");
  EXPECT_EQ(file("/no/such"), "cannot open /no/such: No such file or directory");
  EXPECT_EQ(file("/proc"), "/proc is a folder, expected a file");
}

}  // namespace
}  // namespace poseidon::tools
