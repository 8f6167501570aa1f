// SPDX-License-Identifier: Apache-2.0
#include "poseidon/kv/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "poseidon/base/random.h"
#include "poseidon/tensor/view.h"

namespace poseidon::kv {
namespace {

using ::testing::HasSubstr;

// The contributions of `ranks` workers to one slice, full of roundings.
std::vector<std::vector<float>> Contributions(std::uint64_t seed, std::size_t ranks,
                                              std::size_t elements) {
  Random random(seed);
  std::vector<std::vector<float>> all(ranks, std::vector<float>(elements));
  for (auto& one : all) {
    for (float& x : one) x = static_cast<float>(random.Unit() * 2 - 1);
  }
  return all;
}

std::vector<float> Reference(const std::vector<std::vector<float>>& all,
                             const std::vector<std::uint32_t>& weights = {},
                             const std::vector<bool>& absent = {}) {
  std::vector<Summand> list;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const bool here = absent.empty() || !absent[r];
    list.push_back({here ? reinterpret_cast<const std::byte*>(all[r].data()) : nullptr,
                    weights.empty() ? 0 : weights[r]});
  }
  std::vector<float> sum(all[0].size());
  SumInRankOrder(list, all.size(), sum.size(), DType::kF32, Scaling::kMean, ViewOf(sum).memory);
  return sum;
}

// Hands the next `bytes` of a rank's contribution to the shard, as the network would.
Status Deliver(Shard& shard, Rank rank, Step step, const std::vector<float>& all,
               std::uint64_t offset, std::uint64_t bytes, std::uint32_t weight = 0) {
  POSEIDON_ASSIGN_OR_RETURN(MutableBytes place, shard.PlaceFor(rank, step, offset, bytes));
  const ConstBytes part(reinterpret_cast<const std::byte*>(all.data()) + offset, bytes);
  if (place.empty()) return shard.Landed(rank, step, part, weight);
  EXPECT_EQ(place.size(), bytes);
  std::copy(part.begin(), part.end(), place.begin());
  return shard.Landed(rank, step, place, weight);
}

// Collects what Advance reports: the stretches must continue one another.
class Sums {
 public:
  void Take(Shard& shard) {
    const Shard::Progress progress = shard.Advance();
    if (progress.end > progress.begin) {
      EXPECT_EQ(progress.begin, bytes_.size());
      bytes_.insert(bytes_.end(), shard.sum() + progress.begin, shard.sum() + progress.end);
    }
    completed_ += progress.complete ? 1 : 0;
  }
  int completed() const { return completed_; }
  std::size_t size() const { return bytes_.size(); }
  std::vector<float> values() const {
    std::vector<float> out(bytes_.size() / sizeof(float));
    std::memcpy(out.data(), bytes_.data(), out.size() * sizeof(float));
    return out;
  }

 private:
  ByteBuffer bytes_;
  int completed_ = 0;
};

constexpr Step kStep{5};

// Whatever the order and the sizes in which parts arrive, the sum has the same bits.
TEST(Shard, AnyOrderOfArrivalGivesTheSameBits) {
  constexpr std::size_t kRanks = 4;
  constexpr std::size_t kElements = 1023;
  const auto all = Contributions(1, kRanks, kElements);
  const std::vector<float> expected = Reference(all);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const bool local = random.Chance(0.5);
    LandingBlocks blocks;
    Shard shard({.elements = kElements,
                 .ranks = kRanks,
                 .local_rank = local ? std::optional(Rank(2)) : std::nullopt}, blocks);
    std::vector<float> local_memory = all[2];
    std::vector<std::uint64_t> sent(kRanks, 0);
    std::vector<std::uint16_t> waiting(kRanks);
    std::iota(waiting.begin(), waiting.end(), std::uint16_t{0});
    Sums sums;
    while (!waiting.empty()) {
      const std::size_t pick = random.Below(waiting.size());
      const std::uint16_t rank = waiting[pick];
      if (local && rank == 2) {
        ASSERT_TRUE(shard.Local(kStep, ViewOf(local_memory).memory, false, 0).ok());
        sent[rank] = shard.bytes();
      } else {
        const std::uint64_t rest = shard.bytes() - sent[rank];
        const std::uint64_t bytes = std::min(rest, 1 + random.Below(random.Chance(0.2) ? 7 : 2000));
        ASSERT_TRUE(Deliver(shard, Rank(rank), kStep, all[rank], sent[rank], bytes).ok());
        sent[rank] += bytes;
      }
      sums.Take(shard);
      if (sent[rank] == shard.bytes()) waiting.erase(waiting.begin() + static_cast<int>(pick));
    }
    EXPECT_EQ(sums.completed(), 1) << "seed " << seed;
    EXPECT_EQ(sums.values(), expected) << "seed " << seed;
    if (local) {
      EXPECT_EQ(local_memory, expected) << "the sum is written over the local gradient";
    }
  }
}

