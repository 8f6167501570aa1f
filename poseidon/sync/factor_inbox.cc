// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sync/factor_inbox.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>

namespace poseidon::sync {
namespace {

using factors::Part;
using factors::WeightedRows;

Part PartOf(const wire::FrameHeader& header) {
  return (header.flags & wire::kFlagFactorV) != 0 ? Part::kV : Part::kU;
}

// Bytes of a row.
std::uint64_t WidthOf(const plan::FactorShape& shape, DType dtype, Part part) {
  return part == Part::kU ? shape.u_bytes_per_row(dtype) : shape.v_bytes_per_row(dtype);
}

WeightedRows Brought(const plan::FactorShape& shape, const wire::FrameHeader& header) {
  const std::uint64_t width = WidthOf(shape, header.dtype, PartOf(header));
  return {static_cast<std::uint32_t>(header.whole_bytes() / width), header.weight};
}

}  // namespace

FactorInbox::FactorInbox(const Topology& topology, std::function<void(const wire::Key&)> arrived)
    : topology_(topology), arrived_(std::move(arrived)) {}

void FactorInbox::Add(const wire::Key& key, const plan::FactorShape& shape, DType dtype) {
  layers_.emplace(key, Layer{.shape = shape,
                             .dtype = dtype,
                             .store = factors::FactorStore(shape, dtype, topology_.ranks())});
}

void FactorInbox::Expect(const wire::Key& key, std::span<const std::uint32_t> rows) {
  const auto found = layers_.find(key);
  if (found == layers_.end()) return;
  for (std::uint16_t r = 0; r < rows.size() && r < topology_.ranks(); ++r) found->second.store.Expect(Rank(r), rows[r]);
}

Result<FactorInbox::Mean> FactorInbox::MeanOf(const wire::Key& key, Step step) {
  POSEIDON_ASSIGN_OR_RETURN(factors::Concatenation all, store(key).Concatenate(step));
  const double alpha = 1.0 / static_cast<double>(all.weight != 0 ? all.weight : topology_.contributors());
  // RebuildGradient multiplies rows by the weights that `ranks` names.
  if (topology_.workers != 0) all.ranks.clear();  // a host's rows are multiplied already
  return Mean{std::move(all), alpha};
}

Result<FactorInbox::Layer*> FactorInbox::Find(MemberId from, const wire::FrameHeader& header) {
  if (!closed_.ok()) return closed_;
  // The rank decides where rows land: a member that names another's would take that one's place.
  if (header.rank.value() >= topology_.ranks() || topology_.worker_of_rank[header.rank.value()] != from) {
    return DataLoss("member " + std::to_string(from.value()) + " sends factors as rank " +
                    std::to_string(header.rank.value()) + ", which is not its own");
  }
  const auto found = layers_.find(header.key());
  if (found == layers_.end() || found->second.dtype != header.dtype) {
    return DataLoss("factors name layer " + std::to_string(header.layer.value()) +
                    ", which has none of that dtype");
  }
  Layer& layer = found->second;
  const std::uint64_t width = WidthOf(layer.shape, layer.dtype, PartOf(header));
  // Rows are counted in 32 bits (WeightedRows): a larger number would be cut off.
  const std::uint64_t bytes = header.whole_bytes();
  if (bytes % width != 0 || bytes / width > std::numeric_limits<std::uint32_t>::max()) {
    return DataLoss("factors of layer " + std::to_string(header.layer.value()) + " have " + std::to_string(bytes) +
                    " bytes, expected whole rows of " + std::to_string(width));
  }
  return &layer;
}

Result<MutableBytes> FactorInbox::PlaceFor(MemberId from, const wire::FrameHeader& header) {
  POSEIDON_ASSIGN_OR_RETURN(Layer * layer, Find(from, header));
  if (header.compressed()) return MutableBytes{};
  return layer->store.PlaceFor(header.rank, header.step, PartOf(header), Brought(layer->shape, header), header.offset,
                               header.length);
}

Status FactorInbox::OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) {
  // Checked here too, because a frame without bytes asks for no place.
  POSEIDON_ASSIGN_OR_RETURN(Layer * layer, Find(from, header));
  const WeightedRows brought = Brought(layer->shape, header);
  if (header.compressed()) {
    POSEIDON_RETURN_IF_ERROR(layer->store.Expand(header.rank, header.step, PartOf(header), brought,
                                                 {.total = header.total, .offset = header.offset, .piece = payload}));
  } else {
    POSEIDON_RETURN_IF_ERROR(layer->store.Landed(header.rank, header.step, PartOf(header), brought, payload.size()));
  }
  arrived_(header.key());
  return OkStatus();
}

void FactorInbox::AddWaits(std::vector<wire::Wait>* waits) const {
  for (const auto& [key, layer] : layers_) {
    const std::optional<Step> step = layer.store.earliest();
    if (!step) continue;
    wire::Wait wait{wire::Wait::For::kFactors, key.model, key.layer, *step, {}};
    for (const Rank rank : layer.store.Missing(*step)) wait.on.push_back(topology_.worker_of_rank[rank.value()]);
    if (!wait.on.empty()) waits->push_back(std::move(wait));
  }
}

std::uint64_t FactorInbox::allocated_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [key, layer] : layers_) sum += layer.store.allocated_bytes();
  return sum;
}

}  // namespace poseidon::sync
