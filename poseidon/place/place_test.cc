// SPDX-License-Identifier: Apache-2.0
#include "poseidon/place/place.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace poseidon::place {

void PrintTo(const Place& place, std::ostream* out) {
  *out << place.launcher << " rank " << place.rank << " of " << place.workers << ", here "
       << (place.local ? std::to_string(*place.local) : "?") << ", rank 0 at " << place.coordinator << ":" << place.port
       << ", listens at '" << place.listen << "', job " << place.job;
}

namespace {

Environment With(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

// The place said by `environment` and `wanted`; fails the test where there is none.
Place In(const Environment& environment, const Wanted& wanted = {}) {
  const Result<Place> place = FindPlace(environment, wanted);
  if (place.ok()) return *place;
  ADD_FAILURE() << place.status().message();
  return {};
}

std::string Refused(const Environment& environment, const Wanted& wanted = {}) {
  const Result<Place> place = FindPlace(environment, wanted);
  EXPECT_FALSE(place.ok());
  EXPECT_EQ(place.status().code(), StatusCode::kInvalidArgument);
  return place.status().message();
}

// That `text` begins with `expected`; more may follow.
void ExpectBegins(const std::string& text, const std::string& expected) {
  EXPECT_EQ(text.substr(0, expected.size()), expected) << text;
}

// The trainer runs alone then.
bool Alone(const Environment& environment) { return !IsLaunched(environment) || In(environment).workers == 1; }

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
const Environment kHydra = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}};

struct Launched {
  const char* what;
  Environment environment;
  Place place;
};

TEST(PlaceTest, EveryLauncherTellsThePlace) {
  const std::vector<Launched> launched = {
      {"nobody", {{"HOME", "/root"}}, {}},
      {"torchrun", kTorchrun, {"torchrun", 2, 4, 2, "node1", 29500, "", "a7-node1-29500-0"}},
      {"torchrun, whose agent listens at that port",
       With(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}),
       {"torchrun", 2, 4, 2, "node1", 0, "", "a7-node1-29500-0"}},
      {"torchrun on one host, where it says no address",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}},
       {"torchrun", 1, 2, 2, "", 0, "", ""}},
      {"poseidon run, which keeps MASTER_PORT for torch",
       With(kTorchrun, {{"POSEIDON_PORT", "4711"}}),
       {"torchrun", 2, 4, 2, "node1", 4711, "", "a7-node1-29500-0"}},
      {"variables of torch, set by hand",
       {{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "29500"}},
       {"torchrun", 1, 3, std::nullopt, "10.0.0.7", 29500, "", "10.0.0.7-29500"}},
      {"mpirun of Open MPI", kMpirun, {"mpirun", 1, 3, 3, "", 0, "", "prterun-node1-77@1"}},
      {"mpirun of Open MPI 4",
       {{"OMPI_COMM_WORLD_RANK", "0"},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
        {"OMPI_MCA_ess_base_jobid", "77"}},
       {"mpirun", 0, 2, 1, "", 0, "", "77"}},
      {"mpirun on several hosts",
       With(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "4000"}}),
       {"mpirun", 1, 3, 2, "10.0.0.7", 4000, "", "prterun-node1-77@1"}},
      {"mpirun of an MPI with Hydra", With(kHydra, {{"PMI_JOBID", "8"}}), {"mpirun", 1, 2, 2, "", 0, "", "8"}},
      {"the same where it says no local size",
       {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}},
       {"mpirun", 0, 2, std::nullopt, "", 0, "", ""}},
      {"srun, the third of four nodes", kSrun, {"srun", 5, 6, 1, "", 0, "", "312-0"}},
      {"srun, the second of four nodes", With(kSrun, {{"SLURM_NODEID", "1"}}), {"srun", 5, 6, 2, "", 0, "", "312-0"}},
      {"srun, requeued", With(kSrun, {{"SLURM_RESTART_COUNT", "2"}}), {"srun", 5, 6, 1, "", 0, "", "312-0-2"}},
      {"srun on one node",
       {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_NODELIST", "node-7"}},
       {"srun", 0, 2, 2, "", 0, "", ""}},
      {"srun, of which a step has fewer tasks and nodes than its allocation",
       {{"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "9"},
        {"SLURM_STEP_NUM_TASKS", "3"},
        {"SLURM_NODEID", "1"},
        {"SLURM_STEP_NODELIST", "node[6-7]"},
        {"SLURM_STEP_TASKS_PER_NODE", "1,2"}},
       {"srun", 1, 3, 2, "", 0, "", ""}},
      {"srun that says no tasks per node",
       {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_NODELIST", "node[1-2]"}},
       {"srun", 0, 4, 1, "", 0, "", ""}},
      {"srun with a node that is no number",
       With(kSrun, {{"SLURM_NODEID", "first"}}),
       {"srun", 5, 6, 1, "", 0, "", "312-0"}},
      {"torchrun in srun", With(kSrun, kTorchrun), {"torchrun", 2, 4, 2, "node1", 29500, "", "a7-node1-29500-0"}},
      {"mpirun in srun", With(kSrun, kMpirun), {"mpirun", 1, 3, 3, "", 0, "", "prterun-node1-77@1"}},
      {"mpirun, whose script copies its words for others",
       With(kMpirun, {{"RANK", "1"}, {"WORLD_SIZE", "3"}}),
       {"mpirun", 1, 3, 3, "", 0, "", "prterun-node1-77@1"}},
  };
  for (const Launched& one : launched) EXPECT_EQ(In(one.environment), one.place) << one.what;
}

TEST(PlaceTest, NoLauncherOrOneProcessIsAlone) {
  EXPECT_TRUE(Alone({}));
  EXPECT_TRUE(Alone({{"RANK", "0"}, {"HOME", "/root"}}));
  EXPECT_TRUE(Alone({{"RANK", "1"}, {"WORLD_SIZE", "2"}}));  // words that others use as well
  EXPECT_TRUE(Alone(With(kMpirun, {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}})));
  for (const Environment& launched : {kTorchrun, kMpirun, kSrun, kHydra}) EXPECT_FALSE(Alone(launched));
  EXPECT_FALSE(Alone({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}}));
}

