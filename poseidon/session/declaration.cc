// SPDX-License-Identifier: Apache-2.0
#include "poseidon/session/declaration.h"

#include <algorithm>
#include <string>
#include <utility>

#include "poseidon/base/bytes.h"
#include "poseidon/base/check.h"
#include "poseidon/factors/rebuild.h"

namespace poseidon::session {
namespace {

constexpr std::uint64_t kProductTestRows = 64;

// Bytes per second of a copy that no cache holds, the best of three, while the host's other workers do
// the same; 0 on virtual time.
double CopyRate(const Executor& clock) {
  constexpr std::size_t kBytes = 16u << 20;
  const ByteBuffer from(kBytes, std::byte{1});
  ByteBuffer into(kBytes);
  double rate = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const TimePoint begin = clock.now();
    std::copy(from.begin(), from.end(), into.begin());
    const double seconds = ToSeconds(clock.now() - begin);
    if (seconds > 0) rate = std::max(rate, static_cast<double>(kBytes) / seconds);
  }
  return rate;
}

// Test products of a model. Layers of one shape and dtype share one.
class ProductTests {
 public:
  ProductTests(std::uint64_t rows, factors::ProductEngine& engine, const Executor& clock)
      : rows_(rows), engine_(engine), clock_(clock) {}

  // The hash of this layer's product.
  Result<std::uint64_t> HashOf(const plan::LayerSpec& layer) {
    const auto known = std::find_if(tested_.begin(), tested_.end(), [&](const Tested& one) {
      return one.shape == *layer.factors && one.dtype == layer.dtype;
    });
    if (known != tested_.end()) return known->hash;
    Result<factors::ProductTest> test =
        factors::TestProduct(*layer.factors, layer.dtype, rows_, engine_, clock_);
    if (!test.ok()) return test.status().WithPrefix("layer '" + layer.name + "'");
    tested_.push_back({*layer.factors, layer.dtype, test->hash});
    Add(*test);
    return test->hash;
  }
  // One that was made elsewhere.
  void Add(const factors::ProductTest& test) {
    if (test.flops <= most_flops_) return;
    most_flops_ = test.flops;
    rate_ = test.rate();
  }
  // Of the largest product, the one that matters; 0 where there was none.
  double rate() const { return rate_; }

 private:
  struct Tested {
    plan::FactorShape shape;
    DType dtype;
    std::uint64_t hash;
  };
  const std::uint64_t rows_;
  factors::ProductEngine& engine_;
  const Executor& clock_;
  std::vector<Tested> tested_;
  double most_flops_ = 0;
  double rate_ = 0;
};

}  // namespace

Result<wire::Declare> MakeDeclaration(const DeclarationOptions& options, std::vector<plan::LayerSpec> layers,
                                      const DeviceTests& by_device, factors::ProductEngine* engine, const Executor& clock) {
  POSEIDON_ASSERT_ON(clock);
  wire::Declare declare;
  declare.model = options.model;
  declare.product_hashes.assign(layers.size(), 0);
  if (engine == nullptr) {
    for (plan::LayerSpec& layer : layers) {
      // Nobody here could multiply. Without factors the plan cannot choose them.
      if (!layer.is_table()) layer.factors.reset();
    }
  } else if (options.workers > 1) {
    // Alone a worker has nobody to compare bits with. As in training the product is over the rows of all ranks, so its
    // size grows with the workers.
    ProductTests tests(kProductTestRows * options.workers, *engine, clock);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      // A table's rows are copied and not multiplied (docs/decisions/table-rows.md).
      if (!layers[i].factors || layers[i].is_table()) continue;
      if (layers[i].is_multiplied_by_device()) {
        declare.product_hashes[i] = by_device.at(i).hash;
        tests.Add(by_device.at(i));
        continue;
      }
      POSEIDON_ASSIGN_OR_RETURN(declare.product_hashes[i], tests.HashOf(layers[i]));
    }
    declare.rebuild_flops = tests.rate();
  }
  if (options.measure_copies) declare.copy_bytes_per_second = CopyRate(clock);
  declare.layers = std::move(layers);
  declare.engine = engine != nullptr ? engine->description() : "";
  return declare;
}

}  // namespace poseidon::session
