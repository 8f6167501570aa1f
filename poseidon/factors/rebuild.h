// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FACTORS_REBUILD_H_
#define POSEIDON_FACTORS_REBUILD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "poseidon/base/executor.h"
#include "poseidon/base/result.h"
#include "poseidon/plan/layer.h"
#include "poseidon/factors/engine.h"
#include "poseidon/tensor/view.h"

namespace poseidon::factors {

struct FreeDeleter {
  void operator()(std::byte* memory) const;
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeDeleter>;
// 64-byte aligned memory; null when there is none (or for 0 bytes).
AlignedBytes AllocateAligned(std::size_t bytes);

// A rank's count of rows in one step, and the weight of its contribution in the mean. A weight of 0 on all ranks
// means an unweighted step.
struct WeightedRows {
  std::uint32_t rows = 0;
  std::uint32_t weight = 0;
  friend bool operator==(const WeightedRows&, const WeightedRows&) = default;
};

// All ranks' rows of one step, concatenated in rank order: u [rows x outputs], of a table [rows] int64; v [rows x inputs].
struct Concatenation {
  std::byte* u = nullptr;
  const std::byte* v = nullptr;
  std::uint64_t rows = 0;
  // Where there are weights: the rows and weight of each rank, and the sum of all weights, also of ranks without rows.
  std::vector<WeightedRows> ranks = {};
  std::uint64_t weight = 0;
};

// The mean of a layer that is handed out as what the ranks brought, behind one another in rank order: of a table its rows,
// unmerged, entry indices()[i] getting the `inputs` numbers of row i of v(); of a layer whose product the device makes its
// factors, the mean being u()^T v() and the column sums of u(). Thread: one at a time.
class GatheredRows {
 public:
  // Takes over what the ranks brought. The numbers of a table's v, or of a layer's u, are multiplied by their rank's weight,
  // where there are weights, and by alpha. kDataLoss where an index is of no entry. Thread: compute executor.
  Status Take(const plan::FactorShape& shape, DType dtype, const Concatenation& brought, double alpha);
  // The mean is of so many rows, which the caller writes to what it is given. kResourceExhausted where there is no memory.
  struct Places {
    std::byte* u = nullptr;
    std::byte* v = nullptr;
  };
  Result<Places> PlacesFor(const plan::FactorShape& shape, DType dtype, std::uint64_t rows);

  std::uint64_t rows() const { return rows_; }
  const std::int64_t* indices() const { return reinterpret_cast<const std::int64_t*>(u_.get()); }
  const std::byte* u() const { return u_.get(); }
  const std::byte* v() const { return v_.get(); }
  std::uint64_t allocated_bytes() const { return allocated_; }

 private:
  Status MakeRoom(const plan::FactorShape& shape, DType dtype, std::uint64_t rows);

  AlignedBytes u_;
  AlignedBytes v_;
  std::uint64_t room_ = 0;  // rows
  std::uint64_t allocated_ = 0;
  std::uint64_t rows_ = 0;
};

// Writes the weight's gradient [outputs x inputs] by one product of the engine, alpha * u^T v, and the bias's
// [outputs], where the layer has one, as alpha times the column sums of u, added row by row. Where ranks' rows have
// weights, the rows of u are multiplied by them first, in their place. No rows at all make zeros. `bias` is not
// touched where the layer has none. Thread: compute executor.
Status RebuildGradient(const plan::FactorShape& shape, DType dtype, const Concatenation& factors, double alpha,
                       ProductEngine& engine, std::byte* weight, std::byte* bias);
// The same of a flat gradient, the bias behind the weight.
Status RebuildGradient(const plan::FactorShape& shape, DType dtype, const Concatenation& factors,
                       double alpha, ProductEngine& engine, std::byte* gradient);

// Over words of eight bytes, the last filled up with zeros. What test products are compared by. Thread: any.
std::uint64_t HashOf(ConstBytes bytes);

// A hash of the engine's product for this layer on `rows` rows of fixed pseudo-random numbers:
// members whose hashes are equal rebuild equal bits. Also returns the seconds the product took, the
// best of three by the clock of `clock`; 0 on a virtual clock, which a product does not advance.
// Thread: compute executor.
struct ProductTest {
  std::uint64_t hash = 0;
  double seconds = 0;
  double flops = 0;  // of the weight product
  // Operations per second; 0 where no time passed.
  double rate() const { return seconds > 0 ? flops / seconds : 0; }
};
Result<ProductTest> TestProduct(const plan::FactorShape& shape, DType dtype, std::uint64_t rows,
                                ProductEngine& engine, const Executor& clock);

}  // namespace poseidon::factors

#endif  // POSEIDON_FACTORS_REBUILD_H_
