// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_BATCH_SOURCE_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_BATCH_SOURCE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "frontends/caffe/data/record_source.h"
#include "frontends/caffe/data/sample.h"
#include "frontends/caffe/data/transformer.h"
#include "poseidon/base/mutex.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// `rows` consecutive samples: images [rows, channels, height, width] and labels [rows].
struct Batch {
  at::Tensor images;
  at::Tensor labels;
};

// Random bits for a sample number. Called on the reading thread; must be pure.
using SampleDraw = std::function<RandomWords(std::uint64_t sample)>;

// Batches from a database, read ahead by one thread.
//
// Samples are numbered along an endless sequence, the database over and over in key order: sample g
// is record g mod size. Whoever asks says where a batch begins; the source reads ahead in strides.
// Asking for another place than the expected one is right but waits for it to be read.
//
// Thread: one consumer. The destructor ends the thread after the record under way.
class BatchSource {
 public:
  struct Options {
    Database database = Database::kLmdb;
    std::string path;
    std::int64_t rows = 1;
    // From the first sample of a batch to that of the batch we want next.
    std::uint64_t stride = 1;
    // Batches read ahead, at least 1.
    std::size_t ahead = 4;
    at::ScalarType dtype = at::kFloat;
    Channels channels = Channels::kAsStored;
    SampleDraw draw;
  };

  // Opens the database and decodes its first record, which sets the shape of all.
  static Result<std::unique_ptr<BatchSource>> Open(Options options, Transformer transformer);
  ~BatchSource();
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;

  const ImageShape& image_shape() const { return image_shape_; }
  std::uint64_t records() const { return records_->size(); }

  // Puts the batch that begins at sample `first` into *batch; blocks until it is read. The memory
  // that *batch held before is used again once nobody else has a tensor on it. After an error
  // *batch is as before; asking again tries again.
  Status Take(std::uint64_t first, Batch* batch);

 private:
  struct Read {
    std::uint64_t first;
    Status status;
    Batch batch;
  };

  BatchSource(Options options, Transformer transformer, std::unique_ptr<RecordSource> records);
  Status ReadFirstRecord();
  void ReadAhead();
  Status Fill(std::uint64_t first, Batch* batch);
  Status FillRow(std::uint64_t sample, std::int64_t row, Batch* batch);
  // An idle batch that nobody looks at any more, else an empty one.
  Batch TakeIdle() POSEIDON_REQUIRES(mutex_);
  Batch Fresh() const;

  const Options options_;
  const Transformer transformer_;
  // Used by Open, then by the reading thread alone.
  const std::unique_ptr<RecordSource> records_;
  SampleDecoder decoder_;
  ImageShape stored_shape_;
  ImageShape image_shape_;

  Mutex mutex_;
  ConditionVariable changed_;
  bool started_ POSEIDON_GUARDED_BY(mutex_) = false;
  bool stopping_ POSEIDON_GUARDED_BY(mutex_) = false;
  std::uint64_t next_ POSEIDON_GUARDED_BY(mutex_) = 0;  // where the reader goes on
  // The batch that it reads on the present course.
  std::optional<std::uint64_t> reading_ POSEIDON_GUARDED_BY(mutex_);
  // Counts changes of direction; what was read on an older one is dropped.
  std::uint64_t course_ POSEIDON_GUARDED_BY(mutex_) = 0;
  std::deque<Read> ready_ POSEIDON_GUARDED_BY(mutex_);
  std::vector<Batch> idle_ POSEIDON_GUARDED_BY(mutex_);

  std::thread reader_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_BATCH_SOURCE_H_
