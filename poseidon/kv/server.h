// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_KV_SERVER_H_
#define POSEIDON_KV_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/base/alive.h"
#include "poseidon/base/trace.h"
#include "poseidon/kv/shard.h"
#include "poseidon/messaging/mesh.h"
#include "poseidon/plan/history.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/plan.h"
#include "poseidon/plan/slices.h"
#include "poseidon/sync/contribution.h"
#include "poseidon/sync/strategy.h"
#include "poseidon/sync/topology.h"
#include "poseidon/wire/frame.h"
#include "poseidon/wire/messages.h"

namespace poseidon::kv {

using wire::Key;

// Bound on a one-off key's size, checked before anything is allocated.
inline constexpr std::uint64_t kMaxCollectiveBytes = std::uint64_t{1} << 32;

// The kind of a collective, sent in the place of a weight: workers that differ in it called different collectives.
inline constexpr std::uint32_t kSum = 0;
inline std::uint32_t BroadcastFrom(Rank root) { return 1u + root.value(); }

// Hosts one shard: the slices of every key that belong to it. Contributions come in as kPush frames
// (and by Local from the worker of the same process), sums go out to every rank as kResult frames,
// piece by piece as they become known.
//
// A rank holds back what is beyond its window (client.h), and sums let it go on. While some rank has not begun there are no sums: the others
// are granted more of their contributions by kGrant frames, as long as what waits for the late one is at most run_ahead_bytes. So a rank that
// is late delays nobody's transfer, and cannot fill the memory of an owner.
//
// Thread: the mesh's executor. Lifetime: the mesh outlives it.
class Server final : public messaging::FrameSink {
 public:
  // Pre: topology.self_shard(). `trace` may be null.
  Server(Executor& executor, messaging::Mesh& mesh, const sync::Topology& topology, TraceRecorder* trace,
         const sync::Strategy& strategy = {});

  // The layers of a model, with the slices every member computes alike (plan::AssignSlices). With
  // Placement::kWhole and kPairs an owner sums and answers only when all contributions are whole, as the stores did
  // that place layers so.
  void Declare(ModelId model, std::span<const plan::LayerSpec> layers,
               const std::vector<std::vector<plan::Slice>>& slices);
  // Results leave in the plan's order from its switch step on: the parts of one result never change
  // their order. Pre: the model was declared.
  void UsePlan(ModelId model, const plan::Plan& plan);

  // The local worker's contribution to `key`, of which this shard takes and writes `slice`. In parts none of the slice
  // is there before LocalArrived. `done` fires when the sum is whole and every frame that reads it has left. The gradient
  // of a one-off key says how large it is, and of which dtype. Pre: CheckOneOff.
  struct LocalPush : sync::Contribution {
    Key key;
    plan::Slice slice;
    Completion done = {};
  };
  void Local(LocalPush push);
  // The first `bytes` of the slice of the local contribution in parts have arrived, more than before. Ignored where it was
  // refused.
  void LocalArrived(const Key& key, std::uint64_t bytes);

  // kInvalidArgument where this one-off key has had a contribution of another size, dtype or kind: the collective will
  // never be whole, its sum does not fit the memory it would be written to, or the workers mean different things.
  struct OneOff {
    std::uint64_t bytes = 0;
    DType dtype = DType::kF32;
    std::uint32_t kind = kSum;
    Rank by;  // who calls it
  };
  Status CheckOneOff(const Key& key, const OneOff& called) const;
  // `differing` gets that status where a peer's contribution differs, which is dropped, and one that names both where
  // workers push a layer for different steps: they are sound peers whose programs differ.
  void OnDiffering(std::function<void(const Status&)> differing) { differing_ = std::move(differing); }

  // Fails what local contributions wait for; nothing is accepted afterwards.
  void Abandon(const Status& reason);

  // Adds what sums under way still lack.
  void AddWaits(std::vector<wire::Wait>* waits) const;

