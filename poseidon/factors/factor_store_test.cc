// SPDX-License-Identifier: Apache-2.0
#include "poseidon/factors/factor_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "poseidon/base/random.h"

namespace poseidon::factors {
namespace {

using ::testing::HasSubstr;

constexpr plan::FactorShape kShape{3, 5, true};
constexpr std::uint64_t kUWidth = 3 * sizeof(float);
constexpr std::uint64_t kVWidth = 5 * sizeof(float);

// One rank's rows, recognisable.
struct Rows {
  std::vector<float> u;
  std::vector<float> v;
  std::uint32_t count = 0;
  std::uint32_t weight = 0;

  Factors factors() const {
    return {reinterpret_cast<const std::byte*>(u.data()),
            reinterpret_cast<const std::byte*>(v.data()), count};
  }
};

Rows MakeRows(Random& random, std::uint32_t count) {
  Rows rows{std::vector<float>(count * 3u), std::vector<float>(count * 5u), count, 0};
  for (float& x : rows.u) x = static_cast<float>(random.Unit());
  for (float& x : rows.v) x = static_cast<float>(random.Unit());
  return rows;
}

ByteBuffer Compressed(ConstBytes bytes) {
  ByteBuffer out(MostCompressedBytes(bytes.size()));
  out.resize(Compress(bytes, out).value());
  return out;
}

// A remote rank's rows, compressed, in pieces of at most `piece` bytes.
Status DeliverCompressed(FactorStore& store, Rank rank, Step step, const Rows& rows, std::uint64_t piece) {
  for (const Part part : {Part::kV, Part::kU}) {
    const ByteBuffer bytes = Compressed(std::as_bytes(std::span(part == Part::kU ? rows.u : rows.v)));
    for (std::uint64_t at = 0; at < bytes.size(); at += piece) {
      const std::uint64_t length = std::min<std::uint64_t>(piece, bytes.size() - at);
      POSEIDON_RETURN_IF_ERROR(store.Expand(rank, step, part, {rows.count, rows.weight},
                                            {bytes.size(), at, ConstBytes(bytes).subspan(at, length)}));
    }
  }
  return OkStatus();
}

// A remote rank's rows in pieces of at most `piece` bytes; empty factors are a frame without bytes.
Status Deliver(FactorStore& store, Rank rank, Step step, const Rows& rows, std::uint64_t piece) {
  for (const Part part : {Part::kV, Part::kU}) {
    const auto* bytes =
        reinterpret_cast<const std::byte*>(part == Part::kU ? rows.u.data() : rows.v.data());
    const std::uint64_t whole = rows.count * (part == Part::kU ? kUWidth : kVWidth);
    if (whole == 0) POSEIDON_RETURN_IF_ERROR(store.Landed(rank, step, part, {0, rows.weight}, 0));
    for (std::uint64_t at = 0; at < whole; at += piece) {
      const std::uint64_t length = std::min(piece, whole - at);
      POSEIDON_ASSIGN_OR_RETURN(MutableBytes place,
                                store.PlaceFor(rank, step, part, {rows.count, rows.weight}, at, length));
      EXPECT_EQ(place.size(), length);
      std::memcpy(place.data(), bytes + at, length);
      POSEIDON_RETURN_IF_ERROR(store.Landed(rank, step, part, {rows.count, rows.weight}, length));
    }
  }
  return OkStatus();
}

// What a concatenation must hold: the ranks' rows in rank order, on aligned memory, without those of no weight beside
// weights.
void ExpectConcatenation(FactorStore& store, Step step, const std::vector<Rows>& all) {
  std::vector<float> u;
  std::vector<float> v;
  std::vector<WeightedRows> brought;
  std::vector<WeightedRows> counted;
  std::uint64_t weight = 0;
  for (const Rows& rows : all) weight += rows.weight;
  for (const Rows& rows : all) {
    brought.push_back({rows.count, rows.weight});
    if (weight != 0 && rows.weight == 0) continue;
    if (weight != 0 && rows.count != 0) counted.push_back(brought.back());
    u.insert(u.end(), rows.u.begin(), rows.u.end());
    v.insert(v.end(), rows.v.begin(), rows.v.end());
  }
  ASSERT_TRUE(store.Complete(step));
  EXPECT_EQ(store.BroughtTo(step), brought);
  const Concatenation found = store.Concatenate(step).value();
  EXPECT_EQ(found.ranks, counted);
  EXPECT_EQ(found.weight, weight);
  ASSERT_EQ(found.rows, u.size() / 3);
  if (found.rows == 0) return;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(found.u) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(found.v) % 64, 0u);
  EXPECT_EQ(std::memcmp(found.u, u.data(), u.size() * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(found.v, v.data(), v.size() * sizeof(float)), 0);
}

TEST(FactorStore, TheUsualCaseLandsInTheConcatenationItself) {
  Random random(1);
  FactorStore store(kShape, DType::kF32, 3);
  for (std::uint16_t r = 0; r < 3; ++r) store.Expect(Rank(r), 4);
  std::vector<Rows> all;
  all.reserve(3);
  for (int r = 0; r < 3; ++r) all.push_back(MakeRows(random, 4));
  ASSERT_TRUE(store.Put(Rank(1), Step(0), all[1].factors()).ok());
  EXPECT_FALSE(store.Complete(Step(0)));
  std::byte* const place = store.PlaceFor(Rank(2), Step(0), Part::kU, {4}, 0, 1).value().data();
  ASSERT_TRUE(Deliver(store, Rank(2), Step(0), all[2], 7).ok());
  ASSERT_TRUE(Deliver(store, Rank(0), Step(0), all[0], 1000).ok());
  ExpectConcatenation(store, Step(0), all);
  EXPECT_EQ(store.Concatenate(Step(0)).value().u + 8 * kUWidth, place) << "no copy was made";
}

// Rows that change from step to step, 0 among them, more than there was room for and fewer, and weights that come and
// go: always the same concatenation as without any history.
TEST(FactorStore, RowsAndWeightsMayChangeFromStepToStep) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const auto ranks = static_cast<std::uint16_t>(1 + random.Below(5));
    const Rank self(static_cast<std::uint16_t>(random.Below(ranks)));
    FactorStore store(kShape, DType::kF32, ranks);
    if (random.Chance(0.5)) {
      for (std::uint16_t r = 0; r < ranks; ++r) {
        store.Expect(Rank(r), static_cast<std::uint32_t>(random.Below(8)));
      }
    }
    for (std::uint64_t step = 0; step < 8; ++step) {
      std::vector<Rows> all;
      std::vector<std::uint16_t> order;
      const bool weighted = random.Chance(0.5);
      for (std::uint16_t r = 0; r < ranks; ++r) {
        const std::uint64_t count = random.Chance(0.3) ? 0 : random.Below(9);
        all.push_back(MakeRows(random, static_cast<std::uint32_t>(count)));
        if (weighted) all.back().weight = static_cast<std::uint32_t>(random.Below(4));
        order.insert(order.begin() + static_cast<int>(random.Below(order.size() + 1)), r);
      }
      for (const std::uint16_t r : order) {
        EXPECT_FALSE(store.Complete(Step(step)));
        const Status status =
            Rank(r) == self ? store.Put(self, Step(step), all[r].factors(), all[r].weight)
                            : Deliver(store, Rank(r), Step(step), all[r], 1 + random.Below(40));
        ASSERT_TRUE(status.ok()) << status.ToString();
      }
      ExpectConcatenation(store, Step(step), all);
      store.Release(Step(step));
    }
  }
}

