// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_SESSION_DECLARATION_H_
#define POSEIDON_SESSION_DECLARATION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "poseidon/base/executor.h"
#include "poseidon/base/result.h"
#include "poseidon/factors/engine.h"
#include "poseidon/factors/rebuild.h"
#include "poseidon/plan/layer.h"
#include "poseidon/wire/messages.h"

namespace poseidon::session {

// Test products that the program made on its device, by the index of the layer, of those layers that say by_device.
using DeviceTests = std::map<std::size_t, factors::ProductTest>;

struct DeclarationOptions {
  ModelId model;
  std::uint16_t workers = 1;
  bool measure_copies = false;  // the rate at which this host copies memory, for workers that combine on it
};

// Makes this worker's declaration of a model: its layers, and of each factor layer a test product's hash and
// rate: that of `by_device` where the layer says so, else one made here. Members whose hashes are equal rebuild equal
// gradients. Without an engine layers have no factors, but for tables. Link and cores are left for the caller.
// Failure: of a product, naming the layer. Takes as long as the products: call it on `clock`, the compute
// executor.
Result<wire::Declare> MakeDeclaration(const DeclarationOptions& options, std::vector<plan::LayerSpec> layers,
                                      const DeviceTests& by_device, factors::ProductEngine* engine, const Executor& clock);

}  // namespace poseidon::session

#endif  // POSEIDON_SESSION_DECLARATION_H_
