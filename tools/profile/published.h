// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_PROFILE_PUBLISHED_H_
#define POSEIDON_TOOLS_PROFILE_PUBLISHED_H_

#include <string>
#include <vector>

namespace poseidon::profile {

// A profile of a model whose times somebody has published, as benchmarks/profiles computes it.
struct Published {
  std::string name;  // "alexnet"
  std::string text;  // for ParseProfile
};

// All of them. Its source is made by benchmarks/profiles/embed.py as the program is built.
const std::vector<Published>& PublishedProfiles();

}  // namespace poseidon::profile

#endif  // POSEIDON_TOOLS_PROFILE_PUBLISHED_H_
