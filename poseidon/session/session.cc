// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/session.h"

#include <algorithm>
#include <future>
#include <new>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "poseidon/transport/tcp/forked.h"

namespace poseidon::session {

Session::Session(std::unique_ptr<Runtime> runtime, const SessionOptions& options)
    : fork_generation_(transport::tcp::ForkGeneration()), runtime_(std::move(runtime)), options_(options) {}

bool Session::forked() const { return fork_generation_ != transport::tcp::ForkGeneration(); }

std::future<Status> Session::Begin(UniqueFunction<void(Completion)> start) {
  auto result = std::make_shared<std::promise<Status>>();
  std::future<Status> future = result->get_future();
  runtime_->io().Post([start = std::move(start), result] {
    start([result](Status status) { result->set_value(std::move(status)); });
  });
  return future;
}

bool Session::EndIfInterrupted() {
  if (!options_.interrupted || !options_.interrupted()) return false;
  // Before the job has formed this process has no number that others know.
  const std::int32_t self = roster_.empty() ? kNoCulprit : rank_.value();
  Abort(Status(StatusCode::kAborted, "was interrupted", StatusScope::kJob, self));
  return true;
}

bool Session::InCallback() const {
  return runtime_->io().OnExecutor() || runtime_->compute().OnExecutor() || runtime_->completions().OnExecutor();
}

Status Session::CheckMayBlock() const {
  return InCallback() ? FailedPrecondition("a call that blocks was made in a callback of the session, expected it on a "
                                           "thread of the program's own")
                      : OkStatus();
}

Status Session::Await(UniqueFunction<void(Completion)> start) {
  POSEIDON_RETURN_IF_ERROR(CheckMayBlock());
  return Get(Begin(std::move(start)));
}

Result<std::unique_ptr<Session>> Session::Open(
    std::unique_ptr<Runtime> runtime, const SessionOptions& options,
    UniqueFunction<void(const transport::Address&)> listening) {
  std::unique_ptr<Session> session(new Session(std::move(runtime), options));
  Status listened;
  transport::Address address;
  // On the I/O executor, because the node and the device belong to it.
  session->RunOnIo([&] {
    Session* const self = session.get();
    if (options.device) self->device_ = options.device(self->runtime_->io());
    const NodeEnvironment environment{
        .io = self->runtime_->io(),
        .compute = self->runtime_->compute(),
        .completions = self->runtime_->completions(),
        .context = self->runtime_->context(),
        .log = options.log != nullptr ? *options.log : static_cast<LogSink&>(self->null_log_),
        .engine = options.engine,
        .trace = options.trace,
        .device = self->device_.get(),
        .front_end = &self->front_end_,
        .processor_time = ProcessorTime};
    self->node_ = std::make_unique<Node>(environment, options.node, [self](const Status& failure) {
      MutexLock lock(self->mutex_);
      self->failure_ = failure;
    });
    listened = self->node_->Listen();
    if (listened.ok()) address = self->node_->address();
  });
  POSEIDON_RETURN_IF_ERROR(listened);
  // Before Start, which blocks until all are there: the others can only join at an address that they have been given.
  if (listening) listening(address);
  POSEIDON_RETURN_IF_ERROR(session->Await([node = session->node_.get()](Completion done) {
    node->Start(std::move(done));
  }));
  session->RunOnIo([&] {
    session->rank_ = session->node_->rank();
    session->roster_ = session->node_->roster();
  });
  return session;
}

// The others must not wait for a product that is under way here; the node must, whose memory it reads.
Session::~Session() {
  if (forked()) {  // whose threads would have to end what they began is in the parent
    static_cast<void>(node_.release());
    static_cast<void>(runtime_.release());
    for (std::unique_ptr<Model>& model : models_) static_cast<void>(model.release());
    return;
  }
  if (node_) {
    RunOnIo([this] { node_->Vanish(); });
    Begin([this](Completion done) { node_->AwaitEnd(std::move(done)); }).wait();
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

std::string Session::NameOf(std::int32_t member) const { return session::NameOf(roster_, member); }

Result<Model*> Session::NewModel() {
  // The key of a step's sum has eight bits for the model (wire/messages.h).
  if (models_.size() >= wire::kMaxModels) {
    return InvalidArgument("a session holds " + std::to_string(wire::kMaxModels) + " models, expected no further one");
  }
  models_.push_back(std::make_unique<Model>(*this, ModelId(static_cast<std::uint16_t>(models_.size()))));
  return models_.back().get();
}

// In pieces that every worker cuts alike: a sum has the same bits for any split.
Status Session::InPieces(TensorView view, const std::function<void(TensorView, Completion)>& start) {
  const std::uint64_t at_once =
      std::max<std::uint64_t>(1, options_.collective_bytes / SizeOf(view.dtype));
  // An empty view goes once: the node answers it, with the job's failure where there is one.
  for (std::uint64_t first = 0; first == 0 || first < view.elements; first += at_once) {
    const TensorView piece{view.memory + first * SizeOf(view.dtype),
                           std::min(at_once, view.elements - first), view.dtype};
    POSEIDON_RETURN_IF_ERROR(Await([&start, piece](Completion done) { start(piece, std::move(done)); }));
  }
  return OkStatus();
}

Status Session::Sum(TensorView view) {
  return InPieces(view, [this](TensorView piece, Completion done) {
    node_->Collective(piece, true, std::move(done));
  });
}

std::future<Status> Session::StartSum(TensorView view) {
  return Begin([this, view](Completion done) { node_->Collective(view, true, std::move(done)); });
}

Status Session::Broadcast(TensorView view, Rank root) {
  return InPieces(view, [this, root](TensorView piece, Completion done) {
    node_->Broadcast(piece, root, std::move(done));
  });
}

Status Session::Barrier() {
  std::int64_t one = 1;
  return Sum(ViewOf(std::span(&one, 1)));
}

// Two sums: of the sizes, each rank filling its own number, then of the bytes, each rank filling its
// own stretch of 64-bit words. Sums of integers with zeros are exact.
Result<std::vector<ByteBuffer>> Session::GatherAll(ConstBytes bytes) {
  std::vector<std::int64_t> sizes(workers(), 0);
  sizes[rank_.value()] = static_cast<std::int64_t>(bytes.size());
  POSEIDON_RETURN_IF_ERROR(Sum(ViewOf(std::span(sizes))));
  // Each rank begins at a 64-bit number of its own, or two ranks would add into one.
  std::vector<std::size_t> first(workers() + 1u, 0);
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    first[r + 1] = first[r] + (static_cast<std::size_t>(sizes[r]) + 7) / 8;
  }
  std::vector<std::int64_t> words(first.back(), 0);
  std::byte* const memory = reinterpret_cast<std::byte*>(words.data());
  std::copy(bytes.begin(), bytes.end(), memory + first[rank_.value()] * 8);
  POSEIDON_RETURN_IF_ERROR(Sum(ViewOf(std::span(words))));
  std::vector<ByteBuffer> gathered;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    const std::byte* const begin = memory + first[r] * 8;
    gathered.emplace_back(begin, begin + sizes[r]);
  }
  return gathered;
}

// A worker without room for all ranks' bytes cannot take part, and the others would wait for it.
Result<std::vector<ByteBuffer>> Session::Gather(ConstBytes bytes) {
  try {
    return GatherAll(bytes);
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {  // more than any memory
  }
  const Status reason(StatusCode::kResourceExhausted, "has no memory for what a gather brings", StatusScope::kJob,
                      rank_.value());
  Abort(reason);
  static_cast<void>(AwaitEnd());  // until the others have heard, whatever the program does next
  return reason;
}

Status Session::Leave() {
  return Await([this](Completion done) { node_->Leave(std::move(done)); });
}

Status Session::AwaitEnd() {
  return Await([this](Completion done) { node_->AwaitEnd(std::move(done)); });
}

void Session::Abort(const Status& reason) {
  runtime_->io().Post([this, reason] { node_->Abort(reason); });
}

Status Session::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

Statistics Session::Collect() {
  Statistics statistics;
  RunOnIo([&] {
    const messaging::Traffic& traffic = node_->mesh().traffic();
    statistics.control = traffic.control();
    statistics.collectives = traffic.collectives();
    statistics.wire = node_->mesh().wire_counters();
    statistics.allocated_bytes = node_->allocated_bytes();
    statistics.link = node_->link();
  });
  for (const std::unique_ptr<Model>& model : models_) {
    const ModelStatistics of_model = model->Collect();
    statistics.busy_seconds += of_model.busy_seconds;
    statistics.waited_seconds += of_model.waited_seconds;
    statistics.overlap.Add(of_model.overlap);
  }
  return statistics;
}

}  // namespace poseidon::session
