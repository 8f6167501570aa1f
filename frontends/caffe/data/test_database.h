// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_TEST_DATABASE_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_TEST_DATABASE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

#include "frontends/caffe/data/lmdb_writer.h"
#include "frontends/caffe/proto/caffe.pb.h"

namespace poseidon::caffe {

// For tests: a folder of its own, gone with the object.
class TestFolder {
 public:
  TestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "poseidon-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

inline std::string TestKey(std::uint64_t number) {
  char key[32];
  std::snprintf(key, sizeof key, "%08llu", static_cast<unsigned long long>(number));
  return key;
}

// An image whose pixels encode its number and their place, with the number as label.
inline Datum TestDatum(std::uint64_t number, int channels, int height, int width) {
  Datum datum;
  datum.set_channels(channels);
  datum.set_height(height);
  datum.set_width(width);
  datum.set_label(static_cast<int>(number));
  for (int i = 0; i < channels * height * width; ++i) {
    datum.mutable_data()->push_back(
        static_cast<char>((number * 31 + static_cast<unsigned>(i)) & 255));
  }
  return datum;
}

// An LMDB of `count` such images.
inline void WriteTestDatabase(const std::string& path, std::uint64_t count, int channels = 1,
                              int height = 2, int width = 3) {
  auto writer = CreateLmdb(path, count * 100'000);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string value = TestDatum(i, channels, height, width).SerializeAsString();
    ASSERT_TRUE((*writer)->Put(TestKey(i), value).ok());
  }
  const Status finished = (*writer)->Finish();
  ASSERT_TRUE(finished.ok()) << finished.ToString();
}

// An LMDB of `count` images image(i) with i mod 3 objects, of labels from 1 on: object k is in box(i, k).
template <typename Image, typename Box>
void WriteObjectsDatabase(const std::string& path, std::uint64_t count, const Image& image, const Box& box) {
  auto writer = CreateLmdb(path, 10'000'000);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  for (std::uint64_t i = 0; i < count; ++i) {
    AnnotatedDatum record;
    *record.mutable_datum() = image(i);
    record.set_type(AnnotatedDatum::BBOX);
    for (std::uint64_t k = 0; k < i % 3; ++k) {
      AnnotationGroup* const group = record.add_annotation_group();
      group->set_group_label(static_cast<int>(1 + k));
      *group->add_annotation()->mutable_bbox() = box(i, k);
    }
    ASSERT_TRUE((*writer)->Put(TestKey(i), record.SerializeAsString()).ok());
  }
  ASSERT_TRUE((*writer)->Finish().ok());
}

inline NormalizedBBox TestBox(float x1, float y1, float x2, float y2) {
  NormalizedBBox box;
  box.set_xmin(x1);
  box.set_ymin(y1);
  box.set_xmax(x2);
  box.set_ymax(y2);
  return box;
}

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_TEST_DATABASE_H_
