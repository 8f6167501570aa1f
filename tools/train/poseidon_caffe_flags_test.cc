// SPDX-License-Identifier: Apache-2.0
#include "tools/train/poseidon_caffe_flags.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tools/console/exit_code.h"

namespace poseidon::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Lines final : public caffe::Output {
 public:
  void Print(const std::string& text) override { printed.push_back(text); }
  void Progress(const std::string&) override {}
  std::size_t width() const override { return 80; }
  void Log(LogLevel, std::string_view line) override { logged.emplace_back(line); }
  void PrintLog(const std::string&) override {}
  std::vector<std::string> printed;
  std::vector<std::string> logged;
};

// A command line of `train`, applied. `code`: with which the program ends; 0: it goes on.
struct Applied {
  caffe::TrainOptions options;
  PoseidonCaffeFlags flags;
  Lines output;
  ClientPart part = ClientPart::kStarts;
  int code = 0;
};

std::unique_ptr<Applied> Apply(std::vector<std::string> words) {
  auto applied = std::make_unique<Applied>();
  CLI::App app;
  app.add_option("--workers", applied->options.workers);
  AddPoseidonCaffeFlags(app, applied->flags);
  std::reverse(words.begin(), words.end());
  app.parse(words);
  try {
    applied->part = ApplyPoseidonCaffe(applied->flags, applied->options, applied->output);
  } catch (const CLI::RuntimeError& error) {
    applied->code = error.get_exit_code();
  }
  applied->flags.command = nullptr;
  return applied;
}

TEST(PoseidonCaffeFlags, NoneOfThemChangesNothing) {
  const auto applied = Apply({});
  EXPECT_EQ(applied->code, 0);
  EXPECT_EQ(applied->options.workers, 1);
  EXPECT_THAT(applied->options.schemes, IsEmpty());
  EXPECT_THAT(applied->output.logged, IsEmpty());
}

TEST(PoseidonCaffeFlags, ThoseOfItsScriptsAreTaken) {
  // As examples/googlenet/train_googlenet.sh and run_local.py give them.
  const auto applied = Apply({"--init_thread_access_table=true", "--client_id", "0", "--num_clients", "4", "--num_table_threads", "3",
                              "--table_staleness", "0", "--num_comm_channels_per_client", "8", "--num_rows_per_table", "32",
                              "--stats_path", "out/caffe_stats.yaml", "--consistency_model=SSPPush", "--svb=true",
                              "--net_outputs=googlenet"});
  EXPECT_EQ(applied->code, 0);
  EXPECT_EQ(applied->options.workers, 8);  // four clients with two worker threads each
  EXPECT_EQ(WorkersPerClient(applied->flags), 2);
  EXPECT_THAT(applied->options.schemes, IsEmpty());
  EXPECT_EQ(applied->options.net_outputs, std::filesystem::absolute("googlenet").string());
  EXPECT_THAT(applied->output.logged,
              ElementsAre("without effect here: --num_comm_channels_per_client, --num_rows_per_table, --stats_path",
                          "statistics are in the run directory's summary.json and trace.json, not in --stats_path"));
}

TEST(PoseidonCaffeFlags, WithoutSvbEveryLayerGoesByTheStore) {
  for (const char* word : {"--svb=false", "--nosvb"}) {
    EXPECT_EQ(Apply({word})->options.schemes, (std::map<std::string, std::string>{{"*", "kv"}})) << word;
  }
  EXPECT_THAT(Apply({"--svb"})->options.schemes, IsEmpty());
}

TEST(PoseidonCaffeFlags, OtherClientsThanTheFirstHaveNothingToDo) {
  const auto applied = Apply({"--num_clients", "2", "--client_id", "1"});
  EXPECT_EQ(applied->part, ClientPart::kNothing);
  EXPECT_EQ(applied->output.printed.size(), 1u);
  EXPECT_EQ(Apply({"--num_clients", "2", "--client_id", "2"})->code, kExitUsage);
}

TEST(PoseidonCaffeFlags, SwitchesStandAloneOrHaveAValue) {
  const auto applied = Apply({"--suppression_on", "--nouse_approx_sort", "--version_maintain=false"});
  EXPECT_EQ(applied->flags.given.at("suppression_on"), "true");
  EXPECT_EQ(applied->flags.given.at("use_approx_sort"), "false");
  EXPECT_EQ(applied->flags.given.at("version_maintain"), "false");
  EXPECT_EQ(Apply({"--numa_opt=false"})->code, 0);
}

TEST(PoseidonCaffeFlags, WhatCannotBeFollowedIsRefused) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--table_staleness", "1"}, {"--table_staleness", "-1"}, {"--table_staleness", ""}, {"--consistency_model", "SSPAggr"},
           {"--consistency_model", "LocalOOC"}, {"--snapshot_clock", "10"}, {"--snapshot_dir", "x"}, {"--resume_dir", "x"},
           {"--resume_clock", "3"}, {"--server_table_logic", "0"}, {"--numa_opt"}, {"--net_outputs", "/nowhere/x"},
           {"--workers", "3", "--num_clients", "2"}, {"--num_clients", "1024", "--num_table_threads", "3"}}) {
    EXPECT_EQ(Apply(words)->code, kExitUsage) << words[0] << (words.size() > 1 ? " " + words[1] : "");
  }
  EXPECT_EQ(Apply({"--snapshot_clock", "-1", "--snapshot_dir", "", "--resume_clock=-1", "--workers", "2", "--num_clients", "2"})->code, 0);
}

}  // namespace
}  // namespace poseidon::tools
