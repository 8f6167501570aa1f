// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/runtime.h"

#include <functional>
#include <map>
#include <utility>

#include "poseidon/base/thread_executor.h"
#include "poseidon/transport/tcp/descriptor.h"
#include "poseidon/transport/tcp/io_executor.h"

namespace poseidon::session {
namespace {

// The context goes before the executor it lives on, and on it. Products under way post their end to
// the executors of lanes, which therefore go after theirs; what lanes still have to do posts to the I/O executor, and that
// to completions.
template <typename Io>
class ThreadedRuntime final : public Runtime {
 public:
  // Makes the transport of a lane on its executor.
  using MakeContext = std::function<Result<std::unique_ptr<transport::Context>>(Io& executor, std::uint16_t lane)>;

  // Keeps `make_context` for the lanes that are asked for later.
  static Result<std::unique_ptr<Runtime>> Make(MakeContext make_context) {
    auto runtime = std::make_unique<ThreadedRuntime>();
    POSEIDON_ASSIGN_OR_RETURN(runtime->context_, make_context(runtime->io_, 0));
    runtime->make_context_ = std::move(make_context);
    return std::unique_ptr<Runtime>(std::move(runtime));
  }
  ~ThreadedRuntime() override {
    for (auto& [number, lane] : lanes_) lane.io->Post([context = std::move(lane.context)] {});
    if (context_) io_.Post([context = std::move(context_)] {});
  }

  Io& io() override { return io_; }
  Executor& compute() override { return compute_; }
  Executor& completions() override { return completions_; }
  transport::Context& context() override { return *context_; }
  Result<LaneServices> lane(std::uint16_t number) override {
    POSEIDON_ASSERT_ON(io_);
    OtherLane& lane = lanes_[number];
    if (!lane.context) {
      lane.io = std::make_unique<Io>("poseidon-io" + std::to_string(number));
      POSEIDON_ASSIGN_OR_RETURN(lane.context, make_context_(*lane.io, number));
    }
    return LaneServices{*lane.io, *lane.context};
  }

 private:
  struct OtherLane {
    std::unique_ptr<Io> io;
    std::unique_ptr<transport::Context> context;  // lives there
  };
  ThreadExecutor completions_{"poseidon-done"};
  Io io_{"poseidon-io"};
  std::map<std::uint16_t, OtherLane> lanes_;
  ThreadExecutor compute_{"poseidon-comp"};
  std::unique_ptr<transport::Context> context_;
  MakeContext make_context_;
};

// For event loops and files that a lane opens.
constexpr std::size_t kDescriptorsOfALane = 8;

}  // namespace

Result<std::unique_ptr<Runtime>> MakeTcpRuntime(const transport::tcp::TcpOptions& options) {
  using transport::tcp::IoExecutor;
  return ThreadedRuntime<IoExecutor>::Make(
      [options](IoExecutor& executor, std::uint16_t lane) -> Result<std::unique_ptr<transport::Context>> {
        // As many connections again as lane 0 has; those who want to join count as strangers there.
        if (lane > 0) {
          POSEIDON_RETURN_IF_ERROR(transport::tcp::AllowDescriptors(kDescriptorsOfALane + 2 * options.max_strangers));
        }
        POSEIDON_ASSIGN_OR_RETURN(std::unique_ptr<transport::tcp::TcpContext> context,
                                  transport::tcp::TcpContext::Make(executor, options));
        return std::unique_ptr<transport::Context>(std::move(context));
      });
}

std::unique_ptr<Runtime> MakeInprocRuntime(transport::InprocNetwork& network, std::string name) {
  return *ThreadedRuntime<ThreadExecutor>::Make(
      [&network, name = std::move(name)](ThreadExecutor& executor, std::uint16_t) {
        return Result<std::unique_ptr<transport::Context>>(network.MakeContext(executor, name));
      });
}

}  // namespace poseidon::session
