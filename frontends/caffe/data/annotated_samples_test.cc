// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/annotated_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

#include "frontends/caffe/data/batch_source.h"
#include "frontends/caffe/data/test_database.h"
#include "frontends/caffe/data/test_images.h"

namespace poseidon::caffe {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kAnnotatedRecords = 6;

// Record i is an image with i boxes of label i.
AnnotatedDatum TestRecord(std::uint64_t number) {
  AnnotatedDatum record;
  record.mutable_datum()->set_encoded(true);
  record.mutable_datum()->set_data(number % 2 == 0 ? ColourJpeg() : InterlacedPng());
  record.set_type(AnnotatedDatum::BBOX);
  if (number == 0) return record;
  AnnotationGroup* const group = record.add_annotation_group();
  group->set_group_label(static_cast<int>(number));
  for (std::uint64_t i = 0; i < number; ++i) {
    Annotation* const annotation = group->add_annotation();
    annotation->set_instance_id(static_cast<int>(i));
    NormalizedBBox* const box = annotation->mutable_bbox();
    box->set_xmin(0.1F);
    box->set_ymin(0.2F);
    box->set_xmax(0.5F);
    box->set_ymax(0.3F + 0.1F * static_cast<float>(i));
    box->set_difficult(i == 1);
  }
  return record;
}

class AnnotatedSamplesTest : public ::testing::Test {
 protected:
  // A database whose record 2 is changed.
  void Write(const std::function<void(AnnotatedDatum*)>& change = {}) { Write(change, {}); }
  void Write(const std::function<void(AnnotatedDatum*)>& change, const std::string& bytes) {
    auto writer = CreateLmdb(path_, 10'000'000);
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    for (std::uint64_t i = 0; i < kAnnotatedRecords; ++i) {
      AnnotatedDatum record = TestRecord(i);
      if (i == 2 && change) change(&record);
      ASSERT_TRUE((*writer)->Put(TestKey(i), i == 2 && !bytes.empty() ? bytes : record.SerializeAsString()).ok());
    }
    ASSERT_TRUE((*writer)->Finish().ok());
  }
  Result<std::unique_ptr<BatchSource>> Open(std::int64_t rows, std::size_t threads, bool boxes = false, const std::string& path = {}) {
    TransformationParameter parameters;
    parameters.mutable_resize_param()->set_height(8);
    parameters.mutable_resize_param()->set_width(9);
    parameters.mutable_expand_param()->set_max_expand_ratio(2);
    parameters.set_mirror(true);
    POSEIDON_ASSIGN_OR_RETURN(auto transform, ObjectTransform::Make(parameters, {}, TRAIN));
    POSEIDON_ASSIGN_OR_RETURN(auto opened, OpenAnnotatedSamples({.path = path.empty() ? path_ : path, .boxes = boxes, .draw = Words()}, std::move(transform)));
    boxes_ = opened.boxes;
    POSEIDON_ASSIGN_OR_RETURN(auto nothing, Transformer::Make({}, TRAIN));
    BatchSource::Options options;
    options.rows = rows;
    options.stride = static_cast<std::uint64_t>(rows);
    options.threads = threads;
    options.draw = [](std::uint64_t) { return RandomWords{}; };
    return BatchSource::Open(std::move(opened.samples), std::move(options), std::move(nothing));
  }
  // Why a batch of all records fails.
  std::string Error(bool boxes = false) {
    auto source = Open(kAnnotatedRecords, 1, boxes);
    if (!source.ok()) return source.status().message();
    Batch batch;
    return (*source)->Take(0, &batch).message();
  }
  static SampleBlocks Words() {
    return [](std::uint64_t sample, std::uint64_t block) {
      std::mt19937 words(static_cast<unsigned>(sample * 1000 + block));
      return RandomWords{static_cast<std::uint32_t>(words()), static_cast<std::uint32_t>(words()), static_cast<std::uint32_t>(words()), 0};
    };
  }

  TestFolder folder_;
  const std::string path_ = folder_ / "lmdb";
  bool boxes_ = false;
};

TEST_F(AnnotatedSamplesTest, RecordsHaveTheirBoxes) {
  Write();
  auto source = Open(kAnnotatedRecords, 1);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_TRUE(boxes_);
  EXPECT_EQ((*source)->image_shape(), (ImageShape{3, 8, 9}));
  Batch batch;
  ASSERT_TRUE((*source)->Take(kAnnotatedRecords, &batch).ok());
  for (std::size_t i = 0; i < kAnnotatedRecords; ++i) {
    ASSERT_EQ(batch.boxes[i].size(), i);
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_EQ(batch.boxes[i][j].label, static_cast<int>(i));
      EXPECT_EQ(batch.boxes[i][j].instance, static_cast<int>(j));
      EXPECT_EQ(batch.boxes[i][j].difficult, j == 1);
    }
  }
}

TEST_F(AnnotatedSamplesTest, ASampleIsTheSameWhoeverReadsIt) {
  Write();
  auto one = Open(3, 1), many = Open(3, 4);
  ASSERT_TRUE(one.ok() && many.ok());
  Batch first, second;
  for (const std::uint64_t sample : {0, 3, 6, 1}) {
    ASSERT_TRUE((*one)->Take(sample, &first).ok());
    ASSERT_TRUE((*many)->Take(sample, &second).ok());
    EXPECT_TRUE(first.images.equal(second.images));
    for (std::size_t i = 0; i < 3; ++i) {
      ASSERT_EQ(first.boxes[i].size(), second.boxes[i].size());
      for (std::size_t j = 0; j < first.boxes[i].size(); ++j) {
        EXPECT_EQ(first.boxes[i][j].box.x1, second.boxes[i][j].box.x1);
        EXPECT_EQ(first.boxes[i][j].box.y2, second.boxes[i][j].box.y2);
      }
    }
  }
  // Another epoch draws otherwise.
  ASSERT_TRUE((*one)->Take(0, &first).ok());
  ASSERT_TRUE((*many)->Take(kAnnotatedRecords, &second).ok());
  EXPECT_FALSE(first.images.equal(second.images));
}

