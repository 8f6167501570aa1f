// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/gradients.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "poseidon/base/check.h"
#include "poseidon/base/random.h"

namespace poseidon::integration {
namespace {

enum What : std::uint64_t { kAbsent, kWeight, kRows, kDense, kU, kV };

// Numbers in [-1, 1), full of roundings when added.
template <typename T>
void FillRandom(std::uint64_t seed, std::uint64_t count, std::byte* out) {
  T* const numbers = reinterpret_cast<T*>(out);
  Random random(seed);
  for (std::uint64_t i = 0; i < count; ++i) {
    numbers[i] = static_cast<T>(static_cast<double>(random() >> 11) * 0x1p-52 - 1.0);
  }
}

template <typename T>
void FillZeros(std::uint64_t seed, double share, std::uint64_t count, std::byte* out) {
  T* const numbers = reinterpret_cast<T*>(out);
  Random random(Mix64(seed));
  for (std::uint64_t i = 0; i < count; ++i) {
    if (random.Chance(share)) numbers[i] = random.Chance(0.1) ? -T{0} : T{0};
  }
}

template <typename T>
void FillWith(double value, std::uint64_t count, std::byte* out) {
  std::fill_n(reinterpret_cast<T*>(out), count, static_cast<T>(value));
}

double NumberAt(DType dtype, const std::byte* memory, std::uint64_t i) {
  if (dtype == DType::kF64) return reinterpret_cast<const double*>(memory)[i];
  return static_cast<double>(reinterpret_cast<const float*>(memory)[i]);
}

double StepFactor(Step step) { return static_cast<double>(1 + step.value() % 3); }

}  // namespace

Gradients::Gradients(const GradientOptions& options, std::vector<plan::LayerSpec> layers)
    : options_(options), layers_(std::move(layers)) {}

std::uint64_t Gradients::Draw(Rank rank, LayerId layer, Step step, std::uint64_t what) const {
  std::uint64_t x = Mix64(options_.seed ^ what);
  x = Mix64(x ^ rank.value());
  x = Mix64(x ^ layer.value());
  return Mix64(x ^ step.value());
}

bool Gradients::Absent(Rank rank, LayerId layer, Step step) const {
  return Random(Draw(rank, layer, step, kAbsent)).Chance(options_.absent);
}

std::uint32_t Gradients::Weight(Rank rank, LayerId layer, Step step) const {
  if (!options_.weighted || Absent(rank, layer, step)) return 0;
  const std::uint64_t drawn = Draw(rank, layer, step, kWeight);
  return drawn % 8 == 0 ? 0 : 1 + static_cast<std::uint32_t>(drawn / 8 % 64);
}

std::uint64_t Gradients::Weights(LayerId layer, Step step) const {
  std::uint64_t weights = 0;
  for (std::uint16_t r = 0; r < options_.ranks; ++r) weights += Weight(Rank(r), layer, step);
  return weights;
}

bool Gradients::Counts(Rank rank, LayerId layer, Step step, std::uint64_t weights) const {
  return !Absent(rank, layer, step) && (weights == 0 || Weight(rank, layer, step) != 0);
}

std::uint32_t Gradients::Rows(Rank rank, LayerId layer, Step step) const {
  if (Absent(rank, layer, step)) return 0;
  const std::uint64_t counts = options_.max_rows - options_.min_rows + 1;
  return options_.min_rows + static_cast<std::uint32_t>(Draw(rank, layer, step, kRows) % counts);
}

std::uint32_t Gradients::RowsSent(Rank rank, LayerId layer, Step step) const {
  if (layers_[layer.value()].is_table()) return Rows(rank, layer, step);
  std::uint64_t weights = 0;
  for (std::uint16_t r = 0; !options_.factors_are_flat && r < options_.host_of_rank.size(); ++r) {
    if (options_.host_of_rank[r] == options_.host_of_rank[rank.value()]) weights += Weight(Rank(r), layer, step);
  }
  return Counts(rank, layer, step, weights) ? Rows(rank, layer, step) : 0;
}

void Gradients::FillDense(Rank rank, LayerId layer, Step step, std::byte* out) const {
  const plan::LayerSpec& spec = layers_[layer.value()];
  const std::uint64_t seed = Draw(rank, layer, step, kDense);
  const double power = std::ldexp(StepFactor(step), rank.value());
  if (spec.dtype == DType::kF64) {
    options_.powers_of_two ? FillWith<double>(power, spec.elements, out)
                           : FillRandom<double>(seed, spec.elements, out);
  } else {
    options_.powers_of_two ? FillWith<float>(power, spec.elements, out)
                           : FillRandom<float>(seed, spec.elements, out);
  }
}

// Powers of two: the first row makes 2^r everywhere, the others make nothing.
void Gradients::FillFactors(Rank rank, LayerId layer, Step step, std::byte* u, std::byte* v) const {
  const plan::LayerSpec& spec = layers_[layer.value()];
  const std::uint64_t rows = Rows(rank, layer, step);
  if (rows == 0) return;
  const std::uint64_t m = spec.factors->outputs;
  const std::uint64_t n = spec.factors->inputs;
  const bool f64 = spec.dtype == DType::kF64;
  if (spec.is_table()) {  // few entries, so that some come several times
    Random random(Draw(rank, layer, step, kU));
    for (std::uint64_t i = 0; i < rows; ++i) reinterpret_cast<std::int64_t*>(u)[i] = static_cast<std::int64_t>(random.Below(m));
    const std::uint64_t seed = Draw(rank, layer, step, kV);
    f64 ? FillRandom<double>(seed, rows * n, v) : FillRandom<float>(seed, rows * n, v);
    return;
  }
  if (!options_.powers_of_two) {
    const std::uint64_t seed_u = Draw(rank, layer, step, kU);
    const std::uint64_t seed_v = Draw(rank, layer, step, kV);
    f64 ? FillRandom<double>(seed_u, rows * m, u) : FillRandom<float>(seed_u, rows * m, u);
    f64 ? FillRandom<double>(seed_v, rows * n, v) : FillRandom<float>(seed_v, rows * n, v);
    if (options_.zeros > 0) {
      f64 ? FillZeros<double>(seed_u, options_.zeros, rows * m, u)
          : FillZeros<float>(seed_u, options_.zeros, rows * m, u);
      f64 ? FillZeros<double>(seed_v, options_.zeros, rows * n, v)
          : FillZeros<float>(seed_v, options_.zeros, rows * n, v);
    }
    return;
  }
  const double power = std::ldexp(StepFactor(step), rank.value());
  const std::size_t size = SizeOf(spec.dtype);
  std::memset(u, 0, rows * m * size);
  std::memset(v, 0, rows * n * size);
  f64 ? FillWith<double>(power, m, u) : FillWith<float>(power, m, u);
  f64 ? FillWith<double>(1, n, v) : FillWith<float>(1, n, v);
}

const ByteBuffer& Gradients::Mean(LayerId layer, Step step, plan::Scheme scheme,
                                  factors::ProductEngine& engine) {
  std::lock_guard lock(mutex_);
  const auto key = std::tuple(layer, step, scheme);
  if (const auto found = means_.find(key); found != means_.end()) return found->second;
  // Ranks are at most one step apart, so that older means are of no use any more.
  if (step.value() >= 3) {
    std::erase_if(means_, [&](const auto& mean) {
      return std::get<LayerId>(mean.first) == layer && std::get<Step>(mean.first) == Step(step.value() - 3);
    });
  }
  const plan::LayerSpec& spec = layers_[layer.value()];
  if (spec.is_table()) return means_[key] = RowsOf(layer, step);
  if (!plan::TakesFactors(scheme)) return means_[key] = SumOf(layer, step);
  const std::uint16_t shards = scheme == plan::Scheme::kFactorScatter ? options_.shards : std::uint16_t{1};
  return means_[key] = ProductsOf(layer, step, plan::DivideUnits(*spec.factors, shards), engine);
}

std::vector<std::vector<std::uint16_t>> Gradients::Hosts() const {
  std::vector<std::vector<std::uint16_t>> hosts;
  for (std::uint16_t r = 0; r < options_.ranks; ++r) {
    const std::size_t host = options_.host_of_rank.empty() ? r : options_.host_of_rank[r];
    if (host == hosts.size()) hosts.emplace_back();
    hosts[host].push_back(r);
  }
  return hosts;
}

// With plain loops, to be compared with what the product's own sums make.
template <typename T>
void Gradients::SumByHand(LayerId layer, Step step, T* mean) const {
  const std::uint64_t n = layers_[layer.value()].elements;
  const std::uint64_t weights = Weights(layer, step);
  bool any = false;
  std::fill_n(mean, n, T{0});
  for (const std::vector<std::uint16_t>& host : Hosts()) {
    std::vector<T> sum;
    for (const std::uint16_t r : host) {
      if (!Counts(Rank(r), layer, step, weights)) continue;
      const std::uint32_t weight = Weight(Rank(r), layer, step);
      std::vector<T> own(n);
      FillDense(Rank(r), layer, step, reinterpret_cast<std::byte*>(own.data()));
      const bool first = sum.empty();
      sum.resize(n);
      for (std::uint64_t i = 0; i < n; ++i) {
        const T number = weight == 0 ? own[i] : own[i] * static_cast<T>(weight);
        sum[i] = first ? number : sum[i] + number;
      }
    }
    if (sum.empty()) continue;
    for (std::uint64_t i = 0; i < n; ++i) mean[i] = any ? mean[i] + sum[i] : sum[i];
    any = true;
  }
  const T divisor = weights == 0 ? static_cast<T>(options_.ranks) : static_cast<T>(weights);
  if (divisor == T{1}) return;
  for (std::uint64_t i = 0; i < n; ++i) mean[i] = mean[i] * (T{1} / divisor);
}

ByteBuffer Gradients::SumOf(LayerId layer, Step step) const {
  const plan::LayerSpec& spec = layers_[layer.value()];
  ByteBuffer mean(spec.bytes());
  if (spec.dtype == DType::kF64) {
    SumByHand(layer, step, reinterpret_cast<double*>(mean.data()));
  } else {
    SumByHand(layer, step, reinterpret_cast<float*>(mean.data()));
  }
  return mean;
}

ByteBuffer Gradients::ProductsOf(LayerId layer, Step step, std::span<const plan::UnitRange> parts,
                                 factors::ProductEngine& engine) const {
  const plan::LayerSpec& spec = layers_[layer.value()];
  const std::uint64_t m = spec.factors->outputs;
  const std::uint64_t n = spec.factors->inputs;
  const std::size_t size = SizeOf(spec.dtype);
  std::uint64_t rows = 0;
  for (std::uint16_t r = 0; r < options_.ranks; ++r) rows += Rows(Rank(r), layer, step);
  const std::uint64_t weights = Weights(layer, step);
  ByteBuffer mean(spec.bytes(), std::byte{0});
  if (rows == 0) return mean;
  const factors::AlignedBytes u = factors::AllocateAligned(rows * m * size);
  const factors::AlignedBytes v = factors::AllocateAligned(rows * n * size);
  std::uint64_t at = 0;
  for (const std::vector<std::uint16_t>& host : Hosts()) {
    for (const std::uint16_t r : host) {
      if (!Counts(Rank(r), layer, step, weights)) continue;
      std::byte* const own = u.get() + at * m * size;
      const std::uint64_t count = Rows(Rank(r), layer, step);
      FillFactors(Rank(r), layer, step, own, v.get() + at * n * size);
      at += count;
      const auto multiply = [&]<typename T>(T weight) {
        for (std::uint64_t i = 0; i < count * m; ++i) reinterpret_cast<T*>(own)[i] *= weight;
      };
      const std::uint32_t weight = Weight(Rank(r), layer, step);
      if (weight == 0) continue;
      spec.dtype == DType::kF64 ? multiply(static_cast<double>(weight)) : multiply(static_cast<float>(weight));
    }
  }
  if (at == 0) return mean;
  const double alpha = 1.0 / static_cast<double>(weights == 0 ? options_.ranks : weights);
  for (const plan::UnitRange& part : parts) {
    const factors::AlignedBytes columns = factors::AllocateAligned(at * part.count * size);
    for (std::uint64_t k = 0; k < at; ++k) {
      std::memcpy(columns.get() + k * part.count * size, u.get() + (k * m + part.first) * size, part.count * size);
    }
    const Status status = engine.Multiply({.dtype = spec.dtype,
                                           .u = columns.get(),
                                           .v = v.get(),
                                           .rows = at,
                                           .outputs = part.count,
                                           .inputs = n,
                                           .alpha = alpha,
                                           .out = mean.data() + part.first * n * size});
    POSEIDON_CHECK(status.ok(), "the engine multiplies");
  }
  if (!spec.factors->bias) return mean;
  const auto bias = [&]<typename T>(T) {
    T* const out = reinterpret_cast<T*>(mean.data()) + m * n;
    const T* const all = reinterpret_cast<const T*>(u.get());
    for (std::uint64_t i = 0; i < m; ++i) {
      T sum = 0;
      for (std::uint64_t k = 0; k < at; ++k) sum += all[k * m + i];
      out[i] = sum * static_cast<T>(alpha);
    }
  };
  spec.dtype == DType::kF64 ? bias(double{}) : bias(float{});
  return mean;
}

ByteBuffer Gradients::RowsOf(LayerId layer, Step step) const {
  const plan::LayerSpec& spec = layers_[layer.value()];
  const std::uint64_t weights = Weights(layer, step);
  ByteBuffer indices;
  ByteBuffer values;
  for (std::uint16_t r = 0; r < options_.ranks; ++r) {
    if (!Counts(Rank(r), layer, step, weights)) continue;
    const std::uint64_t rows = Rows(Rank(r), layer, step);
    ByteBuffer u(rows * spec.factors->u_bytes_per_row(spec.dtype));
    ByteBuffer v(rows * spec.factors->v_bytes_per_row(spec.dtype));
    FillFactors(Rank(r), layer, step, u.data(), v.data());
    const auto scale = [&]<typename T>(T weight) {
      const T part = T{1} / static_cast<T>(weights == 0 ? options_.ranks : weights);
      for (std::uint64_t i = 0; i < rows * spec.factors->inputs; ++i) {
        T& number = reinterpret_cast<T*>(v.data())[i];
        number = number * (weights == 0 ? T{1} : weight) * part;
      }
    };
    const std::uint32_t weight = Weight(Rank(r), layer, step);
    spec.dtype == DType::kF64 ? scale(static_cast<double>(weight)) : scale(static_cast<float>(weight));
    indices.insert(indices.end(), u.begin(), u.end());
    values.insert(values.end(), v.begin(), v.end());
  }
  indices.insert(indices.end(), values.begin(), values.end());
  return indices;
}

std::string Gradients::Explain(LayerId layer, Step step, ConstBytes result) const {
  const plan::LayerSpec& spec = layers_[layer.value()];
  if (!options_.powers_of_two || spec.is_table()) return "";
  const double sum = NumberAt(spec.dtype, result.data(), 0) * options_.ranks / StepFactor(step);
  return "; the sum of the ranks' 2^rank is " + std::to_string(sum);
}

}  // namespace poseidon::integration
