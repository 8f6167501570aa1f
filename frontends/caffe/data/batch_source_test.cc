// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/batch_source.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "frontends/caffe/data/data_share.h"
#include "frontends/caffe/data/database_samples.h"
#include "frontends/caffe/data/test_database.h"

namespace poseidon::caffe {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint64_t kRecords = 11;  // divides nothing

RandomWords NoRandom(std::uint64_t) { return {}; }

std::vector<int> LabelsOf(const Batch& batch) {
  std::vector<int> labels;
  for (std::int64_t i = 0; i < batch.labels.numel(); ++i) {
    labels.push_back(static_cast<int>(batch.labels.const_data_ptr<float>()[i]));
  }
  return labels;
}

class BatchSourceTest : public ::testing::Test {
 protected:
  BatchSourceTest() { WriteTestDatabase(folder_ / "db", kRecords); }

  Result<std::unique_ptr<BatchSource>> Open(std::int64_t rows, std::uint64_t stride,
                                            SampleDraw draw = NoRandom,
                                            const std::string& transform = "") {
    TransformationParameter parameters;
    if (!transform.empty()) {
      EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(transform, &parameters));
    }
    POSEIDON_ASSIGN_OR_RETURN(auto transformer, Transformer::Make(parameters, TRAIN));
    BatchSource::Options options;
    options.rows = rows;
    options.stride = stride;
    options.ahead = 2;
    options.draw = std::move(draw);
    POSEIDON_ASSIGN_OR_RETURN(auto samples, OpenDatabaseSamples(Database::kLmdb, folder_ / "db", Channels::kAsStored));
    return BatchSource::Open(std::move(samples), std::move(options), std::move(transformer));
  }

  TestFolder folder_;
};

TEST_F(BatchSourceTest, GoesRoundTheDatabase) {
  auto source = Open(4, 4);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ((*source)->image_shape(), (ImageShape{1, 2, 3}));
  Batch batch;
  std::vector<int> seen;
  for (std::uint64_t k = 0; k < 20; ++k) {
    ASSERT_TRUE((*source)->Take(4 * k, &batch).ok());
    for (int label : LabelsOf(batch)) seen.push_back(label);
    const float* pixels = batch.images.const_data_ptr<float>();
    for (std::int64_t i = 0; i < batch.images.numel(); ++i) {
      const auto record = static_cast<unsigned>(seen[4 * k + static_cast<std::size_t>(i / 6)]);
      EXPECT_EQ(pixels[i], static_cast<float>((record * 31 + static_cast<unsigned>(i % 6)) & 255));
    }
  }
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int>(i % kRecords));
}

// Together P workers read what one worker with a P times larger batch reads, each sample once.
TEST_F(BatchSourceTest, WorkersShareWithoutOverlap) {
  for (const int world : {1, 2, 3, 4}) {
    const std::uint64_t rows = 3;
    std::vector<std::unique_ptr<BatchSource>> workers;
    for (int rank = 0; rank < world; ++rank) {
      auto source = Open(static_cast<std::int64_t>(rows), rows * static_cast<std::uint64_t>(world));
      ASSERT_TRUE(source.ok());
      workers.push_back(*std::move(source));
    }
    std::vector<Batch> batches(static_cast<std::size_t>(world));
    std::size_t sample = 0;
    for (std::uint64_t k = 0; k < 9; ++k) {
      for (int rank = 0; rank < world; ++rank) {
        const auto r = static_cast<std::size_t>(rank);
        DataShare share;
        share.rank = rank;
        share.world = world;
        ASSERT_TRUE(workers[r]->Take(FirstTrainSample(k, share, rows), &batches[r]).ok());
        for (int label : LabelsOf(batches[r]))
          EXPECT_EQ(label, static_cast<int>(sample++ % kRecords));
      }
    }
  }
}