// The sum is known as far as every rank has come, and not a byte further.
TEST(Shard, SumsAdvancePrefixByPrefix) {
  const auto all = Contributions(2, 3, 100);
  LandingBlocks blocks;
  Shard shard({.elements = 100, .ranks = 3}, blocks);
  Sums sums;
  const auto deliver = [&](std::uint16_t rank, std::uint64_t offset, std::uint64_t bytes) {
    ASSERT_TRUE(Deliver(shard, Rank(rank), kStep, all[rank], offset, bytes).ok());
    sums.Take(shard);
  };
  deliver(0, 0, 400);
  deliver(1, 0, 40);
  EXPECT_EQ(sums.size(), 0u);
  deliver(2, 0, 7);  // one whole number and three bytes of the next
  EXPECT_EQ(sums.size(), 4u);
  deliver(2, 7, 393);
  EXPECT_EQ(sums.size(), 40u);
  EXPECT_EQ(sums.completed(), 0);
  deliver(1, 40, 359);
  EXPECT_EQ(sums.size(), 396u);
  EXPECT_EQ(sums.completed(), 0);
  deliver(1, 399, 1);
  EXPECT_EQ(sums.completed(), 1);
  EXPECT_EQ(sums.values(), Reference(all));
}

// A copier still writes what has not arrived: it is neither read nor written here, and the sum has the bits of a whole
// contribution's.
TEST(Shard, ALocalContributionInPartsIsSummedAsFarAsItHasArrived) {
  constexpr std::size_t kRanks = 3;
  constexpr std::size_t kElements = 1023;
  constexpr float kNotThere = 1e30f;
  const auto all = Contributions(7, kRanks, kElements);
  const std::vector<std::uint32_t> weights = {64, 1, 63};
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const bool whole = random.Chance(0.2);
    LandingBlocks blocks;
    Shard shard({.elements = kElements, .ranks = kRanks, .local_rank = Rank(1), .whole = whole}, blocks);
    std::vector<float> local(kElements, kNotThere);
    std::vector<std::uint64_t> arrived(kRanks, 0);  // bytes
    Sums sums;
    ASSERT_TRUE(shard.Local(kStep, ViewOf(local).memory, false, weights[1], true).ok());
    sums.Take(shard);
    while (sums.completed() == 0) {
      const auto rank = static_cast<std::uint16_t>(random.Below(kRanks));
      const std::uint64_t rest = shard.bytes() - arrived[rank];
      if (rest == 0) continue;
      if (rank == 1) {
        const std::uint64_t elements = std::min(rest / 4, 1 + random.Below(500));
        const auto begin = static_cast<std::ptrdiff_t>(arrived[1] / 4);
        std::copy_n(all[1].begin() + begin, elements, local.begin() + begin);
        arrived[1] += elements * 4;
        shard.LocalArrived(arrived[1]);
      } else {
        const std::uint64_t bytes = std::min(rest, 1 + random.Below(random.Chance(0.2) ? 7 : 2000));
        ASSERT_TRUE(Deliver(shard, Rank(rank), kStep, all[rank], arrived[rank], bytes, weights[rank]).ok());
        arrived[rank] += bytes;
      }
      sums.Take(shard);
      const std::uint64_t least = *std::ranges::min_element(arrived) / 4 * 4;
      EXPECT_EQ(sums.size(), whole && least < shard.bytes() ? 0 : least) << "seed " << seed;
      const std::vector<Rank> missing = shard.Missing();
      EXPECT_EQ(std::ranges::count(missing, Rank(1)), arrived[1] < shard.bytes() ? 1 : 0);
      EXPECT_TRUE(std::ranges::all_of(local.begin() + static_cast<std::ptrdiff_t>(arrived[1] / 4), local.end(),
                                      [](float x) { return x == kNotThere; }));
    }
    EXPECT_EQ(sums.values(), Reference(all, weights)) << "seed " << seed;
    EXPECT_EQ(local, sums.values());
    // The next step begins as the first did.
    EXPECT_TRUE(shard.Local(kStep.next(), ViewOf(local).memory, false, 0, true).ok());
    EXPECT_EQ(shard.Advance().end, 0u);
  }
}

