// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/session.h"

#include <algorithm>
#include <future>
#include <new>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "poseidon/base/lesser.h"
#include "poseidon/coordinator/progress.h"

namespace poseidon::session {

Session::Session(std::unique_ptr<Runtime> runtime, const SessionOptions& options)
    : options_(options), node_(std::move(runtime), options_) {}

Result<std::unique_ptr<Session>> Session::Open(
    std::unique_ptr<Runtime> runtime, const SessionOptions& options,
    UniqueFunction<void(const transport::Address&)> listening) {
  std::unique_ptr<Session> session(new Session(std::move(runtime), options));
  POSEIDON_RETURN_IF_ERROR(session->node_.Open(std::move(listening)));
  if (options.figures) {
    session->figures_ = std::make_unique<FiguresTeller>([of = session.get()] { return of->Look(); }, options.figures);
  }
  return session;
}

Session::~Session() {
  if (!forked()) return;
  static_cast<void>(figures_.release());  // its thread is in the parent
  for (std::unique_ptr<Model>& model : models_) static_cast<void>(model.release());
}

std::string Session::NameOf(std::int32_t member) const { return session::NameOf(roster(), member); }

Result<Model*> Session::NewModel() {
  MutexLock lock(mutex_);
  // The key of a step's sum has eight bits for the model (wire/messages.h).
  if (models_.size() >= wire::kMaxModels) {
    return InvalidArgument("a session holds " + std::to_string(wire::kMaxModels) + " models, expected no further one");
  }
  const ModelId id(static_cast<std::uint16_t>(models_.size()));
  models_.push_back(std::make_unique<Model>(
      node_, id, Model::Place{rank(), workers(), options_.node.final_plan_step, options_.trace}));
  return models_.back().get();
}

// In pieces that every worker cuts alike: a sum has the same bits for any split.
Status Session::InPieces(TensorView view, const std::function<void(Node&, TensorView, Completion)>& start) {
  const std::uint64_t at_once =
      std::max<std::uint64_t>(1, options_.collective_bytes / SizeOf(view.dtype));
  // An empty view goes once: the node answers it, with the job's failure where there is one.
  for (std::uint64_t first = 0; first == 0 || first < view.elements; first += at_once) {
    const TensorView piece{view.memory + first * SizeOf(view.dtype),
                           std::min(at_once, view.elements - first), view.dtype};
    POSEIDON_RETURN_IF_ERROR(
        node_.Await([&start, piece](Node& node, Completion done) { start(node, piece, std::move(done)); }));
  }
  return OkStatus();
}

Status Session::Sum(TensorView view) {
  return InPieces(view, [](Node& node, TensorView piece, Completion done) {
    node.Collective(piece, true, std::move(done));
  });
}

std::future<Status> Session::StartSum(TensorView view) {
  return node_.Begin([view](Node& node, Completion done) { node.Collective(view, true, std::move(done)); });
}

Status Session::Broadcast(TensorView view, Rank root) {
  return InPieces(view, [root](Node& node, TensorView piece, Completion done) {
    node.Broadcast(piece, root, std::move(done));
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
  sizes[rank().value()] = static_cast<std::int64_t>(bytes.size());
  POSEIDON_RETURN_IF_ERROR(Sum(ViewOf(std::span(sizes))));
  // Each rank begins at a 64-bit number of its own, or two ranks would add into one.
  std::vector<std::size_t> first(workers() + 1u, 0);
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    first[r + 1] = first[r] + (static_cast<std::size_t>(sizes[r]) + 7) / 8;
  }
  std::vector<std::int64_t> words(first.back(), 0);
  std::byte* const memory = reinterpret_cast<std::byte*>(words.data());
  std::copy(bytes.begin(), bytes.end(), memory + first[rank().value()] * 8);
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
                      rank().value());
  Abort(reason);
  static_cast<void>(AwaitEnd());  // until the others have heard, whatever the program does next
  return reason;
}

Status Session::Leave() {
  return node_.Await([](Node& node, Completion done) { node.Leave(std::move(done)); });
}

Status Session::AwaitEnd() {
  return node_.Await([](Node& node, Completion done) { node.AwaitEnd(std::move(done)); });
}

Statistics Session::Collect() {
  Statistics statistics;
  const LaneTotals totals = node_.Totals();
  statistics.control = totals.traffic.control();
  statistics.collectives = totals.traffic.collectives();
  statistics.wire = totals.wire;
  statistics.allocated_bytes = totals.allocated_bytes;
  node_.Run([&](const Node& node) {
    statistics.link = node.link();
    statistics.bandwidth = node.bandwidth();
  });
  MutexLock lock(mutex_);
  for (const std::unique_ptr<Model>& model : models_) {
    const ModelStatistics of_model = model->Collect();
    statistics.busy_seconds += of_model.busy_seconds;
    statistics.waited_seconds += of_model.waited_seconds;
    statistics.overlap.Add(of_model.overlap);
  }
  return statistics;
}

Sighting Session::Look() {
  Sighting seen;
  place::Figures& figures = seen.figures;
  const transport::ConnectionCounters wire = node_.Totals().wire;
  figures.sent = wire.wire_bytes_out;
  figures.received = wire.wire_bytes_in;
  std::optional<wire::Wait> wait;
  node_.Run([&](const Node& node) {
    figures.link = node.bandwidth() > 0 ? LesserRate(node.bandwidth(), node.link().bytes_per_second) : node.link().bytes_per_second;
    wait = node.FirstWait();
  });
  figures.blocked = node_.front_end().blocked();
  figures.busy_with = node_.front_end().busy_with();
  MutexLock lock(mutex_);
  for (const std::unique_ptr<Model>& model : models_) {
    const StepsSoFar counted = model->CountSteps();
    figures.steps += counted.begun;
    seen.overlap.Add(counted.overlap);
  }
  if (wait) AddWait(*wait, &figures);
  return seen;
}

void Session::AddWait(const wire::Wait& wait, place::Figures* figures) {
  std::string layer;
  if (wait.model.value() < models_.size() && models_[wait.model.value()]->committed()) {
    const std::vector<plan::LayerSpec>& layers = models_[wait.model.value()]->layers();
    if (wait.layer.value() < layers.size()) layer = layers[wait.layer.value()].name;
  }
  figures->waits_for = coordinator::InWords(wait, layer, models_.size() > 1).what;
  for (const MemberId member : wait.on) {
    // A launcher's places: the workers by rank, then the servers.
    std::uint16_t servers_before = 0;
    for (const wire::RosterEntry& entry : roster()) {
      const bool server = entry.role == wire::Role::kServer;
      if (entry.member == member) {
        figures->waits_on.push_back(static_cast<std::uint16_t>(server ? workers() + servers_before : entry.rank.value()));
      }
      servers_before = static_cast<std::uint16_t>(servers_before + (server ? 1 : 0));
    }
  }
}

void Session::ResetTimings() {
  MutexLock lock(mutex_);
  for (const std::unique_ptr<Model>& model : models_) model->ResetTimings();
}

}  // namespace poseidon::session
