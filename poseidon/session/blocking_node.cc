// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/blocking_node.h"

#include "poseidon/session/processor_time.h"
#include "poseidon/transport/tcp/forked.h"

namespace poseidon::session {

BlockingNode::BlockingNode(std::unique_ptr<Runtime> runtime, const SessionOptions& options)
    : fork_generation_(transport::tcp::ForkGeneration()), runtime_(std::move(runtime)), options_(options) {}

bool BlockingNode::forked() const { return fork_generation_ != transport::tcp::ForkGeneration(); }

Status BlockingNode::Open(UniqueFunction<void(const transport::Address&)> listening) {
  Status listened;
  transport::Address address;
  // On the I/O executor, because the node and the device belong to it.
  RunOnIo([&] {
    if (options_.device) device_ = options_.device(runtime_->io());
    const NodeEnvironment environment{.io = runtime_->io(),
                                      .compute = runtime_->compute(),
                                      .completions = runtime_->completions(),
                                      .context = runtime_->context(),
                                      .log = options_.log != nullptr ? *options_.log : static_cast<LogSink&>(null_log_),
                                      .lane = [this](std::uint16_t number) { return runtime_->lane(number); },
                                      .engine = options_.engine,
                                      .trace = options_.trace,
                                      .device = device_.get(),
                                      .front_end = &front_end_,
                                      .processor_time = ProcessorTime,
                                      .children_processor_time = ProcessorTimeOfChildren};
    node_ = std::make_unique<Node>(environment, options_.node, [this](const Status& failure) {
      if (options_.failed) options_.failed(failure);
      MutexLock lock(mutex_);
      failure_ = failure;
    });
    listened = node_->Listen();
    if (listened.ok()) address = node_->address();
  });
  POSEIDON_RETURN_IF_ERROR(listened);
  // Before Start, which blocks until all are there: the others can only join at an address that they have been given.
  if (listening) listening(address);
  POSEIDON_RETURN_IF_ERROR(Await([](Node& node, Completion done) { node.Start(std::move(done)); }));
  Run([this](Node& node) {
    rank_ = node.rank();
    roster_ = node.roster();
  });
  return OkStatus();
}

// The others must not wait for a product that is under way here; the node must, whose memory it reads.
BlockingNode::~BlockingNode() {
  if (forked()) {  // whose threads would have to end what they began is in the parent
    static_cast<void>(device_.release());
    static_cast<void>(node_.release());
    static_cast<void>(runtime_.release());
    return;
  }
  if (node_) {
    Run([](Node& node) { node.Vanish(); });
    Begin([](Node& node, Completion done) { node.AwaitEnd(std::move(done)); }).wait();
    RunOnIo([this] { node_.reset(); });
    // Copies that a device still runs end before it is destroyed; their completions fire before the threads end.
    RunOnIo([this] { device_.reset(); });
    // After the ends of those copies, which the device has posted to the I/O executor. They post completions in turn,
    // and the task below comes after these.
    RunOnIo([] {});
    std::promise<void> told;
    runtime_->completions().Post([&told] { told.set_value(); });
    told.get_future().wait();
  }
  runtime_.reset();
}

LaneTotals BlockingNode::Totals() {
  LaneTotals totals;
  std::vector<std::future<LaneTotals>> others;
  RunOnIo([&] {
    totals = node_->OwnTotals();
    others = node_->AskLanes();
  });
  for (std::future<LaneTotals>& other : others) totals += other.get();
  return totals;
}

std::future<Status> BlockingNode::Begin(UniqueFunction<void(Node&, Completion)> start) {
  auto result = std::make_shared<std::promise<Status>>();
  std::future<Status> future = result->get_future();
  Post([start = std::move(start), result](Node& node) {
    start(node, [result](Status status) { result->set_value(std::move(status)); });
  });
  return future;
}

Status BlockingNode::Await(UniqueFunction<void(Node&, Completion)> start) {
  POSEIDON_RETURN_IF_ERROR(CheckMayBlock());
  return Get(Begin(std::move(start)));
}

void BlockingNode::Abort(const Status& reason) {
  Post([reason](Node& node) { node.Abort(reason); });
}

Status BlockingNode::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

Status BlockingNode::CheckMayBlock() const {
  const bool in_callback =
      runtime_->io().OnExecutor() || runtime_->compute().OnExecutor() || runtime_->completions().OnExecutor();
  return in_callback ? FailedPrecondition("a call that blocks was made in a callback of the session, expected it on a "
                                          "thread of the program's own")
                     : OkStatus();
}

bool BlockingNode::EndIfInterrupted() {
  if (!options_.interrupted || !options_.interrupted()) return false;
  // Before the job has formed this process has no number that others know.
  const std::int32_t self = roster_.empty() ? kNoCulprit : rank_.value();
  Abort(Status(StatusCode::kAborted, "was interrupted", StatusScope::kJob, self));
  return true;
}

}  // namespace poseidon::session