TEST(PlaceTest, MastersOnLoopbackAreOfThisHost) {
  const Environment bare = {{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"LOCAL_RANK", "1"}, {"MASTER_PORT", "29500"}};
  for (const char* address : {"127.0.0.1", "localhost", "127.1.2.3"}) {
    const Place here = In(With(bare, {{"MASTER_ADDR", address}}));
    EXPECT_TRUE(here.one_host()) << address;
    EXPECT_EQ(here.local, 3);
  }
  EXPECT_FALSE(In(With(bare, {{"MASTER_ADDR", "10.0.0.7"}})).one_host());
}

TEST(PlaceTest, AStepCountsForMoreThanItsAllocation) {
  EXPECT_EQ(In(With(kSrun, {{"SLURM_STEP_NUM_TASKS", "8"}})).workers, 8);
  EXPECT_TRUE(Alone(With(kSrun, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}})));
}

TEST(PlaceTest, ABatchScriptIsNoStep) {
  Environment batch = With(kSrun, {{"ENVIRONMENT", "BATCH"}, {"SLURM_PROCID", "0"}});
  EXPECT_EQ(In(batch).workers, 6);  // a step inherits the word
  batch.erase("SLURM_STEP_ID");
  EXPECT_TRUE(Alone(batch));
  EXPECT_EQ(In(batch), Place{});
  EXPECT_FALSE(Alone(With(batch, kHydra)));  // as mpirun started it inside the script
}

