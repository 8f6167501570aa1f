// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_PROFILE_PROFILE_H_
#define POSEIDON_TOOLS_PROFILE_PROFILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "poseidon/base/result.h"
#include "poseidon/plan/cluster.h"
#include "poseidon/plan/layer.h"

// One worker's training step as a JSON file: the format is described in
// benchmarks/profiles/README.md.
namespace poseidon::profile {

struct Tensor {
  std::string name;
  std::vector<std::uint64_t> shape;

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

struct Layer {
  plan::LayerSpec spec;         // forward_position is its place in the profile
  std::vector<Tensor> tensors;  // that make up the flat gradient
  double forward_seconds = 0;   // with the update
  double backward_seconds = 0;  // with the product that makes the weight gradient
  std::uint32_t rows = 0;       // of the factors, per worker and step; 0 where there are none
  double forward_flops = 0;     // of one sample; 0: unknown

  friend bool operator==(const Layer&, const Layer&) = default;
};

struct Profile {
  std::string name;
  std::string source;  // of the times
  std::uint32_t batch = 1;
  double product_flops = 0;  // at which factors are multiplied; 0: unknown
  // As in plan::ClusterSpec; of a worker that computes on cores.
  double cpu_seconds_per_wire_byte = 0;
  double cores_per_worker = 1;
  std::uint32_t compute_threads = 1;
  std::vector<Layer> layers;  // in forward order

  std::uint64_t elements() const;
  std::size_t tensor_count() const;
  double step_seconds() const;  // forward and backward of all layers

  friend bool operator==(const Profile&, const Profile&) = default;
};

// kInvalidArgument in one sentence naming `origin`, the layer and the field: "profile vgg.json,
// layer 'fc6': field rows is missing, expected an integer from 1 to 4294967295".
Result<Profile> ParseProfile(const std::string& text, const std::string& origin);
// Reads the file, or standard input where `path` is "-"; kNotFound where it cannot be read.
Result<Profile> ReadProfile(const std::string& path);

// Writes a layer a line; ParseProfile of the text is the same profile.
std::string TextOf(const Profile& profile);

// The planner's arguments, with `workers` equal workers.
std::vector<plan::LayerSpec> LayersOf(const Profile& profile);
std::vector<plan::LayerMeasurement> MeasurementsOf(const Profile& profile, std::uint32_t workers);
// Returns the machines of the profile; all other fields have their defaults.
plan::ClusterSpec ClusterOf(const Profile& profile);

}  // namespace poseidon::profile

#endif  // POSEIDON_TOOLS_PROFILE_PROFILE_H_
