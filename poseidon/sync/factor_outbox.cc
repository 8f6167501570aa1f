// SPDX-License-Identifier: Apache-2.0
#include "poseidon/sync/factor_outbox.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace poseidon::sync {

std::uint64_t CompressionRule::MostBytes(std::uint64_t bytes, std::uint32_t receivers) const {
  // Words are counted in 32 bits (FrameHeader).
  const bool can = bytes > 0 && bytes % factors::kWordBytes == 0 &&
                   bytes / factors::kWordBytes <= std::numeric_limits<std::uint32_t>::max();
  if (!can) return 0;
  switch (mode_) {
    case plan::ZeroCompression::kAuto:
      return plan::MostPayingBytes(bytes, receivers, costs_);
    case plan::ZeroCompression::kOff:
      return 0;
    case plan::ZeroCompression::kAlways:
      return factors::MostCompressedBytes(bytes);
  }
  return 0;
}

void PackedFactor::Pack(ConstBytes factor, std::uint32_t receivers, const CompressionRule& rule) {
  bytes_ = factor;
  words_ = 0;
  const std::uint64_t most = rule.MostBytes(factor.size(), receivers);
  if (most < factors::LeastCompressedBytes(factor.size()) || most == 0) return;
  if (rule.looks_first() && factors::EstimateCompressedBytes(factor) > most) return;
  if (!MakeRoom(most)) return;
  // The part that was looked at may have had more zeros than the rest: then the room does not do.
  const auto compressed = factors::Compress(factor, MutableBytes(memory_.get(), most));
  if (!compressed) return;
  bytes_ = ConstBytes(memory_.get(), *compressed);
  words_ = static_cast<std::uint32_t>(factor.size() / factors::kWordBytes);
}

bool PackedFactor::MakeRoom(std::uint64_t bytes) {
  if (bytes <= room_) return true;
  memory_ = {};  // before the new one, so that both are never there
  memory_ = factors::AllocateAligned(bytes);
  room_ = memory_ ? bytes : 0;
  return memory_ != nullptr;
}

std::uint32_t SendFactors(messaging::Mesh& mesh, MemberId to, Rank self_rank, const wire::Key& key,
                          const SyncRequest& request, const FactorsToSend& what,
                          const std::function<Completion()>& left) {
  std::uint32_t frames = 0;
  for (const PackedFactor* const factor : {&what.u, &what.v}) {
    const bool is_v = factor == &what.v;
    if (is_v && factor->bytes().empty()) break;
    messaging::Outgoing out;
    out.header.type = wire::FrameType::kFactor;
    out.header.words = factor->words();
    out.header.step = request.step;
    out.header.model = key.model;
    out.header.rank = self_rank;
    out.header.layer = key.layer;
    out.header.total = factor->bytes().size();
    out.header.weight = request.weight;
    out.header.dtype = what.dtype;
    out.header.scheme = what.scheme;
    out.header.flags = is_v ? wire::kFlagFactorV : std::uint16_t{0};
    // A weight without rows is not absent: it still counts in the divisor.
    if (factor->bytes().empty() && request.weight == 0) out.header.flags |= wire::kFlagAbsent;
    out.payload = factor->bytes();
    out.priority = request.priority;
    out.left = left();
    ++frames;
    mesh.Send(to, std::move(out));
  }
  return frames;
}

}  // namespace poseidon::sync
