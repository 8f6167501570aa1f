// SPDX-License-Identifier: Apache-2.0
#include "poseidon/place/meeting.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/transport/tcp/token.h"

namespace poseidon::place {
namespace {

namespace fs = std::filesystem;

Resolver Loopback() {
  return {[](const std::string& host) -> Result<std::string> { return host; },
          [](const std::string& peer) -> Result<std::string> { return peer; }, "127.0.0.1"};
}

class MeetingTest : public testing::Test {
 protected:
  MeetingTest() {
    fs::remove_all(folder_);
    fs::create_directory(folder_);
  }
  ~MeetingTest() override { fs::remove_all(folder_); }

  static Place OfSrun(int rank, int local = 2) {
    return {.launcher = "srun", .rank = rank, .workers = 2, .local = local, .job = "7"};
  }
  std::unique_ptr<Meeting> Begun(const Place& place, MeetingOptions options = {}) const {
    options.temporary_folder = folder_;
    Result<std::unique_ptr<Meeting>> meeting = Meeting::Begin(place, options);
    if (meeting.ok()) return *std::move(meeting);
    ADD_FAILURE() << meeting.status().message();
    return nullptr;
  }
  static void Met(Meeting& meeting) {
    const Status met = meeting.Meet({.timeout = std::chrono::seconds(20)}, Loopback());
    EXPECT_TRUE(met.ok()) << met.message();
  }
  // The files that are left below the folder, in order.
  std::vector<std::string> Left() const {
    std::vector<std::string> left;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.is_regular_file()) left.push_back(entry.path().lexically_relative(folder_).string());
    }
    std::sort(left.begin(), left.end());
    return left;
  }

  const std::string folder_ = testing::TempDir() + "/meeting_" + std::to_string(getpid());
  const std::string private_ = "poseidon-" + std::to_string(geteuid()) + "/";
};

TEST_F(MeetingTest, OfOneHostIsByFilesOfOneUser) {
  const auto first = Begun(OfSrun(0)), second = Begun(OfSrun(1));
  Met(*first);
  EXPECT_EQ(first->place().listen, "127.0.0.1");
  ASSERT_TRUE(first->Announce("127.0.0.1", 4711).ok());
  EXPECT_EQ(Left(), (std::vector<std::string>{private_ + "srun-7.address", private_ + "srun-7.token"}));
  EXPECT_EQ(first->files_left(), (std::vector<std::string>{folder_ + "/" + private_ + "srun-7.token",
                                                           folder_ + "/" + private_ + "srun-7.address"}));
  Met(*second);
  EXPECT_EQ(second->place().coordinator, "127.0.0.1");
  EXPECT_EQ(second->place().port, 4711);
  EXPECT_EQ(second->place().listen, "127.0.0.1");
  const auto one = transport::tcp::Token::FromFile(first->token_file());  // which looks at the mode
  const auto other = transport::tcp::Token::FromFile(second->token_file());
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_TRUE(std::equal(one->bytes().begin(), one->bytes().end(), other->bytes().begin()));
  EXPECT_TRUE(second->files_left().empty());
  second->End();
  EXPECT_EQ(Left().size(), 2u);  // they are rank 0's
  first->End();
  EXPECT_TRUE(Left().empty());
}

TEST_F(MeetingTest, OfSeveralHostsIsBesideTheToken) {
  const std::string token = folder_ + "/job.token";
  std::ofstream(token) << "user's\n";
  const MeetingOptions options{.token_file = token, .program = "python"};
  const auto first = Begun(OfSrun(0, 1), options), second = Begun(OfSrun(1, 1), options);
  Resolver resolver = Loopback();
  resolver.own_name = "10.0.0.1";
  ASSERT_TRUE(first->Meet({}, resolver).ok());
  EXPECT_EQ(first->place().coordinator, "10.0.0.1");
  ASSERT_TRUE(first->Announce("10.0.0.1", 4711).ok());
  EXPECT_EQ(Left(), (std::vector<std::string>{"job.token", "job.token.srun-python-7.address"}));
  Met(*second);
  EXPECT_EQ(second->place().coordinator, "10.0.0.1");
  EXPECT_EQ(second->place().port, 4711);
  first->End();
  EXPECT_EQ(Left(), std::vector<std::string>{"job.token"});
}

TEST_F(MeetingTest, WithAUsersTokenOnOneHostIsInThePrivateFolder) {
  const MeetingOptions options{.token_file = folder_ + "/job.token"};
  const auto first = Begun(OfSrun(0), options);
  Met(*first);
  ASSERT_TRUE(first->Announce("127.0.0.1", 4711).ok());
  EXPECT_EQ(Left(), std::vector<std::string>{private_ + "srun-7.address"});
  EXPECT_EQ(first->token_file(), options.token_file);
}

