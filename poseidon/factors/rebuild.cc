// SPDX-License-Identifier: Apache-2.0
#include "poseidon/factors/rebuild.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "poseidon/base/bytes.h"
#include "poseidon/base/random.h"
#include "poseidon/tensor/sum.h"

namespace poseidon::factors {
namespace {

// The alignment of its operands can change a product's bits, so ProductEngine fixes it (engine.h).
constexpr std::size_t kAlignment = 64;

template <typename T>
void ColumnSums(const T* u, std::uint64_t rows, std::uint64_t outputs, T alpha, T* bias) {
  std::fill_n(bias, outputs, T{0});
  for (std::uint64_t k = 0; k < rows; ++k) {
    for (std::uint64_t m = 0; m < outputs; ++m) bias[m] += u[k * outputs + m];
  }
  for (std::uint64_t m = 0; m < outputs; ++m) bias[m] *= alpha;
}

// Of the two factors u is multiplied, because the bias is made of it as well.
void Weigh(const plan::FactorShape& shape, DType dtype, const Concatenation& factors) {
  std::byte* u = factors.u;
  for (const auto& [rows, weight] : factors.ranks) {
    const Summand own{u, weight};
    SumInRankOrder({&own, 1}, 1, rows * shape.outputs, dtype, Scaling::kNone, u);
    u += rows * shape.outputs * SizeOf(dtype);
  }
}

template <typename T>
void ScaleRows(const std::byte* from, std::uint64_t numbers, T weight, T alpha, std::byte* to) {
  const T* const in = reinterpret_cast<const T*>(from);
  T* const out = reinterpret_cast<T*>(to);
  for (std::uint64_t i = 0; i < numbers; ++i) out[i] = in[i] * weight * alpha;
}

// Writes the rows of all ranks, `width` numbers each, times their rank's weight, where there are weights, and alpha.
void Scale(const std::byte* from, std::uint64_t width, DType dtype, const Concatenation& brought, double alpha, std::byte* to) {
  const auto scale = [&](std::uint64_t rows, std::uint32_t weight) {
    const std::uint64_t numbers = rows * width;
    if (dtype == DType::kF64) {
      ScaleRows<double>(from, numbers, weight, alpha, to);
    } else {
      ScaleRows<float>(from, numbers, static_cast<float>(weight), static_cast<float>(alpha), to);
    }
    from += numbers * SizeOf(dtype);
    to += numbers * SizeOf(dtype);
  };
  if (brought.ranks.empty()) scale(brought.rows, 1);
  for (const auto& [rows, weight] : brought.ranks) scale(rows, weight);
}

// Numbers in [-1, 1) from a 64-bit mix of their index: the same on every machine.
template <typename T>
void FillFixed(T* numbers, std::uint64_t count, std::uint64_t stream) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t x = Mix64((stream << 48) + i);
    // 24 bits, which float holds exactly: f32 and f64 have the same numbers.
    numbers[i] = static_cast<T>(static_cast<double>(x >> 40) / double(1 << 23) - 1.0);
  }
}

void FillFixed(DType dtype, std::byte* memory, std::uint64_t count, std::uint64_t stream) {
  if (dtype == DType::kF64) {
    FillFixed(reinterpret_cast<double*>(memory), count, stream);
  } else {
    FillFixed(reinterpret_cast<float*>(memory), count, stream);
  }
}

}  // namespace

void FreeDeleter::operator()(std::byte* memory) const { std::free(memory); }

