// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TESTS_INTEGRATION_GRADIENTS_H_
#define POSEIDON_TESTS_INTEGRATION_GRADIENTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "poseidon/base/bytes.h"
#include "poseidon/base/strong_id.h"
#include "poseidon/factors/rebuild.h"
#include "poseidon/plan/layer.h"
#include "poseidon/plan/scheme.h"
#include "poseidon/plan/units_range.h"
#include "poseidon/tensor/view.h"

// What every rank contributes at every step, as pure functions of a seed, and what one process
// makes of them that holds them all: the oracle that every member's result must equal bit for bit.
namespace poseidon::integration {

struct GradientOptions {
  std::uint64_t seed = 1;
  std::uint16_t ranks = 1;
  // Where workers combine on their hosts first: the host of each rank. Empty: flat.
  std::vector<std::uint32_t> host_of_rank = {};
  bool factors_are_flat = false;  // all the same (plan::FactorsAreFlat)
  double absent = 0;  // probability that a rank has nothing for a layer
  std::uint16_t shards = 1;
  // Of a rank's factors; each count between is drawn.
  std::uint32_t min_rows = 0;
  std::uint32_t max_rows = 9;
  double zeros = 0;       // the share of the factors' numbers that are 0, as behind ReLU; a tenth of them -0
  bool weighted = false;  // contributions carry weights, some of them 0
  // Every number of rank r is 2^r (times a small factor of the step): the sum of contributions is
  // the mask of the ranks that are in it, each counted once.
  bool powers_of_two = false;
};

class Gradients {
 public:
  Gradients(const GradientOptions& options, std::vector<plan::LayerSpec> layers);

  const std::vector<plan::LayerSpec>& layers() const { return layers_; }
  bool Absent(Rank rank, LayerId layer, Step step) const;
  // 0 for a rank that is absent.
  std::uint32_t Weight(Rank rank, LayerId layer, Step step) const;
  // 0 for a rank that is absent.
  std::uint32_t Rows(Rank rank, LayerId layer, Step step) const;
  // Those that leave its host: where workers combine first, a host with weights drops the rows of no weight.
  std::uint32_t RowsSent(Rank rank, LayerId layer, Step step) const;
  void FillDense(Rank rank, LayerId layer, Step step, std::byte* out) const;
  void FillFactors(Rank rank, LayerId layer, Step step, std::byte* u, std::byte* v) const;

  // The mean over all ranks: a sum in rank order of whole tensors, on each host and then over the
  // hosts' sums, or one product by `engine` of the factors concatenated in the same order,
  // multiplied by the ranks' weights, or one such product for each shard's units; of a table the indices and then the values of all ranks' rows. Kept while a rank
  // may still ask. Thread: any.
  const ByteBuffer& Mean(LayerId layer, Step step, plan::Scheme scheme, factors::ProductEngine& engine);
  // The ranks and how often each is in a result of powers of two, for a message.
  std::string Explain(LayerId layer, Step step, ConstBytes result) const;

 private:
  std::uint64_t Draw(Rank rank, LayerId layer, Step step, std::uint64_t what) const;
  // The ranks of each host; flat: of each rank.
  std::vector<std::vector<std::uint16_t>> Hosts() const;
  // Of all ranks that are there; 0: unweighted.
  std::uint64_t Weights(LayerId layer, Step step) const;
  // Whether a rank adds to the mean, where all weights are so many.
  bool Counts(Rank rank, LayerId layer, Step step, std::uint64_t weights) const;
  template <typename T>
  void SumByHand(LayerId layer, Step step, T* mean) const;
  ByteBuffer SumOf(LayerId layer, Step step) const;
  ByteBuffer RowsOf(LayerId layer, Step step) const;
  ByteBuffer ProductsOf(LayerId layer, Step step, std::span<const plan::UnitRange> parts,
                        factors::ProductEngine& engine) const;

  const GradientOptions options_;
  const std::vector<plan::LayerSpec> layers_;
  std::mutex mutex_;
  std::map<std::tuple<LayerId, Step, plan::Scheme>, ByteBuffer> means_;  // guarded by mutex_
};

}  // namespace poseidon::integration

#endif  // POSEIDON_TESTS_INTEGRATION_GRADIENTS_H_
