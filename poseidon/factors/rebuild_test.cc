// SPDX-License-Identifier: Apache-2.0
#include "poseidon/factors/rebuild.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "poseidon/base/random.h"
#include "poseidon/base/thread_executor.h"
#include "poseidon/factors/blas_engine.h"

namespace poseidon::factors {
namespace {

// Three loops, nothing clever.
class LoopEngine final : public ProductEngine {
 public:
  Status Multiply(const Product& p) override {
    if (p.dtype == DType::kF64) {
      Run<double>(p);
    } else {
      Run<float>(p);
    }
    if (flip_bit_) p.out[p.outputs * p.inputs * SizeOf(p.dtype) - 1] ^= std::byte{1};
    ++products;
    return OkStatus();
  }
  std::string description() const override { return "loops"; }
  void FlipOneBit() { flip_bit_ = true; }
  int products = 0;

 private:
  template <typename T>
  static void Run(const Product& p) {
    const T* u = reinterpret_cast<const T*>(p.u);
    const T* v = reinterpret_cast<const T*>(p.v);
    T* out = reinterpret_cast<T*>(p.out);
    for (std::uint64_t m = 0; m < p.outputs; ++m) {
      for (std::uint64_t n = 0; n < p.inputs; ++n) {
        T sum = 0;
        for (std::uint64_t k = 0; k < p.rows; ++k)
          sum += u[k * p.outputs + m] * v[k * p.inputs + n];
        out[m * p.inputs + n] = static_cast<T>(p.alpha) * sum;
      }
    }
  }
  bool flip_bit_ = false;
};

class FailingEngine final : public ProductEngine {
 public:
  Status Multiply(const Product&) override { return Unimplemented("no products today"); }
  std::string description() const override { return "fails"; }
};

template <typename T>
struct Inputs {
  AlignedBytes u, v;
  std::uint64_t rows = 0;