// What a member says of its rows is a hint, and may be nonsense.
TEST(FactorStore, AnExpectationThatNoStepCanMeetIsIgnored) {
  constexpr plan::FactorShape kWide{1 << 20, 1 << 20, false};
  FactorStore store(kWide, DType::kF32, 2);
  store.Expect(Rank(0), 0xffff'ffffu);
  const std::vector<float> row(1 << 20, 1.0f);
  const Factors one{reinterpret_cast<const std::byte*>(row.data()),
                    reinterpret_cast<const std::byte*>(row.data()), 1};
  ASSERT_TRUE(store.Put(Rank(0), Step(0), one).ok());
  const auto place = store.PlaceFor(Rank(1), Step(0), Part::kV, {1}, 0, 4 << 20);
  ASSERT_TRUE(place.ok()) << place.status().ToString();
  std::memset(place->data(), 0, place->size());
}

// Memory for u and none for v: the step fails, and the next frame finds no place instead of one in nothing.
TEST(FactorStore, ASetThatWasNotLaidOutHasNoPlaces) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers end the process where there is no memory";
#endif
  constexpr std::uint16_t kRanks = 20'000;  // of 16 GiB each: no address space has them
  constexpr plan::FactorShape kLopsided{1, 1 << 20, false};
  FactorStore store(kLopsided, DType::kF32, kRanks);
  for (std::uint16_t r = 0; r < kRanks; ++r) store.Expect(Rank(r), 4096);
  const std::vector<float> row(1 << 20, 1.0f);
  const Factors one{reinterpret_cast<const std::byte*>(row.data()),
                    reinterpret_cast<const std::byte*>(row.data()), 1};
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(store.Put(Rank(0), Step(0), one).code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(store.PlaceFor(Rank(1), Step(0), Part::kV, {1}, 0, 4 << 20).status().code(),
              StatusCode::kResourceExhausted);
  }
}