TEST_F(AnnotatedSamplesTest, BadRecordsAreNamed) {
  const std::string record = "lmdb: record 2 (key 00000002)";
  Write({}, "\xff\xff\xff");
  EXPECT_THAT(Error(), HasSubstr(record + " is corrupt: its 3 bytes are no AnnotatedDatum"));
}
TEST_F(AnnotatedSamplesTest, BadBoxesAreNamed) {
  Write([](AnnotatedDatum* record) {
    record->mutable_annotation_group(0)->mutable_annotation(1)->mutable_bbox()->set_ymax(std::numeric_limits<float>::quiet_NaN());
  });
  EXPECT_THAT(Error(), HasSubstr("lmdb: record 2 (key 00000002) is corrupt: a box of label 2 has the side nan"));
}
TEST_F(AnnotatedSamplesTest, BadImagesAreNamed) {
  Write([](AnnotatedDatum* record) { record->mutable_datum()->mutable_data()->resize(200); });
  EXPECT_THAT(Error(), HasSubstr("lmdb: record 2 (key 00000002)"));
}
TEST_F(AnnotatedSamplesTest, NumbersAreNoImage) {
  Write([](AnnotatedDatum* record) {
    record->clear_datum();
    record->mutable_datum()->set_channels(1);
    record->mutable_datum()->set_height(1);
    record->mutable_datum()->set_width(1);
    record->mutable_datum()->add_float_data(1);
  });
  EXPECT_THAT(Error(), HasSubstr("record 2 (key 00000002) holds numbers of an image"));
}

TEST_F(AnnotatedSamplesTest, BoxesOutsideAndInsideOutAreGone) {
  Write([](AnnotatedDatum* record) {
    NormalizedBBox* const outside = record->mutable_annotation_group(0)->mutable_annotation(0)->mutable_bbox();
    outside->set_xmin(1.5F);
    outside->set_xmax(1e38F);
    record->mutable_annotation_group(0)->mutable_annotation(1)->mutable_bbox()->set_xmin(0.9F);
  });
  auto source = Open(kAnnotatedRecords, 1);
  ASSERT_TRUE(source.ok());
  Batch batch;
  ASSERT_TRUE((*source)->Take(0, &batch).ok());
  EXPECT_TRUE(batch.boxes[2].empty());
  EXPECT_EQ(batch.boxes[3].size(), 3U);
}

// A database without types: labels, or boxes where the layer says so.
TEST_F(AnnotatedSamplesTest, TheTypeMayBeTheLayers) {
  auto writer = CreateLmdb(path_, 10'000'000);
  for (std::uint64_t i = 0; i < kAnnotatedRecords; ++i) {
    AnnotatedDatum record = TestRecord(i);
    record.clear_type();
    record.mutable_datum()->set_label(static_cast<int>(10 + i));
    ASSERT_TRUE((*writer)->Put(TestKey(i), record.SerializeAsString()).ok());
  }
  ASSERT_TRUE((*writer)->Finish().ok());
  Batch batch;
  auto labels = Open(kAnnotatedRecords, 1);
  ASSERT_TRUE(labels.ok());
  EXPECT_FALSE(boxes_);
  ASSERT_TRUE((*labels)->Take(0, &batch).ok());
  EXPECT_EQ(batch.labels.const_data_ptr<float>()[3], 13);
  auto boxes = Open(kAnnotatedRecords, 1, true);
  ASSERT_TRUE(boxes.ok());
  EXPECT_TRUE(boxes_);
  ASSERT_TRUE((*boxes)->Take(0, &batch).ok());
  EXPECT_EQ(batch.boxes[3].size(), 3U);
}

// Whatever is done to a record's bytes, there is a sample or a sentence that names the record.
TEST_F(AnnotatedSamplesTest, SurvivesDamage) {
  std::minstd_rand random(1);
  int whole = 0, refused = 0;
  for (int turn = 0; turn < 60; ++turn) {
    const std::string path = folder_ / ("damaged" + std::to_string(turn));
    auto writer = CreateLmdb(path, 10'000'000);
    ASSERT_TRUE((*writer)->Put(TestKey(0), TestRecord(0).SerializeAsString()).ok());
    std::string bytes = TestRecord(3).SerializeAsString();
    for (auto changes = 1 + random() % 6; changes > 0; --changes) {
      // Boxes are at the end.
      const std::size_t at = random() % 2 == 0 ? random() % bytes.size() : bytes.size() - 1 - random() % 100;
      bytes[at] = static_cast<char>(random());
    }
    ASSERT_TRUE((*writer)->Put(TestKey(1), bytes).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
    auto source = Open(2, 1, false, path);
    ASSERT_TRUE(source.ok()) << source.status().message();
    Batch batch;
    const Status status = (*source)->Take(0, &batch);
    (status.ok() ? whole : refused) += 1;
    EXPECT_THAT(status.message(), HasSubstr(status.ok() ? "" : "record 1 (key 00000001)"));
  }
  EXPECT_GT(whole, 5);
  EXPECT_GT(refused, 5);
}

}  // namespace
}  // namespace poseidon::caffe