TEST(PlaceTest, ArgumentsComeBeforeTheEnvironment) {
  const Place place = In(kTorchrun, {.rank = 1, .workers = 2, .coordinator = "b", .port = 7, .listen = "10.0.0.1"});
  EXPECT_EQ(place, (Place{"", 1, 2, 2, "b", 7, "10.0.0.1", ""}));
  // What they leave open the launcher says.
  EXPECT_EQ(In(kTorchrun, {.workers = 3}), (Place{"torchrun", 2, 3, 2, "node1", 29500, "", "a7-node1-29500-0"}));
  EXPECT_EQ(In(kMpirun, {.rank = 0}), (Place{"mpirun", 0, 3, 3, "", 0, "", "prterun-node1-77@1"}));
  EXPECT_EQ(In({}, {.rank = 0}), Place{});
  // A program may have fewer workers than its launcher started here.
  EXPECT_EQ(In(kTorchrun, {.rank = 0, .workers = 1}).local, 2);
}

TEST(PlaceTest, NumbersThatAreNoneAreNamed) {
  const std::vector<std::pair<Environment, std::string>> wrong = {
      {With(kTorchrun, {{"RANK", "4"}}), "RANK is '4', expected a number from 0 to 3"},
      {With(kTorchrun, {{"RANK", "-1"}}), "RANK is '-1', expected a number from 0 to 3"},
      {With(kTorchrun, {{"WORLD_SIZE", "many"}}), "WORLD_SIZE is 'many', expected a number from 1 to "},
      {With(kTorchrun, {{"MASTER_PORT", "70000"}}), "MASTER_PORT is '70000', expected a number from 0 to 65535"},
      {With(kTorchrun, {{"POSEIDON_PORT", "x"}}), "POSEIDON_PORT is 'x', expected a number from 0 to 65535"},
      {With(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}),
       "OMPI_COMM_WORLD_LOCAL_SIZE is '4', expected a number from 1 to 3"}};
  for (const auto& [environment, expected] : wrong) {
    ExpectBegins(Refused(environment), "environment variable " + expected);
  }
  EXPECT_EQ(Refused({}, {.rank = 2, .workers = 2}), "the rank is 2, expected 0 to 1");
  EXPECT_EQ(Refused({}, {.rank = 1}), "the rank is 1, expected 0 to 0");
  EXPECT_EQ(Refused({}, {.rank = 0, .workers = 0}), "workers is 0, expected at least 1");
}

TEST(PlaceTest, WhatIsHalfSaidIsNamed) {
  EXPECT_EQ(Refused({{"RANK", "1"}}),
            "environment variable RANK is set and WORLD_SIZE is not, expected both or neither");
  EXPECT_EQ(Refused({{"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}}),
            "environment variable WORLD_SIZE is set and RANK is not, expected both or neither");
  ExpectBegins(Refused({{"PMIX_RANK", "0"}}),
               "environment variable PMIX_RANK is set and nothing says how many processes there are, expected RANK and "
               "WORLD_SIZE");
}

// Text from outside is bounded.
TEST(PlaceTest, TasksPerNodeThatNobodyWritesAreOne) {
  for (const char* tasks : {"x", "0", "-2", "2(x0)", "2(x-3)", "2(x99999999999)", "2(x2147483647),3", ",", "("}) {
    const Place place = In(With(kSrun, {{"SLURM_TASKS_PER_NODE", tasks}, {"SLURM_NODEID", "2147483647"}}));
    EXPECT_GE(*place.local, 1) << tasks;
  }
}

TEST(LocalRankTest, IsInTheWordsOfTheInnermostLauncher) {
  EXPECT_EQ(LocalRank(kTorchrun), 0);
  EXPECT_EQ(LocalRank(kMpirun), 1);
  EXPECT_EQ(LocalRank(With(kSrun, {{"SLURM_LOCALID", "3"}})), 3);
  EXPECT_EQ(LocalRank(With(kHydra, {{"MPI_LOCALRANKID", "1"}})), 1);
  // One torchrun a node, whose own number srun says.
  EXPECT_EQ(LocalRank(With(With(kSrun, kTorchrun), {{"LOCAL_RANK", "2"}})), 2);
  EXPECT_EQ(LocalRank(kHydra), std::nullopt);
  EXPECT_EQ(LocalRank(With(kMpirun, {{"OMPI_COMM_WORLD_LOCAL_RANK", "x"}})), std::nullopt);
  EXPECT_EQ(LocalRank({}), std::nullopt);
}

}  // namespace
}  // namespace poseidon::place