TEST(Shard, WholeSlicesAreSummedAtOnce) {
  const auto all = Contributions(3, 2, 100);
  LandingBlocks blocks;
  Shard shard({.elements = 100, .ranks = 2, .whole = true}, blocks);
  for (int step = 0; step < 2; ++step) {
    Sums sums;
    const auto deliver = [&](std::uint16_t rank, std::uint64_t offset, std::uint64_t bytes) {
      ASSERT_TRUE(Deliver(shard, Rank(rank), Step(kStep.value() + static_cast<std::uint64_t>(step)),
                          all[rank], offset, bytes)
                      .ok());
      sums.Take(shard);
    };
    deliver(0, 0, 400);
    deliver(1, 0, 396);
    EXPECT_EQ(sums.size(), 0u);
    EXPECT_EQ(sums.completed(), 0);
    deliver(1, 396, 4);
    EXPECT_EQ(sums.completed(), 1);
    EXPECT_EQ(sums.values(), Reference(all));
  }
}

TEST(Shard, StepsFollowOneAnotherInTheSameMemory) {
  LandingBlocks blocks;
  Shard shard({.elements = 50, .ranks = 2, .local_rank = Rank(0)}, blocks);
  std::uint64_t allocated = 0;
  for (std::uint64_t step = 3; step < 20; step += 1 + step % 2) {
    const auto all = Contributions(step, 2, 50);
    std::vector<float> local = all[0];
    ASSERT_TRUE(Deliver(shard, Rank(1), Step(step), all[1], 0, 200).ok());
    ASSERT_TRUE(shard.Local(Step(step), ViewOf(local).memory, false, 0).ok());
    EXPECT_EQ(shard.step(), Step(step));
    Sums sums;
    sums.Take(shard);
    EXPECT_EQ(sums.completed(), 1);
    EXPECT_EQ(sums.values(), Reference(all));
    if (allocated != 0) {
      EXPECT_EQ(blocks.allocated_bytes(), allocated);
    }
    allocated = blocks.allocated_bytes();
  }
  EXPECT_EQ(allocated, 4096u) << "one block for the one remote rank";
}

// Bytes that complete a stretch are summed where they landed; only those that must wait take a block,
// also when a frame ends within a number.
TEST(Shard, OnlyWhatWaitsTakesABlock) {
  const auto all = Contributions(3, 2, 100);
  LandingBlocks blocks;
  Shard shard({.elements = 100, .ranks = 2, .local_rank = Rank(0)}, blocks);
  for (const bool unaligned : {false, true}) {
    std::vector<float> local = all[0];
    const Step step = unaligned ? kStep.next() : kStep;
    ASSERT_TRUE(shard.Local(step, ViewOf(local).memory, false, 0).ok());
    Sums sums;
    std::uint64_t offset = 0;
    for (const std::uint64_t bytes : {100, unaligned ? 7 : 8, unaligned ? 93 : 92, 200}) {
      ASSERT_TRUE(Deliver(shard, Rank(1), step, all[1], offset, bytes).ok());
      sums.Take(shard);
      offset += bytes;
    }
    EXPECT_EQ(sums.values(), Reference(all));
    EXPECT_EQ(blocks.allocated_bytes(), unaligned ? 2 * 4096u : 0u);
  }
}