AlignedBytes AllocateAligned(std::size_t bytes) {
  if (bytes == 0) return {};
  // std::aligned_alloc takes multiples of the alignment only.
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return AlignedBytes(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
}

Status GatheredRows::MakeRoom(const plan::FactorShape& shape, DType dtype, std::uint64_t rows) {
  if (rows <= room_) return OkStatus();
  // No room until both are there: the next call would otherwise write to memory that this one did not get.
  room_ = allocated_ = 0;
  u_ = AllocateAligned(rows * shape.u_bytes_per_row(dtype));
  v_ = AllocateAligned(rows * shape.v_bytes_per_row(dtype));
  if (!u_ || !v_) {
    return ResourceExhausted("no memory for " + std::to_string(rows) + (shape.table ? " rows of a table" : " rows of factors"));
  }
  room_ = rows;
  allocated_ = rows * shape.bytes_per_row(dtype);
  return OkStatus();
}

Result<GatheredRows::Places> GatheredRows::PlacesFor(const plan::FactorShape& shape, DType dtype, std::uint64_t rows) {
  rows_ = 0;
  POSEIDON_RETURN_IF_ERROR(MakeRoom(shape, dtype, rows));
  rows_ = rows;
  return Places{u_.get(), v_.get()};
}

Status GatheredRows::Take(const plan::FactorShape& shape, DType dtype, const Concatenation& brought, double alpha) {
  rows_ = 0;
  POSEIDON_RETURN_IF_ERROR(MakeRoom(shape, dtype, brought.rows));
  if (brought.rows == 0) return OkStatus();
  if (shape.table) {
    const auto* const indices = reinterpret_cast<const std::int64_t*>(brought.u);
    for (std::uint64_t i = 0; i < brought.rows; ++i) {
      // Indices come from peers, and the front end writes to the entries they name.
      if (!shape.has_entry(indices[i])) {
        return DataLoss("a row came for entry " + std::to_string(indices[i]) + ", expected 0 to " +
                        std::to_string(shape.outputs - 1));
      }
    }
    std::memcpy(u_.get(), brought.u, brought.rows * shape.u_bytes_per_row(dtype));
    Scale(brought.v, shape.inputs, dtype, brought, alpha, v_.get());
  } else {
    // Of the two u, because the bias is made of it as well.
    Scale(brought.u, shape.outputs, dtype, brought, alpha, u_.get());
    std::memcpy(v_.get(), brought.v, brought.rows * shape.v_bytes_per_row(dtype));
  }
  rows_ = brought.rows;
  return OkStatus();
}

Status RebuildGradient(const plan::FactorShape& shape, DType dtype, const Concatenation& factors, double alpha,
                       ProductEngine& engine, std::byte* weight, std::byte* bias) {
  const std::size_t size = SizeOf(dtype);
  // Engines multiply at least one row (engine.h).
  if (factors.rows == 0) {
    std::memset(weight, 0, shape.outputs * shape.inputs * size);
    if (shape.bias) std::memset(bias, 0, shape.outputs * size);
    return OkStatus();
  }
  Weigh(shape, dtype, factors);
  POSEIDON_RETURN_IF_ERROR(engine.Multiply({.dtype = dtype,
                                            .u = factors.u,
                                            .v = factors.v,
                                            .rows = factors.rows,
                                            .outputs = shape.outputs,
                                            .inputs = shape.inputs,
                                            .alpha = alpha,
                                            .out = weight}));
  if (!shape.bias) return OkStatus();
  if (dtype == DType::kF64) {
    ColumnSums(reinterpret_cast<const double*>(factors.u), factors.rows, shape.outputs, alpha,
               reinterpret_cast<double*>(bias));
  } else {
    ColumnSums(reinterpret_cast<const float*>(factors.u), factors.rows, shape.outputs,
               static_cast<float>(alpha), reinterpret_cast<float*>(bias));
  }
  return OkStatus();
}

Status RebuildGradient(const plan::FactorShape& shape, DType dtype, const Concatenation& factors,
                       double alpha, ProductEngine& engine, std::byte* gradient) {
  return RebuildGradient(shape, dtype, factors, alpha, engine, gradient,
                         gradient + shape.outputs * shape.inputs * SizeOf(dtype));
}

std::uint64_t HashOf(ConstBytes bytes) {
  std::uint64_t hash = bytes.size();
  for (std::size_t at = 0; at < bytes.size(); at += sizeof hash) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
    hash = Mix64(hash ^ word);
  }
  return hash;
}

Result<ProductTest> TestProduct(const plan::FactorShape& shape, DType dtype, std::uint64_t rows,
                                ProductEngine& engine, const Executor& clock) {
  const std::size_t size = SizeOf(dtype);
  const std::uint64_t out_bytes =
      (shape.outputs * shape.inputs + (shape.bias ? shape.outputs : 0)) * size;
  const AlignedBytes u = AllocateAligned(rows * shape.outputs * size);
  const AlignedBytes v = AllocateAligned(rows * shape.inputs * size);
  const AlignedBytes out = AllocateAligned(out_bytes);
  if (!u || !v || !out) {
    return ResourceExhausted("no memory for the test product of a layer of " +
                             std::to_string(shape.outputs) + " x " + std::to_string(shape.inputs));
  }
  FillFixed(dtype, u.get(), rows * shape.outputs, 1);
  FillFixed(dtype, v.get(), rows * shape.inputs, 2);
  ProductTest test;
  test.flops = shape.product_flops(rows);
  for (int repeat = 0; repeat < 3; ++repeat) {
    const TimePoint begin = clock.now();
    // The whole rebuild, so that the hash covers the bias as well as the product.
    POSEIDON_RETURN_IF_ERROR(RebuildGradient(shape, dtype, {u.get(), v.get(), rows}, 1.0 / 3.0,
                                             engine, out.get()));
    const double seconds = ToSeconds(clock.now() - begin);
    test.seconds = repeat == 0 ? seconds : std::min(test.seconds, seconds);
  }
  test.hash = HashOf(ConstBytes(out.get(), out_bytes));
  return test;
}

}  // namespace poseidon::factors