// A rank that is ahead sends its next rows while this member still multiplies the last ones.
TEST(FactorStore, TheNextStepDoesNotDisturbTheOneUnderWay) {
  Random random(2);
  FactorStore store(kShape, DType::kF32, 2);
  std::vector<Rows> now = {MakeRows(random, 2), MakeRows(random, 3)};
  std::vector<Rows> next = {MakeRows(random, 6), MakeRows(random, 1)};
  ASSERT_TRUE(store.Put(Rank(0), Step(10), now[0].factors()).ok());
  ASSERT_TRUE(Deliver(store, Rank(1), Step(10), now[1], 100).ok());
  const Concatenation under_way = store.Concatenate(Step(10)).value();
  ASSERT_TRUE(Deliver(store, Rank(1), Step(11), next[1], 100).ok());
  EXPECT_FALSE(store.Complete(Step(11)));
  ExpectConcatenation(store, Step(10), now);
  EXPECT_EQ(std::memcmp(under_way.u, now[0].u.data(), now[0].u.size() * sizeof(float)), 0);
  store.Release(Step(10));
  ASSERT_TRUE(store.Put(Rank(0), Step(11), next[0].factors()).ok());
  ExpectConcatenation(store, Step(11), next);
}

// A layer need not take part in every step: its sets follow its own steps, not their parity.
TEST(FactorStore, StepsMayBeLeftOut) {
  Random random(3);
  FactorStore store(kShape, DType::kF32, 2);
  std::vector<Rows> now = {MakeRows(random, 2), MakeRows(random, 3)};
  std::vector<Rows> next = {MakeRows(random, 2), MakeRows(random, 3)};
  ASSERT_TRUE(store.Put(Rank(0), Step(10), now[0].factors()).ok());
  ASSERT_TRUE(Deliver(store, Rank(1), Step(10), now[1], 100).ok());
  ASSERT_TRUE(Deliver(store, Rank(1), Step(12), next[1], 100).ok());
  ExpectConcatenation(store, Step(10), now);
  store.Release(Step(10));
  ASSERT_TRUE(store.Put(Rank(0), Step(12), next[0].factors()).ok());
  ExpectConcatenation(store, Step(12), next);
}

TEST(FactorStore, MemoryIsReusedWhereRowsStayTheSame) {
  Random random(4);
  FactorStore store(kShape, DType::kF32, 2);
  std::uint64_t allocated = 0;
  for (std::uint64_t step = 0; step < 10; ++step) {
    std::vector<Rows> all = {MakeRows(random, 4), MakeRows(random, 4)};
    ASSERT_TRUE(store.Put(Rank(0), Step(step), all[0].factors()).ok());
    ASSERT_TRUE(Deliver(store, Rank(1), Step(step), all[1], 100).ok());
    ExpectConcatenation(store, Step(step), all);
    store.Release(Step(step));
    if (step > 1) {
      EXPECT_EQ(store.allocated_bytes(), allocated);
    }
    allocated = store.allocated_bytes();
  }
  EXPECT_EQ(allocated, 8 * (kUWidth + kVWidth)) << "one set of eight rows, as nobody was ahead";
}

TEST(FactorStore, DoublesHaveTheirOwnWidth) {
  FactorStore store({2, 1, false}, DType::kF64, 1);
  const std::vector<double> u = {1, 2, 3, 4};
  const std::vector<double> v = {5, 6};
  ASSERT_TRUE(store
                  .Put(Rank(0), Step(0),
                       {reinterpret_cast<const std::byte*>(u.data()),
                        reinterpret_cast<const std::byte*>(v.data()), 2})
                  .ok());
  const Concatenation all = store.Concatenate(Step(0)).value();
  EXPECT_EQ(std::memcmp(all.u, u.data(), 32), 0);
  EXPECT_EQ(std::memcmp(all.v, v.data(), 16), 0);
}