// However large a slice is, it lands in as much memory as its ranks are apart; all of it is needed only where one is late.
TEST(Shard, RanksInStepShareAFewBlocks) {
  constexpr std::uint64_t kElements = 1 << 20;
  constexpr std::uint64_t kFrame = 1 << 16;
  const auto all = Contributions(8, 4, kElements);
  LandingBlocks blocks;
  Shard shard({.elements = kElements, .ranks = 4, .local_rank = Rank(1)}, blocks);
  for (const std::uint64_t apart : {1, 5, 64}) {
    std::vector<float> local = all[1];
    const Step step(apart);
    ASSERT_TRUE(shard.Local(step, ViewOf(local).memory, false, 0).ok());
    Sums sums;
    const auto deliver = [&](std::uint16_t rank, std::uint64_t frame) {
      ASSERT_TRUE(Deliver(shard, Rank(rank), step, all[rank], frame * kFrame, kFrame).ok());
      sums.Take(shard);
    };
    for (std::uint64_t frame = 0; frame < 64 + apart; ++frame) {
      if (frame < 64) deliver(2, frame);
      if (frame < 64) deliver(3, frame);
      if (frame >= apart) deliver(0, frame - apart);
    }
    EXPECT_EQ(sums.completed(), 1);
    EXPECT_EQ(sums.values(), Reference(all));
    EXPECT_EQ(blocks.allocated_bytes(), 2 * std::min<std::uint64_t>(64, apart + 1) * kFrame);
  }
}