TEST_F(MeetingTest, WhereEverythingIsSaidDoesNothing) {
  Place place = OfSrun(1, 1);
  place.coordinator = "10.0.0.1";
  place.port = 4711;
  const auto meeting = Begun(place, {.token_file = "t"});
  Met(*meeting);
  EXPECT_EQ(meeting->place().listen, "10.0.0.1");
  EXPECT_TRUE(meeting->Announce("10.0.0.1", 4711).ok());
  EXPECT_TRUE(meeting->files_left().empty());
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(MeetingTest, OfAnEarlierJobMisleadsNobody) {
  ASSERT_TRUE(PrivateFolder(folder_).ok());
  const std::string note = folder_ + "/" + private_ + "srun-7.address";
  ASSERT_TRUE(LeaveNote(note, {"127.0.0.1", 1, getpid()}).ok());
  const auto first = Begun(OfSrun(0));
  EXPECT_FALSE(fs::exists(note));
}

TEST_F(MeetingTest, WhoseRankZeroIsKilledLeavesNoSecret) {
  const auto killed_as_it_waits = [&] {
    const pid_t first = fork();
    if (first == 0) {
      const auto meeting = Begun(OfSrun(0));
      Met(*meeting);
      (void)meeting->Announce("127.0.0.1", 4711);
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    EXPECT_EQ(waitpid(first, &status, 0), first);
    EXPECT_EQ(Left().size(), 2u);
  };
  killed_as_it_waits();
  Begun(OfSrun(1))->End();  // another rank of the job
  EXPECT_TRUE(Left().empty());
  killed_as_it_waits();
  Place next = OfSrun(0);
  next.job = "8";
  const auto first = Begun(next);  // another job
  EXPECT_TRUE(Left().empty());
}

TEST_F(MeetingTest, EndsWithItsObject) {
  {
    const auto first = Begun(OfSrun(0));
    Met(*first);
    EXPECT_EQ(Left().size(), 1u);
  }
  EXPECT_TRUE(Left().empty());
}

TEST_F(MeetingTest, ThatNobodyBeginsIsGivenUp) {
  const auto second = Begun(OfSrun(1));
  const Status late = second->Meet({.timeout = std::chrono::milliseconds(500)}, Loopback());
  EXPECT_EQ(late.message(), "rank 0 has not said in " + folder_ + "/" + private_ +
                                "srun-7.address within 0.5 s where it listens: it has failed, or does not share that folder");
  const Status interrupted = second->Meet({.interrupted = [] { return true; }}, Loopback());
  EXPECT_EQ(interrupted.code(), StatusCode::kAborted);
}

TEST_F(MeetingTest, JobsHaveNamesOfTheirOwn) {
  const auto file_of = [&](const Place& place, const MeetingOptions& options) {
    return fs::path(Begun(place, options)->token_file()).filename().string();
  };
  Place place = OfSrun(1);
  place.job = "prterun-a@1/2";
  EXPECT_EQ(file_of(place, {}), "srun-prterun-a_1_2.token");
  place.job = "";
  EXPECT_EQ(file_of(place, {}), "srun-of-" + std::to_string(getppid()) + ".token");
  EXPECT_EQ(file_of(place, {.otherwise = "in-9"}), "srun-in-9.token");
  EXPECT_EQ(file_of(place, {.program = "python"}), "srun-python-of-" + std::to_string(getppid()) + ".token");
}

TEST_F(MeetingTest, FoldersThatCannotBeUsedAreNamed) {
  fs::create_directory(folder_ + "/" + private_);
  chmod((folder_ + "/" + private_).c_str(), 0755);
  const auto open_to_all = Meeting::Begin(OfSrun(0), {.temporary_folder = folder_});
  EXPECT_EQ(open_to_all.status().code(), StatusCode::kPermissionDenied);
  const auto missing = Meeting::Begin(OfSrun(0, 1), {.token_file = folder_ + "/none/t"});
  EXPECT_EQ(missing.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(missing.status().message().find("the other processes cannot be told where to join: folder " + folder_ + "/none "),
            0u)
      << missing.status().message();
}

TEST(IsLeftOpenTest, WhereTheyCanAgree) {
  const auto open = [](const Place& place, const std::string& token) {
    const Result<bool> answer = IsLeftOpen(place, token);
    return answer.ok() ? (*answer ? "open" : "said") : answer.status().message();
  };
  Place place{.launcher = "torchrun", .workers = 2, .local = 2, .coordinator = "127.0.0.1"};
  EXPECT_EQ(open(place, ""), "open");
  EXPECT_EQ(open(place, "t"), "open");
  place.port = 29500;
  EXPECT_EQ(open(place, ""), "open");
  EXPECT_EQ(open(place, "t"), "said");
  place.local = 1;
  EXPECT_EQ(open(place, ""),
            "torchrun started 2 processes and not all are on this host, expected POSEIDON_TOKEN_FILE or token_file= to name "
            "a file written by poseidon.make_token_file that all hosts can read");
  place.local.reset();
  EXPECT_EQ(open(place, ""),
            "the job's token is missing, expected POSEIDON_TOKEN_FILE or token_file= to name a file written by "
            "poseidon.make_token_file");
  place.port = 0;
  EXPECT_EQ(open(place, "t"),
            "torchrun started 2 processes and rank 0's port is not known, expected MASTER_PORT or port=");
  place.launcher = "";
  EXPECT_EQ(open(place, "t"), "rank 0's port is not known, expected MASTER_PORT or port=");
  EXPECT_EQ(open({}, ""), "said");
}

}  // namespace
}  // namespace poseidon::place
