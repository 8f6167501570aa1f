// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/published.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tools/profile/profile.h"

namespace poseidon::profile {
namespace {

TEST(PublishedProfiles, AreProfilesOfTheirNames) {
  std::set<std::string> names;
  for (const Published& published : PublishedProfiles()) {
    const Result<Profile> profile = ParseProfile(published.text, published.name);
    ASSERT_TRUE(profile.ok()) << profile.status().message();
    EXPECT_EQ(profile->name, published.name);
    EXPECT_GT(profile->step_seconds(), 0);
    names.insert(published.name);
  }
  EXPECT_EQ(names.size(), PublishedProfiles().size());
  for (const char* known : {"alexnet", "vgg19-22k", "resnet-152", "bert-base"}) EXPECT_TRUE(names.contains(known)) << known;
}

}  // namespace
}  // namespace poseidon::profile