TEST_F(BatchSourceTest, ResumesAnywhere) {
  auto source = Open(4, 4);
  ASSERT_TRUE(source.ok());
  Batch batch;
  ASSERT_TRUE((*source)->Take(4'000'000'020, &batch).ok());
  const int first = static_cast<int>(4'000'000'020 % kRecords);
  EXPECT_EQ(LabelsOf(batch)[0], first);
  ASSERT_TRUE((*source)->Take(4'000'000'024, &batch).ok());
  EXPECT_EQ(LabelsOf(batch)[0], static_cast<int>(4'000'000'024 % kRecords));
  ASSERT_TRUE((*source)->Take(8, &batch).ok());
  EXPECT_THAT(LabelsOf(batch), ElementsAre(8, 9, 10, 0));
  ASSERT_TRUE((*source)->Take(8, &batch).ok());
  EXPECT_THAT(LabelsOf(batch), ElementsAre(8, 9, 10, 0));
}

TEST_F(BatchSourceTest, NeverWritesToWhatSomebodyStillHolds) {
  auto source = Open(4, 4);
  Batch batch;
  ASSERT_TRUE((*source)->Take(0, &batch).ok());
  const at::Tensor kept = batch.images.view({4, 6});
  const at::Tensor copy = kept.clone();
  ASSERT_TRUE((*source)->Take(4, &batch).ok());
  const at::Tensor handle = batch.images;
  const at::Tensor copy_of_handle = handle.clone();
  for (std::uint64_t k = 2; k < 20; ++k) ASSERT_TRUE((*source)->Take(4 * k, &batch).ok());
  EXPECT_TRUE(kept.equal(copy));
  EXPECT_TRUE(handle.equal(copy_of_handle));
}

// Two workers stop after four batches each, three go on where they left off.
TEST(DataShare, AnotherNumberOfWorkersTakesOverThePosition) {
  DataShare before;
  before.world = 2;
  DataShare after;
  after.world = 3;
  after.since = 4;
  after.taken = SharesTaken(4, before);
  EXPECT_EQ(after.taken, 8u);
  const std::uint64_t rows = 5;
  before.rank = 1;
  EXPECT_EQ(FirstTrainSample(3, before, rows) + rows, FirstTrainSample(4, after, rows));
  after.rank = 2;
  EXPECT_EQ(FirstTrainSample(4, after, rows), 50u);
  after.rank = 0;
  EXPECT_EQ(FirstTrainSample(5, after, rows), 55u);
  EXPECT_EQ(SharesTaken(5, after), 11u);
}

TEST_F(BatchSourceTest, RandomnessBelongsToTheSample) {
  const auto draw = [](std::uint64_t sample) {
    return RandomWords{static_cast<std::uint32_t>(sample / 3), 0, 0, 0};
  };
  auto one = Open(6, 6, draw, "mirror: true");
  auto half = Open(3, 6, draw, "mirror: true");
  ASSERT_TRUE(one.ok() && half.ok());
  Batch whole;
  Batch part;
  ASSERT_TRUE((*one)->Take(6, &whole).ok());
  ASSERT_TRUE((*half)->Take(9, &part).ok());
  EXPECT_TRUE(whole.images.slice(0, 3, 6).equal(part.images));
  EXPECT_EQ(part.images.const_data_ptr<float>()[0], static_cast<float>((9 * 31 + 2) & 255));
}

// The queue is full, or a read is under way, or nothing was ever asked: the destructor returns.
TEST_F(BatchSourceTest, EndsAtAnyMoment) {
  { auto source = Open(4, 4); }
  for (int taken = 1; taken < 30; ++taken) {
    auto source = Open(4, 4);
    Batch batch;
    for (int k = 0; k < taken; ++k) {
      ASSERT_TRUE((*source)->Take(4 * static_cast<std::uint64_t>(k), &batch).ok());
    }
  }
}

// Whoever asks for what is being read waits for that, and it is not read again.
TEST_F(BatchSourceTest, ReadsEachBatchOnce) {
  std::vector<int> read(30, 0);
  {
    auto source = Open(1, 1, [&](std::uint64_t sample) {
      if (sample < read.size()) ++read[sample];
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return RandomWords{};
    });
    ASSERT_TRUE(source.ok());
    Batch batch;
    for (std::uint64_t k = 0; k < read.size(); ++k) ASSERT_TRUE((*source)->Take(k, &batch).ok());
  }
  EXPECT_THAT(read, Each(1));
}

TEST_F(BatchSourceTest, ReadsNoFurtherThanItsQueue) {
  std::atomic<std::uint64_t> furthest{0};
  auto source = Open(1, 1, [&](std::uint64_t sample) {
    furthest = sample;
    return RandomWords{};
  });
  Batch batch;
  for (std::uint64_t k = 0; k < 100; ++k) {
    ASSERT_TRUE((*source)->Take(k, &batch).ok());
    EXPECT_LE(furthest, k + 3);  // two waiting, one being read
  }
}

TEST_F(BatchSourceTest, NamesTheBadRecord) {
  {
    auto writer = CreateLmdb(folder_ / "bad", 1000);
    ASSERT_TRUE(writer.ok());
    for (std::uint64_t i = 0; i < 4; ++i) {
      Datum datum = TestDatum(i, 1, 2, 3);
      if (i == 2) datum.mutable_data()->resize(5);
      if (i == 3) datum = TestDatum(i, 1, 3, 2);
      ASSERT_TRUE((*writer)->Put(TestKey(i), datum.SerializeAsString()).ok());
    }
    ASSERT_TRUE((*writer)->Put(TestKey(4), "no datum").ok());
    Datum encoded = TestDatum(5, 1, 2, 3);
    encoded.set_encoded(true);
    ASSERT_TRUE((*writer)->Put(TestKey(5), encoded.SerializeAsString()).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
  }
  BatchSource::Options options;
  options.draw = NoRandom;
  auto transformer = Transformer::Make({}, TRAIN);
  auto samples = OpenDatabaseSamples(Database::kLmdb, folder_ / "bad", Channels::kAsStored);
  ASSERT_TRUE(samples.ok());
  auto source = BatchSource::Open(*std::move(samples), options, *transformer);
  ASSERT_TRUE(source.ok());
  Batch batch;
  ASSERT_TRUE((*source)->Take(0, &batch).ok());
  ASSERT_TRUE((*source)->Take(1, &batch).ok());
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Status status = (*source)->Take(2, &batch);
    EXPECT_THAT(status.message(), HasSubstr("bad: record 2 (key 00000002) is corrupt: it holds 5"));
  }
  EXPECT_THAT((*source)->Take(3, &batch).message(), HasSubstr("is 1x3x2, expected 1x2x3"));
  EXPECT_THAT((*source)->Take(4, &batch).message(), HasSubstr("record 4"));
  EXPECT_THAT((*source)->Take(5, &batch).message(), HasSubstr("record 5"));
  EXPECT_THAT(LabelsOf(batch), ElementsAre(1));
  ASSERT_TRUE((*source)->Take(0, &batch).ok());
  EXPECT_THAT(LabelsOf(batch), ElementsAre(0));
}

// Images of one pixel whose number is their label; those whose number ends in 2 fail late, in 3 at once.
class FailingSamples final : public SampleSource {
 public:
  const std::string& name() const override { return name_; }
  std::unique_ptr<SampleReader> MakeReader() override { return std::make_unique<Reader>(); }
  std::string OriginOf(std::uint64_t) const override { return "here"; }

 private:
  class Reader final : public SampleReader {
   public:
    Status Fetch(std::uint64_t number) override {
      number_ = number;
      return OkStatus();
    }
    Status Decode(Sample* sample) override {
      if (number_ % 10 == 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (number_ % 10 == 2 || number_ % 10 == 3) return DataLoss("sample " + std::to_string(number_));
      *sample = {.shape = {1, 1, 1}, .bytes = &pixel_, .label = static_cast<std::int32_t>(number_)};
      return OkStatus();
    }
    const std::string& where() const override { return where_; }
    bool compressed() const override { return true; }

   private:
    const std::uint8_t pixel_ = 0;
    const std::string where_ = "here";
    std::uint64_t number_ = 0;
  };
  const std::string name_ = "samples";
};

TEST(SeveralThreads, TheErrorIsThatOfTheFirstBadSample) {
  BatchSource::Options options;
  options.rows = 4;
  options.stride = 4;
  options.threads = 3;
  options.draw = NoRandom;
  auto source = BatchSource::Open(std::make_unique<FailingSamples>(), options, *Transformer::Make({}, TRAIN));
  ASSERT_TRUE(source.ok());
  Batch batch;
  EXPECT_EQ((*source)->Take(0, &batch).message(), "sample 2");
  ASSERT_TRUE((*source)->Take(4, &batch).ok());
  EXPECT_THAT(LabelsOf(batch), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ((*source)->Take(10, &batch).message(), "sample 12");
}

}  // namespace
}  // namespace poseidon::caffe
