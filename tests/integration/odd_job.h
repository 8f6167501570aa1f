// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TESTS_INTEGRATION_ODD_JOB_H_
#define POSEIDON_TESTS_INTEGRATION_ODD_JOB_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tests/integration/job.h"

// Shared by the suites over whole jobs: the same sizes, in the same worlds.
namespace poseidon::integration {

struct WorldCase {
  const char* name;
  std::unique_ptr<World> (*make)();
  friend std::ostream& operator<<(std::ostream& out, const WorldCase& c) { return out << c.name; }
};

// Virtual time at 1 Gbit/s, with delays and cuts drawn from the seed.
std::unique_ptr<World> MakeVirtualWorld();

extern const WorldCase kInproc;
extern const WorldCase kTls;
extern const WorldCase kPlain;
extern const WorldCase kVirtual;

std::string NameOfWorld(const ::testing::TestParamInfo<WorldCase>& info);

// Sizes that divide nothing, numbers of both widths, with and without factors.
std::vector<plan::LayerSpec> OddLayers();
// A job of these, in small chunks of odd sizes, without measuring the link.
JobOptions OddJob(std::uint16_t workers, std::uint16_t servers);

}  // namespace poseidon::integration

#endif  // POSEIDON_TESTS_INTEGRATION_ODD_JOB_H_