  Inputs(const plan::FactorShape& shape, std::uint64_t row_count) : rows(row_count) {
    Random random(17);
    u = AllocateAligned(rows * shape.outputs * sizeof(T));
    v = AllocateAligned(rows * shape.inputs * sizeof(T));
    for (std::uint64_t i = 0; i < rows * shape.outputs; ++i) {
      reinterpret_cast<T*>(u.get())[i] = static_cast<T>(random.Unit() - 0.5);
    }
    for (std::uint64_t i = 0; i < rows * shape.inputs; ++i) {
      reinterpret_cast<T*>(v.get())[i] = static_cast<T>(random.Unit() - 0.5);
    }
  }
  Concatenation all(std::vector<WeightedRows> ranks = {}) const { return {u.get(), v.get(), rows, std::move(ranks)}; }
};

template <typename T>
void CompareWithLoops(DType dtype, const plan::FactorShape& shape, std::uint64_t rows,
                      double tolerance) {
  const Inputs<T> inputs(shape, rows);
  const std::uint64_t elements = shape.outputs * shape.inputs + (shape.bias ? shape.outputs : 0);
  std::vector<T> found(elements + 1, T{-7});
  const auto engine = MakeBlasEngine(1);
  ASSERT_TRUE(RebuildGradient(shape, dtype, inputs.all(), 0.25, *engine,
                              reinterpret_cast<std::byte*>(found.data()))
                  .ok());
  EXPECT_EQ(found[elements], T{-7}) << "wrote beyond the gradient";
  std::vector<T> expected(elements, T{0});
  LoopEngine loops;
  ASSERT_TRUE(RebuildGradient(shape, dtype, inputs.all(), 0.25, loops,
                              reinterpret_cast<std::byte*>(expected.data()))
                  .ok());
  for (std::uint64_t i = 0; i < elements; ++i) {
    ASSERT_NEAR(found[i], expected[i], tolerance) << "element " << i;
  }
  // The bias is no product: its bits follow from its definition.
  const T* u = reinterpret_cast<const T*>(inputs.u.get());
  for (std::uint64_t m = 0; shape.bias && m < shape.outputs; ++m) {
    T sum = 0;
    for (std::uint64_t k = 0; k < rows; ++k) sum += u[k * shape.outputs + m];
    ASSERT_EQ(found[shape.outputs * shape.inputs + m], sum * T(0.25)) << "bias " << m;
  }
}

TEST(RebuildGradient, IsTheProductAndTheColumnSums) {
  for (const bool bias : {false, true}) {
    CompareWithLoops<float>(DType::kF32, {7, 13, bias}, 5, 1e-5);
    CompareWithLoops<float>(DType::kF32, {1, 1, bias}, 1, 1e-6);
    CompareWithLoops<float>(DType::kF32, {33, 100, bias}, 257, 1e-3);
    CompareWithLoops<double>(DType::kF64, {7, 13, bias}, 5, 1e-13);
    CompareWithLoops<double>(DType::kF64, {50, 31, bias}, 64, 1e-12);
  }
}

// Each rank's rows of u and no other's, multiplied in the dtype's own arithmetic: the bits of a product of such rows.
template <typename T>
void CompareWithMultipliedRows(DType dtype) {
  const plan::FactorShape shape{3, 4, true};
  const std::vector<WeightedRows> ranks = {{2, 3}, {1, 7}, {4, 1}};
  const Inputs<T> weighted(shape, 7);
  const Inputs<T> multiplied(shape, 7);
  const Inputs<T> plain(shape, 7);
  T* u = reinterpret_cast<T*>(multiplied.u.get());
  for (const auto& [rows, weight] : ranks) {
    for (std::uint64_t i = 0; i < rows * shape.outputs; ++i) *u++ *= static_cast<T>(weight);
  }
  const auto engine = MakeBlasEngine(1);
  const auto rebuilt = [&](const Concatenation& factors) {
    std::vector<T> gradient(15);
    EXPECT_TRUE(
        RebuildGradient(shape, dtype, factors, 1.0 / 11, *engine, reinterpret_cast<std::byte*>(gradient.data())).ok());
    return gradient;
  };
  const std::vector<T> found = rebuilt(weighted.all(ranks));
  EXPECT_EQ(found, rebuilt(multiplied.all()));
  EXPECT_NE(found, rebuilt(plain.all()));
}

TEST(RebuildGradient, RanksRowsAreMultipliedByTheirWeights) {
  CompareWithMultipliedRows<float>(DType::kF32);
  CompareWithMultipliedRows<double>(DType::kF64);
}

TEST(RebuildGradient, NoRowsMakeZeros) {
  LoopEngine engine;
  std::vector<float> gradient(7, 1.0f);
  ASSERT_TRUE(RebuildGradient({2, 2, true}, DType::kF32, {}, 1.0, engine,
                              reinterpret_cast<std::byte*>(gradient.data()))
                  .ok());
  EXPECT_EQ(gradient, (std::vector<float>{0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(engine.products, 0);
}

TEST(RebuildGradient, AnEngineMayFail) {
  FailingEngine engine;
  const Inputs<float> inputs({2, 2, true}, 1);
  std::vector<float> gradient(6);
  EXPECT_EQ(RebuildGradient({2, 2, true}, DType::kF32, inputs.all(), 1.0, engine,
                            reinterpret_cast<std::byte*>(gradient.data()))
                .code(),
            StatusCode::kUnimplemented);
}

TEST(BlasEngine, RefusesHalves) {
  const auto engine = MakeBlasEngine(1);
  EXPECT_EQ(engine->Multiply({.dtype = DType::kF16, .rows = 1}).code(), StatusCode::kUnimplemented);
  EXPECT_THAT(engine->description(), testing::HasSubstr("threads 1"));
}

// The system's BLAS counts in 32 bits; the memory of such a product need not be there to be refused.
TEST(BlasEngine, RefusesWhatItsIntegersDoNotCount) {
  const auto engine = MakeBlasEngine(1);
  constexpr std::uint64_t kTooMany = std::uint64_t{1} << 31;
  for (const ProductEngine::Product& product : {ProductEngine::Product{.rows = kTooMany, .outputs = 1, .inputs = 1},
                                                ProductEngine::Product{.rows = 1, .outputs = kTooMany, .inputs = 1},
                                                ProductEngine::Product{.rows = 1, .outputs = 1, .inputs = kTooMany}}) {
    const Status status = engine->Multiply(product);
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(status.message(), testing::HasSubstr("expected at most 2147483647 of each"));
  }
}

TEST(ProductTest, HashesAreEqualForEqualBitsOnly) {
  const ThreadExecutor clock("clock");
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const plan::FactorShape shape{19, 23, true};
    const auto blas = MakeBlasEngine(1);
    const std::uint64_t hash = TestProduct(shape, dtype, 40, *blas, clock).value().hash;
    EXPECT_EQ(TestProduct(shape, dtype, 40, *MakeBlasEngine(1), clock).value().hash, hash);
    EXPECT_NE(TestProduct(shape, dtype, 41, *blas, clock).value().hash, hash);
    EXPECT_GE(TestProduct(shape, dtype, 40, *blas, clock).value().seconds, 0);

    LoopEngine loops;
    LoopEngine broken;
    broken.FlipOneBit();
    EXPECT_EQ(TestProduct(shape, dtype, 40, loops, clock).value().hash,
              TestProduct(shape, dtype, 40, loops, clock).value().hash);
    EXPECT_NE(TestProduct(shape, dtype, 40, broken, clock).value().hash,
              TestProduct(shape, dtype, 40, loops, clock).value().hash);
  }
}

TEST(ProductTest, AnEnginesFailureIsTold) {
  FailingEngine engine;
  const ThreadExecutor clock("clock");
  EXPECT_EQ(TestProduct({2, 2, true}, DType::kF32, 4, engine, clock).status().code(),
            StatusCode::kUnimplemented);
}

TEST(AllocateAligned, IsAligned) {
  EXPECT_EQ(AllocateAligned(0), nullptr);
  for (const std::size_t bytes : {1u, 63u, 64u, 65u, 1000u}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(AllocateAligned(bytes).get()) % 64, 0u);
  }
}

// A table's rows as ranks bring them: memory of their own, behind a concatenation that points into it.
template <typename T>
struct Brought {
  std::vector<std::int64_t> indices;
  std::vector<T> values;
  Concatenation all(std::vector<WeightedRows> ranks = {}) {
    return {.u = reinterpret_cast<std::byte*>(indices.data()),
            .v = reinterpret_cast<const std::byte*>(values.data()),
            .rows = indices.size(),
            .ranks = std::move(ranks)};
  }
};

template <typename T>
void ExpectRows(const GatheredRows& gathered, const std::vector<std::int64_t>& indices, const std::vector<T>& values) {
  ASSERT_EQ(gathered.rows(), indices.size());
  EXPECT_EQ(std::vector<std::int64_t>(gathered.indices(), gathered.indices() + indices.size()), indices);
  const T* const found = reinterpret_cast<const T*>(gathered.v());
  EXPECT_EQ(std::vector<T>(found, found + values.size()), values);
}

TEST(GatheredRows, KeepTheirOrderAndAreMultipliedByWeightAndAlpha) {
  const plan::FactorShape shape{.outputs = 8, .inputs = 2, .table = true};
  GatheredRows gathered;
  Brought<float> floats{{7, 0, 7}, {1, 2, 3, 4, 5, 6}};
  ASSERT_TRUE(gathered.Take(shape, DType::kF32, floats.all(), 0.5).ok());
  ExpectRows<float>(gathered, {7, 0, 7}, {0.5f, 1, 1.5f, 2, 2.5f, 3});
  const std::uint64_t allocated = gathered.allocated_bytes();
  EXPECT_EQ(allocated, 3u * (8 + 2 * 4));
  ASSERT_TRUE(gathered.Take(shape, DType::kF32, floats.all({{1, 3}, {2, 1}}), 0.25).ok());
  ExpectRows<float>(gathered, {7, 0, 7}, {0.75f, 1.5f, 0.75f, 1, 1.25f, 1.5f});
  ASSERT_TRUE(gathered.Take(shape, DType::kF32, {}, 0.5).ok());
  EXPECT_EQ(gathered.rows(), 0u);
  EXPECT_EQ(gathered.allocated_bytes(), allocated) << "kept for the next step";
  Brought<double> doubles{{3}, {1, 3}};
  GatheredRows wide;
  ASSERT_TRUE(wide.Take(shape, DType::kF64, doubles.all(), 1.0 / 3).ok());
  ExpectRows<double>(wide, {3}, {1.0 / 3, 3 * (1.0 / 3)});
}

// Weighted and scaled in u alone: the product of what is handed out is the mean, and so are the sums of u's columns.
TEST(GatheredRows, OfFactorsAreTheMeansFactors) {
  const plan::FactorShape shape{.outputs = 2, .inputs = 3, .bias = true, .by_device = true};
  std::vector<float> u = {1, 2, 3, 4, 5, 6};
  const std::vector<float> v = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  const auto all = [&](std::vector<WeightedRows> ranks) {
    return Concatenation{.u = reinterpret_cast<std::byte*>(u.data()), .v = reinterpret_cast<const std::byte*>(v.data()), .rows = 3,
                         .ranks = std::move(ranks)};
  };
  GatheredRows gathered;
  const auto floats = [](const std::byte* at, std::size_t count) {
    const auto* const from = reinterpret_cast<const float*>(at);
    return std::vector<float>(from, from + count);
  };
  ASSERT_TRUE(gathered.Take(shape, DType::kF32, all({}), 0.5).ok());
  EXPECT_EQ(gathered.rows(), 3u);
  EXPECT_EQ(floats(gathered.u(), 6), (std::vector<float>{0.5f, 1, 1.5f, 2, 2.5f, 3}));
  EXPECT_EQ(floats(gathered.v(), 9), v);
  EXPECT_EQ(gathered.allocated_bytes(), 3u * (2 + 3) * 4);
  ASSERT_TRUE(gathered.Take(shape, DType::kF32, all({{1, 3}, {2, 1}}), 0.25).ok());
  EXPECT_EQ(floats(gathered.u(), 6), (std::vector<float>{0.75f, 1.5f, 0.75f, 1, 1.25f, 1.5f}));
  EXPECT_EQ(floats(gathered.v(), 9), v);
  ASSERT_TRUE(gathered.Take(shape, DType::kF32, {}, 0.5).ok());
  EXPECT_EQ(gathered.rows(), 0u);
}

TEST(GatheredRows, ARowOfNoEntryIsRefused) {
  const plan::FactorShape shape{.outputs = 8, .inputs = 1, .table = true};
  for (const std::int64_t index : {std::int64_t{-1}, std::int64_t{8}}) {
    GatheredRows gathered;
    Brought<float> brought{{0, index}, {1, 2}};
    const Status refused = gathered.Take(shape, DType::kF32, brought.all(), 1);
    EXPECT_EQ(refused.code(), StatusCode::kDataLoss);
    EXPECT_EQ(refused.message(), "a row came for entry " + std::to_string(index) + ", expected 0 to 7");
    EXPECT_EQ(gathered.rows(), 0u);
  }
}

}  // namespace
}  // namespace poseidon::factors