// ---- what a broken or hostile peer might send

class FactorRefusals : public testing::Test {
 protected:
  void Refused(const Status& status, const char* complaint) {
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr(complaint));
  }
  FactorStore store_{kShape, DType::kF32, 2};
};

TEST_F(FactorRefusals, GapsOverlapsAndOverlongParts) {
  ASSERT_TRUE(store_.PlaceFor(Rank(1), Step(0), Part::kU, {2}, 0, 10).ok());
  ASSERT_TRUE(store_.Landed(Rank(1), Step(0), Part::kU, {2}, 10).ok());
  for (const std::uint64_t offset : {0u, 9u, 11u, 24u, 1000u}) {
    Refused(store_.PlaceFor(Rank(1), Step(0), Part::kU, {2}, offset, 1).status(), "byte 10");
  }
  Refused(store_.PlaceFor(Rank(1), Step(0), Part::kU, {2}, 10, 15).status(), "byte 10");
  Refused(store_.PlaceFor(Rank(1), Step(0), Part::kV, {2}, 0, 41).status(), "byte 0");
  Refused(store_.PlaceFor(Rank(1), Step(0), Part::kU, {2}, ~std::uint64_t{0}, 1).status(), "byte");
  EXPECT_TRUE(store_.PlaceFor(Rank(1), Step(0), Part::kU, {2}, 10, 14).ok());
}

TEST_F(FactorRefusals, RowsOrWeightsThatChangeWithinAStep) {
  ASSERT_TRUE(store_.PlaceFor(Rank(1), Step(0), Part::kU, {2}, 0, 1).ok());
  Refused(store_.PlaceFor(Rank(1), Step(0), Part::kV, {3}, 0, 1).status(), "changed its rows");
  Refused(store_.PlaceFor(Rank(1), Step(0), Part::kV, {2, 1}, 0, 1).status(), "changed its rows or its weight");
}

TEST_F(FactorRefusals, TheSameRowsTwice) {
  Random random(5);
  const Rows rows = MakeRows(random, 2);
  ASSERT_TRUE(Deliver(store_, Rank(1), Step(0), rows, 100).ok());
  Refused(Deliver(store_, Rank(1), Step(0), rows, 100), "does not continue");
  ASSERT_TRUE(store_.Put(Rank(0), Step(0), rows.factors()).ok());
  Refused(store_.Put(Rank(0), Step(0), rows.factors()), "twice");
}

TEST_F(FactorRefusals, RanksThatDoNotExist) {
  Refused(store_.PlaceFor(Rank(2), Step(0), Part::kU, {1}, 0, 1).status(), "rank 2 of 2");
}

TEST_F(FactorRefusals, ThreeStepsAtOnce) {
  ASSERT_TRUE(store_.PlaceFor(Rank(1), Step(0), Part::kU, {1}, 0, 1).ok());
  ASSERT_TRUE(store_.PlaceFor(Rank(1), Step(1), Part::kU, {1}, 0, 1).ok());
  Refused(store_.PlaceFor(Rank(1), Step(2), Part::kU, {1}, 0, 1).status(), "is not finished");
}

// A straggler must not claim a set that nothing would ever release.
TEST_F(FactorRefusals, StepsThatAreOver) {
  ASSERT_TRUE(store_.Put(Rank(0), Step(4), {}).ok());
  ASSERT_TRUE(store_.Put(Rank(1), Step(4), {}).ok());
  ASSERT_TRUE(store_.Complete(Step(4)));
  store_.Release(Step(4));
  Refused(store_.Landed(Rank(1), Step(4), Part::kV, {0}, 0), "after that step's product");
  Refused(store_.PlaceFor(Rank(1), Step(3), Part::kU, {1}, 0, 1).status(), "after that step's");
  EXPECT_TRUE(store_.PlaceFor(Rank(1), Step(5), Part::kU, {1}, 0, 1).ok());
}