  // Bytes of blocks and sums allocated by now, and what the declared layers need where all of a contribution waits for
  // a rank that is late.
  std::uint64_t allocated_bytes() const;
  std::uint64_t declared_bytes() const;
  // Of contributions that wait for a late rank and of those that are granted: at least 64 MiB, and a quarter of declared_bytes().
  std::uint64_t run_ahead_bytes() const { return run_ahead_bytes_; }

  // FrameSink, for kPush:
  Result<MutableBytes> PlaceFor(MemberId from, const wire::FrameHeader& header) override;
  Status OnFrame(MemberId from, const wire::FrameHeader& header, ConstBytes payload) override;

 private:
  // How far a rank is ahead of the sums.
  struct Ahead {
    bool held = false;          // its last frame said that it holds back the rest
    std::uint64_t granted = 0;  // bytes of the slice, from its beginning on; 0: none
  };
  struct Hosted {
    plan::Slice slice;
    std::string name;  // of the layer
    DType dtype = DType::kF32;
    std::uint64_t layer_bytes = 0;
    std::optional<OneOff> one_off = std::nullopt;  // as it was called first
    std::unique_ptr<Shard> shard;
    std::vector<Ahead> ahead = {};  // by rank; empty before one holds back
    Completion local_done;
    // Result frames that still read the local worker's memory, and whether the sum is whole.
    std::uint32_t unsent = 0;
    bool whole = false;
  };

  // A frame that is sound: the key it contributes to, or why it cannot be added there.
  struct Admission {
    Hosted* hosted = nullptr;
    Status differs;  // from what other workers contribute: the peer is sound, the programs differ
  };
  // kDataLoss, or why nothing is accepted any more, where the frame is not sound.
  Result<Admission> Admit(MemberId from, const wire::FrameHeader& header);
  void HandOver(const Status& differs) const;
  Status CheckOneOff(const wire::FrameHeader& header) const;
  // kInvalidArgument, naming both, where `rank` is not in the step that another rank has begun.
  Status CheckStep(const Hosted& hosted, Rank rank, Step step) const;
  Result<Hosted*> Find(const wire::FrameHeader& header);
  Hosted& AddOneOff(const Key& key, const OneOff& called);
  Status CheckSender(MemberId from, const wire::FrameHeader& header) const;
  void Advance(const Key& key, Hosted& hosted);
  void NoteArrival(const Key& key, Hosted& hosted, const wire::FrameHeader& header);
  // Grants the rank more, where it holds back, or will soon, and another has not begun. False where that would be too much: it waits for
  // what others free.
  bool GrantAhead(const Key& key, Hosted& hosted, Rank rank);
  void GrantWaiting();
  bool HoldsBack(const Hosted& hosted, Rank rank) const;
  std::uint32_t SendPosition(const Key& key, Step step) const;
  void SendResult(const Key& key, Hosted& hosted, const Shard::Progress& progress);
  void OnResultLeft(const Key& key, const Status& status);
  void FinishIfDone(const Key& key, Hosted& hosted);

  Executor& executor_;
  messaging::Mesh& mesh_;
  const sync::Topology topology_;
  const std::uint16_t shard_;
  TraceRecorder* const trace_;
  const sync::Strategy strategy_;
  LandingBlocks blocks_;  // before the shards, which it outlives
  std::map<Key, Hosted> hosted_;
  std::size_t one_off_keys_ = 0;  // of hosted_
  std::uint64_t run_ahead_bytes_;
  std::uint64_t promised_ = 0;  // bytes that are granted and have not arrived
  std::set<std::pair<Key, Rank>> waiting_;  // for a grant
  std::map<ModelId, plan::History> plans_;
  std::function<void(const Status&)> differing_;
  Status abandoned_;
  Alive alive_;
};

}  // namespace poseidon::kv

#endif  // POSEIDON_KV_SERVER_H_
