// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/place.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tools/launch/note.h"

namespace poseidon::launch {
namespace {

// The place said by `environment`; fails the test where there is none.
Place In(const Environment& environment) {
  const auto place = PlaceIn(environment);
  if (!place.ok()) {
    ADD_FAILURE() << place.status().message();
    return {};
  }
  EXPECT_TRUE(place->has_value());
  return place->value_or(Place{});
}

bool Alone(const Environment& environment) {
  const auto place = PlaceIn(environment);
  return place.ok() && !place->has_value();
}

const Environment kTorchrun = {{"RANK", "2"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_RANK", "0"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "node1"},
                               {"MASTER_PORT", "29500"},
                               {"TORCHELASTIC_RUN_ID", "a7"},
                               {"TORCHELASTIC_RESTART_COUNT", "0"}};
const Environment kMpirun = {{"OMPI_COMM_WORLD_RANK", "1"},
                             {"OMPI_COMM_WORLD_SIZE", "3"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                             {"PMIX_NAMESPACE", "prterun-node1-77@1"}};
const Environment kSrun = {{"SLURM_PROCID", "5"},
                           {"SLURM_NTASKS", "6"},
                           {"SLURM_LOCALID", "0"},
                           {"SLURM_NODEID", "2"},
                           {"SLURM_TASKS_PER_NODE", "2(x2),1,1"},
                           {"SLURM_JOB_NODELIST", "node[1-4]"},
                           {"SLURM_JOB_ID", "312"},
                           {"SLURM_STEP_ID", "0"}};

Environment With(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

TEST(PlaceTest, NoLauncherOrOneProcessIsNone) {
  EXPECT_TRUE(Alone({}));
  EXPECT_TRUE(Alone({{"RANK", "0"}, {"HOME", "/root"}}));
  EXPECT_TRUE(Alone({{"RANK", "1"}, {"WORLD_SIZE", "2"}}));  // words that others use as well
  EXPECT_TRUE(Alone(With(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}})));
}

TEST(PlaceTest, Torchrun) {
  EXPECT_EQ(In(kTorchrun), (Place{.launcher = "torchrun",
                                  .rank = 2,
                                  .size = 4,
                                  .local_size = 2,
                                  .one_host = false,
                                  .master_host = "node1",
                                  .master_port = 29500,
                                  .job = "a7-node1-29500-0"}));
  const Place here = In(With(kTorchrun, {{"LOCAL_WORLD_SIZE", "4"}}));
  EXPECT_TRUE(here.one_host);
  // Its agent listens at that port.
  const Place agent = In(With(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  EXPECT_EQ(agent.master_host, "");
  EXPECT_EQ(agent.job, "a7-node1-29500-0");
}

TEST(PlaceTest, MastersOnLoopbackAreOfThisHost) {
  const Environment bare = {
      {"RANK", "1"}, {"WORLD_SIZE", "3"}, {"LOCAL_RANK", "1"}, {"MASTER_PORT", "29500"}};
  for (const char* address : {"127.0.0.1", "localhost", "127.1.2.3"}) {
    const Place here = In(With(bare, {{"MASTER_ADDR", address}}));
    EXPECT_TRUE(here.one_host) << address;
    EXPECT_EQ(here.local_size, 3);
  }
  EXPECT_FALSE(In(With(bare, {{"MASTER_ADDR", "10.0.0.7"}})).one_host);
}

TEST(PlaceTest, Mpirun) {
  EXPECT_EQ(In(kMpirun), (Place{.launcher = "mpirun",
                                .rank = 1,
                                .size = 3,
                                .local_size = 3,
                                .one_host = true,
                                .master_host = "",
                                .master_port = 0,
                                .job = "prterun-node1-77@1"}));
  const Place spread = In(With(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                         {"MASTER_ADDR", "10.0.0.7"},
                                         {"MASTER_PORT", "4000"}}));
  EXPECT_FALSE(spread.one_host);
  EXPECT_EQ(spread.master_host, "10.0.0.7");
  EXPECT_EQ(spread.master_port, 4000);
  EXPECT_EQ(In({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}}).local_size, 2);
}

TEST(PlaceTest, Srun) {
  EXPECT_EQ(In(kSrun), (Place{.launcher = "srun",
                              .rank = 5,
                              .size = 6,
                              .local_size = 1,
                              .one_host = false,
                              .master_host = "",
                              .master_port = 0,
                              .job = "312-0"}));
  EXPECT_EQ(In(With(kSrun, {{"SLURM_NODEID", "1"}})).local_size, 2);
  const Place here = In({{"SLURM_PROCID", "0"},
                         {"SLURM_NTASKS", "2"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_JOB_NODELIST", "node-7"}});
  EXPECT_TRUE(here.one_host);
  EXPECT_EQ(here.local_size, 2);
}

TEST(PlaceTest, AStepCountsForMoreThanItsAllocation) {
  EXPECT_EQ(In(With(kSrun, {{"SLURM_STEP_NUM_TASKS", "8"}})).size, 8);
  EXPECT_TRUE(Alone(With(kSrun, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}})));
}

TEST(PlaceTest, ABatchScriptIsNoStep) {
  Environment batch = With(kSrun, {{"ENVIRONMENT", "BATCH"}, {"SLURM_PROCID", "0"}});
  EXPECT_EQ(In(batch).size, 6);  // a step inherits the word
  batch.erase("SLURM_STEP_ID");
  EXPECT_TRUE(Alone(batch));
}

TEST(PlaceTest, TheInnermostLauncherCounts) {
  EXPECT_EQ(In(With(kSrun, kTorchrun)).launcher, "torchrun");
  EXPECT_EQ(In(With(kSrun, kMpirun)).launcher, "mpirun");
}

TEST(PlaceTest, NumbersThatAreNoneAreNamed) {
  const std::vector<std::pair<Environment, std::string>> wrong = {
      {With(kTorchrun, {{"RANK", "4"}}), "RANK is '4'"},
      {With(kTorchrun, {{"WORLD_SIZE", "many"}}), "WORLD_SIZE is 'many'"},
      {With(kTorchrun, {{"MASTER_PORT", "70000"}}), "MASTER_PORT is '70000'"},
      {With(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}), "OMPI_COMM_WORLD_LOCAL_SIZE is '4'"}};
  for (const auto& [environment, expected] : wrong) {
    const auto place = PlaceIn(environment);
    ASSERT_FALSE(place.ok()) << expected;
    EXPECT_NE(place.status().message().find(expected), std::string::npos)
        << place.status().message();
  }
}

class NoteTest : public testing::Test {
 protected:
  ~NoteTest() override { std::remove(path_.c_str()); }
  const std::string path_ = testing::TempDir() + "/note_" + std::to_string(getpid());
};

TEST_F(NoteTest, IsAwaited) {
  Result<Note> found = Unavailable("nothing yet");
  std::thread reader([&] { found = AwaitNote(path_, {.same_host = true}); });
  EXPECT_TRUE(LeaveNote(path_, {"10.0.0.7", 4000, getpid()}).ok());
  reader.join();
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->host, "10.0.0.7");
  EXPECT_EQ(found->port, 4000);
}

TEST_F(NoteTest, OfAnEndedProcessIsNone) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  ASSERT_TRUE(LeaveNote(path_, {"127.0.0.1", 4000, gone}).ok());
  using std::chrono::milliseconds;
  EXPECT_TRUE(AwaitNote(path_, {.timeout = milliseconds(50), .same_host = false}).ok());
  const auto found = AwaitNote(path_, {.timeout = milliseconds(50), .same_host = true});
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.status().message().find(path_), std::string::npos);
}

TEST(PrivateFolderTest, IsOfThisUserAlone) {
  const std::string parent = testing::TempDir() + "/private_" + std::to_string(getpid());
  ASSERT_EQ(mkdir(parent.c_str(), 0755), 0);
  const auto made = PrivateFolder(parent);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_TRUE(PrivateFolder(parent).ok());
  chmod(made->c_str(), 0755);
  EXPECT_FALSE(PrivateFolder(parent).ok());
  rmdir(made->c_str());
  rmdir(parent.c_str());
}

}  // namespace
}  // namespace poseidon::launch