TEST_F(FactorRefusals, MoreRowsThanAnyBatch) {
  Refused(store_.PlaceFor(Rank(1), Step(0), Part::kU, {0xffff'ffff}, 0, 1).status(), "any batch");
  // rows * width wraps around to something small.
  FactorStore wide({std::uint64_t{1} << 38, 1, false}, DType::kF32, 2);
  Refused(wide.PlaceFor(Rank(1), Step(0), Part::kU, {1u << 24}, 0, 0).status(), "any batch");
}

// Some ranks compress, and some do not; some land beside their room.
TEST(FactorStore, CompressedRowsLandAsTheOthersDo) {
  Random random(11);
  FactorStore store(kShape, DType::kF32, 3);
  for (std::uint64_t step = 0; step < 6; ++step) {
    std::vector<Rows> ranks;
    std::vector<float> u;
    std::vector<float> v;
    for (std::uint16_t r = 0; r < 3; ++r) {
      ranks.push_back(MakeRows(random, 30 + static_cast<std::uint32_t>(random.Below(20))));
      for (float& x : ranks.back().u) x = random.Chance(0.5) ? 0.0f : -x;
      for (float& x : ranks.back().v) x = random.Chance(0.7) ? (random.Chance(0.1) ? -0.0f : 0.0f) : x;
      u.insert(u.end(), ranks[r].u.begin(), ranks[r].u.end());
      v.insert(v.end(), ranks[r].v.begin(), ranks[r].v.end());
    }
    for (const unsigned rank : {2u, 0u, 1u}) {
      const auto r = static_cast<std::uint16_t>(rank);
      const std::uint64_t piece = 1 + random.Below(400);
      const bool compressed = (r + step) % 3 != 0;
      EXPECT_FALSE(store.Complete(Step(step)));
      ASSERT_TRUE((compressed ? DeliverCompressed : Deliver)(store, Rank(r), Step(step), ranks[r], piece).ok());
    }
    ASSERT_TRUE(store.Complete(Step(step)));
    const Concatenation all = store.Concatenate(Step(step)).value();
    EXPECT_EQ(std::memcmp(all.u, u.data(), u.size() * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(all.v, v.data(), v.size() * sizeof(float)), 0);
    store.Release(Step(step));
  }
}

TEST(FactorStore, CompressedBytesThatCannotBeAreRefused) {
  Random random(1);
  const Rows rows = MakeRows(random, 50);  // u has 600 bytes: three groups
  const ByteBuffer bytes = Compressed(std::as_bytes(std::span(rows.u)));
  const WeightedRows brought{50, 0};
  struct Case {
    std::uint64_t total;
    std::uint64_t offset;
    std::uint64_t first;
    std::uint64_t length;
    const char* complaint;
  };
  for (const auto& [total, offset, first, length, complaint] :
       {Case{bytes.size(), 0, 0, 0, "does not continue at byte 0"},
        Case{bytes.size(), 8, 8, 8, "does not continue at byte 0"}, Case{23, 0, 0, 8, "600 bytes comes as 23"},
        Case{625, 0, 0, 8, "600 bytes comes as 625"}, Case{24, 0, 0, 100, "behind their end"},
        Case{100, 0, 0, 100, "end after"}, Case{~std::uint64_t{0}, 0, 0, 8, "which it cannot become"}}) {
    FactorStore store(kShape, DType::kF32, 2);
    const Status refused =
        store.Expand(Rank(1), Step(0), Part::kU, brought, {total, offset, ConstBytes(bytes).subspan(first, length)});
    EXPECT_EQ(refused.code(), StatusCode::kDataLoss);
    EXPECT_THAT(refused.message(), HasSubstr(complaint));
  }
  // A total that changes, and frames that come once this way and once the other.
  FactorStore store(kShape, DType::kF32, 2);
  const ConstBytes piece = ConstBytes(bytes).first(300);
  ASSERT_TRUE(store.Expand(Rank(1), Step(0), Part::kU, brought, {bytes.size(), 0, piece}).ok());
  EXPECT_FALSE(store.Expand(Rank(1), Step(0), Part::kU, brought, {bytes.size() - 4, 300, piece}).ok());
  EXPECT_FALSE(store.PlaceFor(Rank(1), Step(0), Part::kU, brought, 512, 4).ok());
  EXPECT_FALSE(store.PlaceFor(Rank(1), Step(0), Part::kU, brought, 256, 4).ok());
  ASSERT_TRUE(store.PlaceFor(Rank(1), Step(0), Part::kV, brought, 0, 4).ok());
  ASSERT_TRUE(store.Landed(Rank(1), Step(0), Part::kV, brought, 4).ok());
  EXPECT_FALSE(store.Expand(Rank(1), Step(0), Part::kV, brought, {1000, 0, piece}).ok());
  EXPECT_FALSE(store.Expand(Rank(2), Step(0), Part::kU, brought, {bytes.size(), 0, piece}).ok()) << "no such rank";
}

}  // namespace
}  // namespace poseidon::factors
