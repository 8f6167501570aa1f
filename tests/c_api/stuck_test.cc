// SPDX-License-Identifier: Apache-2.0
// Workers that are alive but keep the others waiting, as real processes, each with processor time of its own.
#include <gmock/gmock.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/c_api/two_processes.h"

namespace {

using namespace poseidon_test;  // NOLINT(google-build-using-namespace)
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

constexpr double kStuckAfter = 3;

double SecondsSince(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

void SleepFor(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

void ComputeFor(double seconds) {
  const auto begin = steady_clock::now();
  volatile double value = 1;
  while (SecondsSince(begin) < seconds) value = value * 1.0000001;
}

// A model of two layers, trained with numbers of no meaning.
struct Training {
  explicit Training(poseidon_session* session) {
    poseidon_model_new(session, &model, nullptr);
    for (const char* name : {"below", "above"}) {
      poseidon_layer layer = POSEIDON_NEW(poseidon_layer);
      layer.name = name;
      layer.elements = kElements;
      layer.dtype = POSEIDON_F32;
      poseidon_declare(model, &layer, nullptr, nullptr);
    }
    committed = poseidon_commit(model, nullptr);
  }
  void Push(std::uint32_t layer, std::uint64_t step) {
    poseidon_view view = POSEIDON_NEW(poseidon_view);
    view.memory = gradients[layer].data();
    view.elements = kElements;
    view.dtype = POSEIDON_F32;
    EXPECT_EQ(poseidon_push_dense(model, layer, step, &view, nullptr, nullptr), POSEIDON_OK);
  }
  poseidon_code Wait(std::uint32_t layer, poseidon_status* status = nullptr) {
    return poseidon_wait(model, layer, status);
  }
  poseidon_code Step(std::uint64_t step, poseidon_status* status = nullptr) {
    if (const poseidon_code code = poseidon_begin_step(model, step, status); code != POSEIDON_OK) return code;
    Push(1, step);
    Push(0, step);
    if (const poseidon_code code = Wait(0, status); code != POSEIDON_OK) return code;
    return Wait(1, status);
  }

  static constexpr std::uint64_t kElements = 1000;
  std::vector<std::vector<float>> gradients{2, std::vector<float>(kElements, 1.0f)};
  poseidon_model* model = nullptr;
  poseidon_code committed = POSEIDON_OK;
};

// The end of the other worker's life; its code.
int StepAndLeave(Training& training, poseidon_session* session) {
  if (training.Step(1) != POSEIDON_OK) return 102;
  if (poseidon_leave(session, nullptr) != POSEIDON_OK) return 103;
  poseidon_close(session);
  return 0;
}

class Stuck : public TwoProcesses {
 protected:
  void Choose(poseidon_options& options) override {
    options.stuck_after_seconds = kStuckAfter;
    options.final_plan_step = POSEIDON_NEVER;
    options.log = [](void* self, std::int32_t, const char* line) {
      auto* const test = static_cast<Stuck*>(self);
      std::lock_guard lock(test->mutex_);
      test->lines_.emplace_back(line);
    };
    options.log_user = this;
  }
  std::vector<std::string> Lines() {
    std::lock_guard lock(mutex_);
    return lines_;
  }
  // Steps until one fails.
  void StepUntilFailure(Training& training, int steps = 100) {
    for (int step = 0; step < steps; ++step) {
      const auto begin = steady_clock::now();
      if (training.Step(static_cast<std::uint64_t>(step), &status_) != POSEIDON_OK) {
        took_ = SecondsSince(begin);
        return;
      }
    }
  }

  // Both workers make two steps and leave; the other is only remarked on.
  void ExpectTwoStepsAndRemark(const std::string& remark) {
    Training training(session_);
    StepUntilFailure(training, 2);
    EXPECT_EQ(status_.code, POSEIDON_OK) << status_.message;
    EXPECT_EQ(poseidon_leave(session_, &status_), POSEIDON_OK) << status_.message;
    EXPECT_EQ(CodeOf(other_), 0);
    ended_ = true;
    EXPECT_THAT(Lines(), testing::Contains(HasSubstr(remark)));
  }

  std::mutex mutex_;
  std::vector<std::string> lines_;
  poseidon_status status_ = POSEIDON_NEW(poseidon_status);
  double took_ = 0;
};

TEST_F(Stuck, AWorkerThatIsAliveButStuckIsNamedWithLayerAndStep) {
  Start([](poseidon_session* session) {
    Training training(session);
    for (std::uint64_t step = 0; step < 5; ++step) training.Step(step);
    poseidon_begin_step(training.model, 5, nullptr);
    training.Push(1, 5);
    SleepFor(100);  // as on a disk that does not answer
    return 0;
  });
  Training training(session_);
  StepUntilFailure(training);
  EXPECT_EQ(status_.culprit, 1);
  EXPECT_THAT(status_.message, HasSubstr("worker 1"));
  EXPECT_THAT(status_.message, HasSubstr("has not brought the gradient of layer 'below' in step 5"));
  EXPECT_THAT(status_.message, HasSubstr("is alive but has used no processor"));
  EXPECT_GE(took_, kStuckAfter);
  EXPECT_LT(took_, kStuckAfter + 3);
  EXPECT_THAT(Lines(), testing::Contains(HasSubstr("has not brought the gradient of layer 'below' in step 5")));
}

TEST_F(Stuck, AWorkerThatComputesIsOnlyRemarkedOn) {
  Start([](poseidon_session* session) {
    Training training(session);
    training.Step(0);
    ComputeFor(2.5 * kStuckAfter);
    return StepAndLeave(training, session);
  });
  ExpectTwoStepsAndRemark("it computes");
}

TEST_F(Stuck, AWorkerWhoseChildComputesIsOnlyRemarkedOn) {
  Start([](poseidon_session* session) {
    Training training(session);
    training.Step(0);
    const pid_t evaluation = ::fork();
    if (evaluation == 0) {
      // A tenth of a processor is enough.
      for (int part = 0; part < 15 * kStuckAfter; ++part) {
        ComputeFor(0.01);
        SleepFor(0.09);
      }
      ::_exit(0);
    }
    if (CodeOf(evaluation) != 0) return 104;
    return StepAndLeave(training, session);
  });
  ExpectTwoStepsAndRemark("it computes");
}

TEST_F(Stuck, AWorkerThatSaysWhatItIsBusyWithIsOnlyRemarkedOn) {
  Start([](poseidon_session* session) {
    Training training(session);
    training.Step(0);
    poseidon_say_busy(session, "evaluates");
    SleepFor(2 * kStuckAfter);
    poseidon_say_busy(session, nullptr);
    return StepAndLeave(training, session);
  });
  ExpectTwoStepsAndRemark("it evaluates");
}

TEST_F(Stuck, AWorkerThatMakesFewerStepsAndLeavesEndsTheJobAtOnce) {
  Start([](poseidon_session* session) {
    Training training(session);
    for (std::uint64_t step = 0; step < 3; ++step) training.Step(step);
    poseidon_status status = POSEIDON_NEW(poseidon_status);
    if (poseidon_leave(session, &status) == POSEIDON_OK) return 102;
    return std::string(status.message).find("has left the job") != std::string::npos ? 0 : 103;
  });
  Training training(session_);
  StepUntilFailure(training);
  EXPECT_EQ(status_.culprit, 1);
  EXPECT_THAT(status_.message, HasSubstr("has left the job without"));
  EXPECT_THAT(status_.message, HasSubstr("step 3"));
  EXPECT_LT(took_, kStuckAfter);
  EXPECT_EQ(CodeOf(other_), 0);
  ended_ = true;
}

TEST_F(Stuck, WorkersThatWaitForEachOtherEnd) {
  Start([](poseidon_session* session) {
    Training training(session);
    training.Step(0);
    poseidon_status status = POSEIDON_NEW(poseidon_status);
    return poseidon_barrier(session, &status) != POSEIDON_OK ? 0 : 102;  // while the other makes a step
  });
  Training training(session_);
  StepUntilFailure(training);
  EXPECT_THAT(status_.message, HasSubstr("waits itself for"));
  EXPECT_LT(took_, kStuckAfter + 3);
  EXPECT_EQ(CodeOf(other_), 0);
  ended_ = true;
}

TEST_F(Stuck, AWorkerThatNeverDeclaresItsLayersIsNamed) {
  Start([](poseidon_session*) {
    SleepFor(100);
    return 0;
  });
  const Training training(session_);
  EXPECT_NE(training.committed, POSEIDON_OK);
  EXPECT_NE(poseidon_failure(session_, &status_), POSEIDON_OK);
  EXPECT_EQ(status_.culprit, 1);
  EXPECT_THAT(status_.message, HasSubstr("has not brought its layers"));
}

TEST_F(Stuck, AJobInWhichNobodyWaitsIsLeftInPeace) {
  Start([](poseidon_session* session) {
    Training training(session);
    training.Step(0);
    SleepFor(2 * kStuckAfter);
    return StepAndLeave(training, session);
  });
  Training training(session_);
  EXPECT_EQ(training.Step(0), POSEIDON_OK);
  SleepFor(2 * kStuckAfter - 0.5);
  EXPECT_EQ(training.Step(1, &status_), POSEIDON_OK) << status_.message;
  EXPECT_EQ(poseidon_leave(session_, &status_), POSEIDON_OK) << status_.message;
  EXPECT_EQ(CodeOf(other_), 0);
  ended_ = true;
}

// ---- collectives that cannot be whole, and calls that would wait for themselves

TEST_F(Stuck, BroadcastsFromDifferentRootsAreAnErrorThatNamesBoth) {
  const auto broadcast = [](poseidon_session* session, std::uint32_t root, poseidon_status* status) {
    float number = 1;
    poseidon_view view = POSEIDON_NEW(poseidon_view);
    view.memory = &number;
    view.elements = 1;
    view.dtype = POSEIDON_F32;
    return poseidon_broadcast(session, &view, root, status);
  };
  Start([&](poseidon_session* session) { return broadcast(session, 1, nullptr) == POSEIDON_OK ? 102 : 0; });
  EXPECT_NE(broadcast(session_, 0, &status_), POSEIDON_OK);
  EXPECT_THAT(status_.message, HasSubstr("a broadcast from rank 0 of 4 bytes of f32 by rank 0"));
  EXPECT_THAT(status_.message, HasSubstr("a broadcast from rank 1 of 4 bytes of f32 by rank 1"));
  EXPECT_EQ(CodeOf(other_), 0);
  ended_ = true;
}

TEST_F(Stuck, ABroadcastAgainstASumIsAnErrorThatNamesBoth) {
  Start([](poseidon_session* session) {
    std::int64_t number = 1;
    poseidon_view view = POSEIDON_NEW(poseidon_view);
    view.memory = &number;
    view.elements = 1;
    view.dtype = POSEIDON_I64;
    return poseidon_broadcast(session, &view, 1, nullptr) == POSEIDON_OK ? 102 : 0;
  });
  EXPECT_NE(poseidon_barrier(session_, &status_), POSEIDON_OK);
  EXPECT_THAT(status_.message, HasSubstr("a sum of 8 bytes of i64 by rank 0"));
  EXPECT_THAT(status_.message, HasSubstr("a broadcast from rank 1 of 8 bytes of i64 by rank 1"));
  EXPECT_EQ(CodeOf(other_), 0);
  ended_ = true;
}

TEST_F(Stuck, AWorkerWithoutMemoryForAGatherEndsItForAll) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer ends the process where there is no memory";
#endif
  Start([](poseidon_session* session) {
    const rlimit little{std::size_t{4} << 30, std::size_t{4} << 30};
    ::setrlimit(RLIMIT_AS, &little);
    const auto take = [](void*, std::uint32_t, const void*, std::size_t) {};
    const std::vector<char> bytes(std::size_t{16} << 20);
    // Room for a part of what the others expect it to bring.
    void* const filler = ::mmap(nullptr, (std::size_t{4} << 30) - (std::size_t{600} << 20), PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (filler == MAP_FAILED) return 102;
    poseidon_status status = POSEIDON_NEW(poseidon_status);
    if (poseidon_gather(session, bytes.data(), bytes.size(), take, nullptr, &status) == POSEIDON_OK) return 103;
    return status.code == POSEIDON_RESOURCE_EXHAUSTED ? 0 : 104;
  });
  const std::vector<char> bytes(std::size_t{800} << 20);
  const auto take = [](void*, std::uint32_t, const void*, std::size_t) {};
  EXPECT_NE(poseidon_gather(session_, bytes.data(), bytes.size(), take, nullptr, &status_), POSEIDON_OK);
  EXPECT_EQ(status_.culprit, 1) << status_.message;
  EXPECT_THAT(status_.message, HasSubstr("has no memory for what a gather brings"));
  EXPECT_EQ(CodeOf(other_), 0);
  ended_ = true;
}

TEST_F(Stuck, ACallThatBlocksIsRefusedInACallback) {
  Start([](poseidon_session* session) {
    Training training(session);
    training.Step(0);
    if (poseidon_leave(session, nullptr) != POSEIDON_OK) return 102;
    poseidon_close(session);
    return 0;
  });
  Training training(session_);
  ASSERT_EQ(poseidon_begin_step(training.model, 0, nullptr), POSEIDON_OK);
  struct Seen {
    poseidon_session* session;
    std::promise<std::pair<poseidon_code, std::string>> barrier, leave;
  } seen{session_, {}, {}};
  poseidon_push push = POSEIDON_NEW(poseidon_push);
  push.landed = [](void* user, const poseidon_status*) {
    auto* const to = static_cast<Seen*>(user);
    poseidon_status status = POSEIDON_NEW(poseidon_status);
    poseidon_code code = poseidon_barrier(to->session, &status);
    to->barrier.set_value({code, status.message});
    code = poseidon_leave(to->session, &status);
    to->leave.set_value({code, status.message});
  };
  push.landed_user = &seen;
  poseidon_view view = POSEIDON_NEW(poseidon_view);
  view.memory = training.gradients[1].data();
  view.elements = Training::kElements;
  view.dtype = POSEIDON_F32;
  ASSERT_EQ(poseidon_push_dense(training.model, 1, 0, &view, &push, nullptr), POSEIDON_OK);
  training.Push(0, 0);
  for (auto* const call : {&seen.barrier, &seen.leave}) {
    const auto [code, message] = call->get_future().get();
    EXPECT_EQ(code, POSEIDON_FAILED_PRECONDITION);
    EXPECT_THAT(message, HasSubstr("in a callback of the session"));
  }
  EXPECT_EQ(training.Wait(0, &status_), POSEIDON_OK) << status_.message;
  EXPECT_EQ(training.Wait(1, &status_), POSEIDON_OK) << status_.message;
  EXPECT_EQ(poseidon_leave(session_, &status_), POSEIDON_OK) << status_.message;
  EXPECT_EQ(CodeOf(other_), 0);
  ended_ = true;
}

TEST(Options, ATimeTooShortToBeHeardInIsRefused) {
  poseidon_options options = POSEIDON_NEW(poseidon_options);
  options.workers = 1;
  options.hosts_coordinator = 1;
  options.dead_after_seconds = 1e-6;
  poseidon_session* session = nullptr;
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  EXPECT_EQ(poseidon_open(&options, &session, &status), POSEIDON_INVALID_ARGUMENT);
  EXPECT_THAT(status.message, HasSubstr("dead_after_seconds is 1e-06, expected 0.1 to 1e8"));
}

// ---- the log

// A pipe with room for 4096 bytes is ready, and a line of more would wait for a reader.
TEST(Log, ALineThatIsLongerThanWhatAPipeTakesAtOnceIsCut) {
  const Pipe pipe;
  ASSERT_EQ(::fcntl(pipe.ends[1], F_SETPIPE_SZ, 8192), 8192);
  const std::string before(4096, '.');
  const pid_t process = Fork([&] {
    ::alarm(30);
    if (::write(pipe.ends[1], before.data(), before.size()) != 4096 || ::dup2(pipe.ends[1], STDERR_FILENO) < 0) return 1;
    poseidon_log_to_stderr(nullptr, POSEIDON_LOG_WARNING, std::string(10'000, 'x').c_str());
    poseidon_log_to_stderr(nullptr, POSEIDON_LOG_WARNING, "lost, because the pipe is full");
    return 0;
  });
  ASSERT_EQ(CodeOf(process), 0);
  std::string text(8192, ' ');
  ASSERT_EQ(::read(pipe.ends[0], text.data(), text.size()), 8192);
  EXPECT_EQ(text, before + "poseidon: " + std::string(4082, 'x') + "...\n");
}

// ---- joining

// Rank 1 freezes when it has joined a job of three that never forms.
TEST(Joining, WhoFreezesBeforeTheJobHasFormedIsMissedAsSoonAsAMemberWouldBe) {
  Pipe port, joined;
  const auto choose = [](poseidon_options options) {
    options.workers = 3;
    options.dead_after_seconds = 3;
    options.join_timeout_seconds = 60;
    return options;
  };
  const pid_t frozen = Fork([&] {
    const poseidon_options options = choose(Options(1, port.Read<std::uint32_t>()));
    poseidon_session* session = nullptr;
    joined.Write(1);
    return poseidon_open(&options, &session, nullptr) == POSEIDON_OK ? 101 : 0;
  });
  poseidon_options options = choose(Options(0, 0));
  struct Both {
    Pipe* port;
    Pipe* joined;
    pid_t frozen;
    std::thread freezer;
  } both{&port, &joined, frozen, {}};
  options.listening = [](void* user, const char*, std::uint32_t number) {
    auto* const to = static_cast<Both*>(user);
    to->port->Write(number);
    to->freezer = std::thread([to] {
      to->joined->Read<int>();
      SleepFor(1);  // it joins meanwhile
      ::kill(to->frozen, SIGSTOP);
    });
  };
  options.listening_user = &both;
  poseidon_session* session = nullptr;
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  const auto begin = steady_clock::now();
  EXPECT_NE(poseidon_open(&options, &session, &status), POSEIDON_OK);
  EXPECT_LT(SecondsSince(begin), 8);
  EXPECT_THAT(status.message, HasSubstr("before the job had formed"));
  both.freezer.join();
  ::kill(frozen, SIGKILL);
  CodeOf(frozen);
}

// And the other way round: rank 0 is frozen while others have joined.
TEST(Joining, ARankZeroThatFreezesBeforeTheJobHasFormedIsNamedByWhoHasJoined) {
  Pipe port;
  const pid_t rank0 = Fork([&] {
    poseidon_options options = Options(0, 0);
    options.workers = 3;
    options.listening = [](void* to, const char*, std::uint32_t number) { static_cast<Pipe*>(to)->Write(number); };
    options.listening_user = &port;
    poseidon_session* session = nullptr;
    return poseidon_open(&options, &session, nullptr) == POSEIDON_OK ? 101 : 0;
  });
  poseidon_options options = Options(1, port.Read<std::uint32_t>());
  options.workers = 3;
  options.dead_after_seconds = 3;
  std::thread freezer([rank0] {
    SleepFor(1);
    ::kill(rank0, SIGSTOP);
  });
  poseidon_session* session = nullptr;
  poseidon_status status = POSEIDON_NEW(poseidon_status);
  const auto begin = steady_clock::now();
  EXPECT_NE(poseidon_open(&options, &session, &status), POSEIDON_OK);
  EXPECT_LT(SecondsSince(begin), 8);
  EXPECT_EQ(status.culprit, 0);
  EXPECT_THAT(status.message, HasSubstr("has been silent"));
  freezer.join();
  ::kill(rank0, SIGKILL);
  CodeOf(rank0);
}

}  // namespace