TEST(LandingBlocks, TheLastThatCameBackIsTheNextAndTooManyGoBack) {
  LandingBlocks blocks;
  LandingBlocks::Block first = blocks.Take(100'000);
  LandingBlocks::Block second = blocks.Take(131'072);
  EXPECT_EQ(first.get_deleter().bytes, 131'072u);
  EXPECT_EQ(blocks.allocated_bytes(), 2 * 131'072u);
  const std::byte* const warm = second.get();
  first.reset();
  second.reset();
  EXPECT_EQ(blocks.Take(70'000).get(), warm);
  std::vector<LandingBlocks::Block> many;
  for (int i = 0; i < 100; ++i) many.push_back(blocks.Take(1 << 20));
  EXPECT_EQ(blocks.allocated_bytes(), (100u << 20) + 2 * 131'072u);
  many.clear();
  EXPECT_LE(blocks.allocated_bytes(), LandingBlocks::kKeptBytes + 2 * 131'072u);
  EXPECT_EQ(blocks.Take(std::size_t{1} << 62), nullptr);
}

TEST(Shard, AbsentRanksAddNothing) {
  const auto all = Contributions(3, 4, 33);
  for (unsigned mask = 0; mask < 16; ++mask) {
    LandingBlocks blocks;
    Shard shard({.elements = 33, .ranks = 4, .local_rank = Rank(1)}, blocks);
    std::vector<float> local = all[1];
    std::vector<bool> absent;
    for (std::uint16_t r = 0; r < 4; ++r) {
      absent.push_back((mask >> r & 1) != 0);
      if (r == 1) {
        ASSERT_TRUE(shard.Local(kStep, ViewOf(local).memory, absent[r], 0).ok());
      } else if (absent[r]) {
        ASSERT_TRUE(shard.Absent(Rank(r), kStep).ok());
      } else {
        ASSERT_TRUE(Deliver(shard, Rank(r), kStep, all[r], 0, shard.bytes()).ok());
      }
    }
    Sums sums;
    sums.Take(shard);
    EXPECT_EQ(sums.completed(), 1);
    EXPECT_EQ(sums.values(), Reference(all, {}, absent)) << "mask " << mask;
    EXPECT_EQ(local, sums.values());
  }
}

TEST(Shard, WeightsWeigh) {
  const auto all = Contributions(4, 3, 70);
  const std::vector<std::uint32_t> weights = {64, 1, 63};
  LandingBlocks blocks;
  Shard shard({.elements = 70, .ranks = 3}, blocks);
  Sums sums;
  for (std::uint16_t r = 0; r < 3; ++r) {
    ASSERT_TRUE(Deliver(shard, Rank(r), kStep, all[r], 0, 100, weights[r]).ok());
    sums.Take(shard);
    ASSERT_TRUE(Deliver(shard, Rank(r), kStep, all[r], 100, 180, weights[r]).ok());
    sums.Take(shard);
  }
  EXPECT_EQ(sums.values(), Reference(all, weights));
  EXPECT_NE(sums.values(), Reference(all));
}

TEST(Shard, OneWorkerKeepsItsGradient) {
  LandingBlocks blocks;
  Shard shard({.elements = 3, .ranks = 1, .local_rank = Rank(0)}, blocks);
  std::vector<float> local = {1, 2, 3};
  ASSERT_TRUE(shard.Local(kStep, ViewOf(local).memory, false, 0).ok());
  const Shard::Progress progress = shard.Advance();
  EXPECT_TRUE(progress.complete);
  EXPECT_EQ(progress.end, 12u);
  EXPECT_EQ(local, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(blocks.allocated_bytes(), 0u);
}

TEST(Shard, DoublesAndCountsAreSummedInTheirOwnArithmetic) {
  LandingBlocks blocks;
  Shard doubles({.elements = 1, .dtype = DType::kF64, .ranks = 2, .local_rank = Rank(0)}, blocks);
  double a = 0.1;
  const double b = 0.2;
  ASSERT_TRUE(doubles.Local(kStep, reinterpret_cast<std::byte*>(&a), false, 0).ok());
  EXPECT_TRUE(doubles.PlaceFor(Rank(1), kStep, 0, 8).value().empty());
  ASSERT_TRUE(doubles.Landed(Rank(1), kStep, std::as_bytes(std::span(&b, 1)), 0).ok());
  EXPECT_TRUE(doubles.Advance().complete);
  EXPECT_EQ(a, (0.1 + 0.2) * 0.5);

  Shard counts({.elements = 1,
                .dtype = DType::kI64,
                .ranks = 2,
                .local_rank = Rank(0),
                .scaling = Scaling::kNone},
               blocks);
  std::int64_t c = (std::int64_t{1} << 60) + 1;
  const std::int64_t d = 2;
  ASSERT_TRUE(counts.Local(kStep, reinterpret_cast<std::byte*>(&c), false, 0).ok());
  EXPECT_TRUE(counts.PlaceFor(Rank(1), kStep, 0, 8).value().empty());
  ASSERT_TRUE(counts.Landed(Rank(1), kStep, std::as_bytes(std::span(&d, 1)), 0).ok());
  EXPECT_TRUE(counts.Advance().complete);
  EXPECT_EQ(c, (std::int64_t{1} << 60) + 3);
}

// ---- what a broken or hostile peer might send

class Refusals : public testing::Test {
 protected:
  void Refused(const Status& status, const char* complaint) {
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr(complaint));
  }
  const std::vector<std::vector<float>> all_ = Contributions(5, 3, 25);
  LandingBlocks blocks_;
  Shard shard_{{.elements = 25, .ranks = 3, .local_rank = Rank(0)}, blocks_};
};

TEST_F(Refusals, GapsOverlapsAndOverlongParts) {
  ASSERT_TRUE(Deliver(shard_, Rank(1), kStep, all_[1], 0, 40).ok());
  Refused(shard_.PlaceFor(Rank(1), kStep, 44, 4).status(), "does not continue at byte 40");
  Refused(shard_.PlaceFor(Rank(1), kStep, 36, 4).status(), "does not continue at byte 40");
  Refused(shard_.PlaceFor(Rank(1), kStep, 0, 4).status(), "does not continue at byte 40");
  Refused(shard_.PlaceFor(Rank(1), kStep, 40, 61).status(), "does not continue at byte 40");
  Refused(shard_.PlaceFor(Rank(2), kStep, 0, 101).status(), "does not continue at byte 0");
  Refused(shard_.PlaceFor(Rank(2), kStep, 0, ~std::uint64_t{0}).status(), "does not continue");
  Refused(shard_.PlaceFor(Rank(2), kStep, ~std::uint64_t{0}, 4).status(), "does not continue");
  EXPECT_TRUE(Deliver(shard_, Rank(1), kStep, all_[1], 40, 60).ok());
}

TEST_F(Refusals, ContributingTwice) {
  ASSERT_TRUE(Deliver(shard_, Rank(1), kStep, all_[1], 0, 100).ok());
  Refused(shard_.PlaceFor(Rank(1), kStep, 0, 100).status(), "contributes twice to step 5");
  Refused(shard_.Absent(Rank(1), kStep), "contributes twice");
  ASSERT_TRUE(shard_.Absent(Rank(2), kStep).ok());
  Refused(shard_.Absent(Rank(2), kStep), "contributes twice");
  Refused(shard_.PlaceFor(Rank(2), kStep, 0, 4).status(), "contributes twice");
  std::vector<float> local = all_[0];
  ASSERT_TRUE(shard_.Local(kStep, ViewOf(local).memory, false, 0).ok());
  Refused(shard_.Local(kStep, ViewOf(local).memory, false, 0), "contributes twice");
}

TEST_F(Refusals, BeginningAndThenBeingAbsent) {
  ASSERT_TRUE(Deliver(shard_, Rank(1), kStep, all_[1], 0, 4).ok());
  Refused(shard_.Absent(Rank(1), kStep), "cannot be absent");
}

TEST_F(Refusals, OtherStepsThanTheOneUnderWay) {
  ASSERT_TRUE(Deliver(shard_, Rank(1), kStep, all_[1], 0, 4).ok());
  Refused(shard_.PlaceFor(Rank(2), kStep.next(), 0, 4).status(), "expected step 5");
  Refused(shard_.PlaceFor(Rank(2), Step(4), 0, 4).status(), "expected step 5");
  ASSERT_TRUE(Deliver(shard_, Rank(1), kStep, all_[1], 4, 96).ok());
  ASSERT_TRUE(shard_.Absent(Rank(2), kStep).ok());
  std::vector<float> local = all_[0];
  ASSERT_TRUE(shard_.Local(kStep, ViewOf(local).memory, false, 0).ok());
  ASSERT_TRUE(shard_.Advance().complete);
  Refused(shard_.PlaceFor(Rank(1), kStep, 0, 4).status(), "after that step's sum");
  Refused(shard_.PlaceFor(Rank(1), Step(0), 0, 4).status(), "after that step's sum");
  EXPECT_TRUE(shard_.PlaceFor(Rank(1), kStep.next(), 0, 4).ok());
}

// Who comes later is refused, but no more to blame than who came first, unless it has begun that round itself.
TEST_F(Refusals, StepsThatRanksDisagreeAbout) {
  EXPECT_FALSE(shard_.Disagrees(Rank(1), kStep.next())) << "no round is under way";
  ASSERT_TRUE(Deliver(shard_, Rank(1), kStep.next(), all_[1], 0, 4).ok());
  for (const Rank other : {Rank(0), Rank(2)}) {
    EXPECT_FALSE(shard_.Disagrees(other, kStep.next()));
    const auto disagreement = shard_.Disagrees(other, kStep);
    ASSERT_TRUE(disagreement);
    EXPECT_EQ(disagreement->with, Rank(1));
    EXPECT_EQ(disagreement->step, kStep.next());
    Refused(shard_.PlaceFor(other, kStep, 0, 4).status(), "expected step 6");
  }
  EXPECT_FALSE(shard_.Disagrees(Rank(1), kStep)) << "it contradicts itself";
}

TEST(Shard, WithoutMemoryForTheSumARoundDoesNotBegin) {
  constexpr std::uint64_t kElements = std::uint64_t{1} << 46;
  LandingBlocks blocks;
  Shard shard({.elements = kElements, .ranks = 1}, blocks);
  const Status status = shard.PlaceFor(Rank(0), kStep, 0, 4).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "there is no memory for the 281474976710656 bytes of a sum");
  EXPECT_EQ(shard.sum_bytes(), 0u);
  EXPECT_TRUE(shard.Missing().empty());
}

TEST_F(Refusals, RanksThatDoNotExist) {
  Refused(shard_.PlaceFor(Rank(3), kStep, 0, 4).status(), "names rank 3 of 3");
  Refused(shard_.Absent(Rank(65535), kStep), "names rank 65535");
}

TEST_F(Refusals, WeightsThatChange) {
  ASSERT_TRUE(Deliver(shard_, Rank(1), kStep, all_[1], 0, 40, 7).ok());
  Refused(Deliver(shard_, Rank(1), kStep, all_[1], 40, 60, 8), "changed the weight");
}

}  // namespace
}  // namespace poseidon::kv
