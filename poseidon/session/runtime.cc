// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/runtime.h"

#include <utility>

#include "poseidon/base/thread_executor.h"
#include "poseidon/transport/tcp/io_executor.h"

namespace poseidon::session {
namespace {

// The context goes before the executor it lives on, and on it. Products under way post their end to
// the I/O executor, which therefore goes after theirs; what it still has to do posts to completions.
template <typename Io>
class ThreadedRuntime final : public Runtime {
 public:
  ~ThreadedRuntime() override {
    if (context_) io_.Post([context = std::move(context_)] {});
  }
  void Adopt(std::unique_ptr<transport::Context> context) { context_ = std::move(context); }

  Io& io() override { return io_; }
  Executor& compute() override { return compute_; }
  Executor& completions() override { return completions_; }
  transport::Context& context() override { return *context_; }

 private:
  ThreadExecutor completions_{"poseidon-done"};
  Io io_{"poseidon-io"};
  ThreadExecutor compute_{"poseidon-comp"};
  std::unique_ptr<transport::Context> context_;
};

}  // namespace

Result<std::unique_ptr<Runtime>> MakeTcpRuntime(const transport::tcp::TcpOptions& options) {
  auto runtime = std::make_unique<ThreadedRuntime<transport::tcp::IoExecutor>>();
  POSEIDON_ASSIGN_OR_RETURN(std::unique_ptr<transport::tcp::TcpContext> context,
                            transport::tcp::TcpContext::Make(runtime->io(), options));
  runtime->Adopt(std::move(context));
  return std::unique_ptr<Runtime>(std::move(runtime));
}

std::unique_ptr<Runtime> MakeInprocRuntime(transport::InprocNetwork& network, std::string name) {
  auto runtime = std::make_unique<ThreadedRuntime<ThreadExecutor>>();
  runtime->Adopt(network.MakeContext(runtime->io(), std::move(name)));
  return runtime;
}

}  // namespace poseidon::session
