// SPDX-License-Identifier: Apache-2.0
#include "poseidon/place/address.h"

#include <gtest/gtest.h>

#include <string>

namespace poseidon::place {
namespace {

// A machine whose own name, "me", means a loopback address, and which is 10.1.2.3 for others.
Resolver Debian() {
  return {[](const std::string& host) -> Result<std::string> { return host == "me" ? "127.0.1.1" : host; },
          [](const std::string& peer) -> Result<std::string> {
            return peer.starts_with("127.") ? peer : std::string("10.1.2.3");
          },
          "me"};
}

Resolver Offline() {
  Resolver resolver = Debian();
  resolver.own_address_towards = [](const std::string& peer) -> Result<std::string> {
    return Unavailable("rank 0's host " + peer + " cannot be reached");
  };
  return resolver;
}

Place Located(const Resolver& resolver, Place place) {
  const Status located = Locate(resolver, &place);
  EXPECT_TRUE(located.ok()) << located.message();
  return place;
}

TEST(AddressTest, ThatWasGivenIsTaken) {
  for (const char* address : {"127.0.0.1", "127.0.0.2", "10.1.2.3", "::1"}) {
    const Place place = Located(Debian(), {.workers = 2, .local = 1, .coordinator = address, .port = 29500});
    EXPECT_EQ(place.coordinator, address);
    EXPECT_EQ(place.port, 29500);
  }
}

TEST(AddressTest, OfAMachineThatKnowsItselfAsLoopbackIsReachedAllTheSame) {
  for (int rank = 0; rank < 2; ++rank) {
    const Place known{.rank = rank, .workers = 2, .coordinator = "me", .port = 29500};
    Place here = known, apart = known;
    here.local = 2;
    apart.local = 1;
    here = Located(Debian(), here);
    apart = Located(Debian(), apart);
    EXPECT_EQ(here.coordinator + " " + here.listen, "127.0.0.1 127.0.0.1");
    EXPECT_EQ(apart.coordinator + " " + apart.listen, "10.1.2.3 10.1.2.3");
    EXPECT_EQ(Located(Debian(), apart), apart);
  }
}

TEST(AddressTest, WithoutANetworkAllWorkersAreOnThisMachine) {
  const Place place =
      Located(Offline(), {.workers = 2, .local = 1, .coordinator = "me", .port = 29500, .listen = "127.0.0.1"});
  EXPECT_EQ(place.coordinator, "127.0.0.1");
}

TEST(AddressTest, ThatNobodySaysIsLoopbackOnOneHost) {
  EXPECT_EQ(Located(Debian(), {.workers = 2, .local = 2}).coordinator, "127.0.0.1");
  EXPECT_EQ(Located(Debian(), {.workers = 2}).coordinator, "127.0.0.1");
  const Place several = Located(Debian(), {.workers = 2, .local = 1});
  EXPECT_EQ(several.coordinator + several.listen, "");
}

TEST(AddressTest, ThatIsGivenToListenAtStays) {
  const Place place = Located(Debian(), {.workers = 2, .coordinator = "10.0.0.7", .listen = "10.9.9.9"});
  EXPECT_EQ(place.listen, "10.9.9.9");
}

TEST(AddressTest, InTheNetworkIsTheNamesOrOnTheWayToOthers) {
  EXPECT_EQ(*NetworkAddress(Debian()), "10.1.2.3");
  Resolver named = Offline();
  named.address_of = [](const std::string&) -> Result<std::string> { return std::string("10.7.7.7"); };
  EXPECT_EQ(*NetworkAddress(named), "10.7.7.7");
  const auto none = NetworkAddress(Offline());
  EXPECT_EQ(none.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(none.status().message().find("the name of this machine, me,"), std::string::npos) << none.status().message();
}

TEST(AddressTest, OfTheSystem) {
  const Resolver system = SystemResolver();
  EXPECT_NE(system.own_name, "");
  EXPECT_EQ(*system.address_of("localhost"), "127.0.0.1");
  EXPECT_EQ(*system.address_of("192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(*system.address_of("0:0::1"), "::1");
  EXPECT_EQ(*system.own_address_towards("127.0.0.1"), "127.0.0.1");
  const auto none = system.address_of("no..name");
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(none.status().message().find("host no..name has no address: "), 0u) << none.status().message();
  const auto network = NetworkAddress(system);  // machines without a network have none
  EXPECT_TRUE(!network.ok() || !network->starts_with("127."));
}

}  // namespace
}  // namespace poseidon::place
