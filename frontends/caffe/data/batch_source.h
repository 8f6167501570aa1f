// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_BATCH_SOURCE_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_BATCH_SOURCE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "frontends/caffe/data/random_words.h"
#include "frontends/caffe/data/sample_source.h"
#include "frontends/caffe/data/transformer.h"
#include "poseidon/base/mutex.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// `rows` consecutive samples: images [rows, channels, height, width], labels [rows], and by row the boxes of sources that have some.
struct Batch {
  at::Tensor images;
  at::Tensor labels;
  std::vector<std::vector<LabelledBox>> boxes;
};

// Whether nobody else has the tensor, or a view of its memory.
bool IsOurs(const at::Tensor& tensor);

// Batches from a source of samples, read ahead by threads of its own: one fetches at a time, all decode and transform side by
// side. What a batch holds depends on its samples' numbers alone.
//
// Whoever asks says where a batch begins; the source reads ahead in strides. Asking for another place than the expected one is
// right but waits for it to be read.
//
// Thread: one consumer. The destructor ends the threads after the samples under way.
class BatchSource {
 public:
  struct Options {
    std::int64_t rows = 1;
    // Images of a batch of one row may have any size.
    bool any_size = false;
    // From the first sample of a batch to that of the batch we want next.
    std::uint64_t stride = 1;
    // Batches read ahead, at least 1.
    std::size_t ahead = 4;
    // Threads where samples are compressed, at least 1. Others are read by one, which is faster than any net.
    std::size_t threads = 1;
    at::ScalarType dtype = at::kFloat;
    bool pinned = false;  // memory that copies to a device reach at full speed
    SampleDraw draw;
  };

  // Decodes sample 0, which sets the shape of all.
  static Result<std::unique_ptr<BatchSource>> Open(std::unique_ptr<SampleSource> samples, Options options,
                                                   Transformer transformer);
  ~BatchSource();
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;

  const ImageShape& image_shape() const { return image_shape_; }
  const SampleSource& samples() const { return *samples_; }
  std::size_t threads() const { return readers_.size(); }

  // Puts the batch that begins at sample `first` into *batch; blocks until it is read. The memory
  // that *batch held before is used again once nobody else has a tensor on it. After an error, which is that of the batch's
  // first bad sample, *batch is as before; asking again tries again.
  Status Take(std::uint64_t first, Batch* batch);

 private:
  // A batch on its way. Threads take its rows in order and finish them in any.
  struct Pending {
    std::uint64_t first = 0;
    Batch batch;
    std::int64_t taken = 0;
    std::int64_t finished = 0;
    std::int64_t failed = 0;  // the first row that failed, where `status` says that one did
    Status status;
    bool dropped = false;  // another course was taken meanwhile
  };
  using PendingBatch = std::shared_ptr<Pending>;

  BatchSource(std::unique_ptr<SampleSource> samples, Options options, Transformer transformer);
  Status ReadFirstSample();
  void Start();

  void ReadAhead(SampleReader* reader);
  // Whether there is a row to be read now.
  bool HasRow() const POSEIDON_REQUIRES(mutex_);
  // The batch whose rows are taken now.
  PendingBatch Current() POSEIDON_REQUIRES(mutex_);
  Status Fetch(SampleReader* reader, std::int64_t row, Pending* pending) const;
  Status FillRow(SampleReader* reader, std::uint64_t sample, std::int64_t row, Batch* batch) const;
  Status CheckShape(const SampleReader& reader, const ImageShape& shape) const;
  // What an allocator threw: for want of memory of the host, with the batch; or for a device that fails, with its words.
  Status NoMemory(const std::exception& thrown) const;
  void Finish(std::int64_t row, Status status, Pending* pending) POSEIDON_REQUIRES(mutex_);
  bool IsDone(const Pending& pending) const;

  // Drops what is on its way and goes on at `first`.
  void GoTo(std::uint64_t first) POSEIDON_REQUIRES(mutex_);
  // An idle batch that nobody looks at any more, else an empty one.
  Batch TakeIdle() POSEIDON_REQUIRES(mutex_);
  void PutIdle(Batch batch) POSEIDON_REQUIRES(mutex_);
  Batch Fresh() const;
  at::Tensor FreshImages(const ImageShape& shape) const;

  const std::unique_ptr<SampleSource> samples_;
  const Options options_;
  const Transformer transformer_;
  std::vector<std::unique_ptr<SampleReader>> readers_;  // one for each thread
  ImageShape stored_shape_;
  ImageShape image_shape_;

  Mutex mutex_;
  ConditionVariable work_;   // there may be a row to be read
  ConditionVariable ready_;  // the first batch may be done
  bool stopping_ POSEIDON_GUARDED_BY(mutex_) = false;
  bool fetching_ POSEIDON_GUARDED_BY(mutex_) = false;  // one of the threads is
  bool asked_ POSEIDON_GUARDED_BY(mutex_) = false;     // not since the last failure: what follows would be for nobody
  std::uint64_t next_ POSEIDON_GUARDED_BY(mutex_) = 0;  // where the batch after those begins
  std::deque<PendingBatch> pending_ POSEIDON_GUARDED_BY(mutex_);  // in the order of their samples, at most `ahead`
  std::vector<Batch> idle_ POSEIDON_GUARDED_BY(mutex_);

  std::vector<std::thread> threads_;  // none before the first batch is asked for
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_BATCH_SOURCE_H_
