// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/batch_source.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "frontends/caffe/engine/engine_failure.h"
#include "poseidon/base/check.h"

namespace poseidon::caffe {

BatchSource::BatchSource(std::unique_ptr<SampleSource> samples, Options options, Transformer transformer)
    : samples_(std::move(samples)), options_(std::move(options)), transformer_(std::move(transformer)) {}

Result<std::unique_ptr<BatchSource>> BatchSource::Open(std::unique_ptr<SampleSource> samples, Options options,
                                                       Transformer transformer) {
  POSEIDON_CHECK(options.rows > 0 && (options.rows == 1 || !options.any_size) && options.stride > 0 && options.ahead > 0 &&
                     options.threads > 0 && options.draw,
                 "a batch source needs rows (one where they have any size), a stride, a queue, a thread and a draw");
  POSEIDON_CHECK(options.dtype == at::kFloat || options.dtype == at::kDouble,
                 "batches are float or double");
  std::unique_ptr<BatchSource> source(new BatchSource(std::move(samples), std::move(options), std::move(transformer)));
  POSEIDON_RETURN_IF_ERROR(source->ReadFirstSample());
  return source;
}

BatchSource::~BatchSource() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  work_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

Status BatchSource::ReadFirstSample() {
  readers_.push_back(samples_->MakeReader());
  SampleReader& reader = *readers_.front();
  Sample sample;
  POSEIDON_RETURN_IF_ERROR(reader.Fetch(0));
  POSEIDON_RETURN_IF_ERROR(reader.Decode(&sample));
  stored_shape_ = sample.shape;
  POSEIDON_ASSIGN_OR_RETURN(image_shape_, transformer_.OutputShape(sample.shape, samples_->name()));
  while (reader.compressed() && readers_.size() < options_.threads) readers_.push_back(samples_->MakeReader());
  return OkStatus();
}

void BatchSource::Start() {
  if (!threads_.empty()) return;
  threads_.reserve(readers_.size());
  for (const auto& reader : readers_) threads_.emplace_back(&BatchSource::ReadAhead, this, reader.get());
}

Status BatchSource::Take(std::uint64_t first, Batch* batch) {
  Start();
  MutexLock lock(mutex_);
  if (first != (pending_.empty() ? next_ : pending_.front()->first)) GoTo(first);
  asked_ = true;
  work_.NotifyAll();
  while (pending_.empty() || !IsDone(*pending_.front())) ready_.Wait(lock);
  const PendingBatch taken = std::move(pending_.front());
  pending_.pop_front();
  if (!taken->status.ok()) {
    asked_ = false;
    PutIdle(std::move(taken->batch));
    GoTo(first);
    return taken->status;
  }
  PutIdle(std::move(*batch));
  *batch = std::move(taken->batch);
  lock.Unlock();
  work_.NotifyAll();
  return OkStatus();
}

void BatchSource::GoTo(std::uint64_t first) {
  for (const PendingBatch& pending : pending_) {
    pending->dropped = true;
    if (pending->finished == pending->taken) PutIdle(std::move(pending->batch));
  }
  pending_.clear();
  next_ = first;
}

// A row is taken and fetched by the thread that has `fetching_`, so that what the source reads is in order.
void BatchSource::ReadAhead(SampleReader* reader) {
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && (fetching_ || !HasRow())) work_.Wait(lock);
    if (stopping_) return;
    const PendingBatch pending = Current();
    const std::int64_t row = pending->taken++;
    fetching_ = true;
    lock.Unlock();
    Status status = Fetch(reader, row, pending.get());
    lock.Lock();
    fetching_ = false;
    lock.Unlock();
    if (readers_.size() > 1) work_.NotifyOne();
    if (status.ok()) status = FillRow(reader, pending->first + static_cast<std::uint64_t>(row), row, &pending->batch);
    lock.Lock();
    Finish(row, std::move(status), pending.get());
  }
}

bool BatchSource::HasRow() const {
  if (!asked_) return false;
  for (const PendingBatch& pending : pending_) {
    if (!pending->status.ok()) return false;
  }
  return pending_.size() < options_.ahead || pending_.back()->taken < options_.rows;
}

BatchSource::PendingBatch BatchSource::Current() {
  if (pending_.empty() || pending_.back()->taken == options_.rows) {
    auto pending = std::make_shared<Pending>();
    pending->first = next_;
    pending->batch = TakeIdle();
    next_ += options_.stride;
    pending_.push_back(std::move(pending));
  }
  return pending_.back();
}

// Whoever has the first row makes the memory, before another can have the second.
Status BatchSource::Fetch(SampleReader* reader, std::int64_t row, Pending* pending) const {
  try {
    if (!pending->batch.images.defined()) pending->batch = Fresh();
    return reader->Fetch(pending->first + static_cast<std::uint64_t>(row));
  } catch (const std::exception& error) {  // of the allocators; nobody else is there to catch it
    return NoMemory(error);
  }
}

void BatchSource::Finish(std::int64_t row, Status status, Pending* pending) {
  ++pending->finished;
  if (!status.ok() && (pending->status.ok() || row < pending->failed)) {
    pending->failed = row;
    pending->status = std::move(status);
  }
  if (pending->dropped) {
    if (pending->finished == pending->taken) PutIdle(std::move(pending->batch));
  } else if (IsDone(*pending) && pending == pending_.front().get()) {
    ready_.NotifyAll();
  }
}

// Of a batch that failed no more rows are taken; those before the one that failed are all on their way.
bool BatchSource::IsDone(const Pending& pending) const {
  return pending.finished == (pending.status.ok() ? options_.rows : pending.taken);
}

bool IsOurs(const at::Tensor& tensor) { return tensor.use_count() == 1 && tensor.storage().use_count() == 1; }

// The consumer may have handed its tensors on, to a net's blob or to NumPy, so only memory without any other user is written again.
Batch BatchSource::TakeIdle() {
  for (auto batch = idle_.begin(); batch != idle_.end(); ++batch) {
    if (IsOurs(batch->images) && IsOurs(batch->labels)) {
      Batch taken = std::move(*batch);
      idle_.erase(batch);
      return taken;
    }
  }
  return {};
}

void BatchSource::PutIdle(Batch batch) {
  if (batch.images.defined()) idle_.push_back(std::move(batch));
}

Batch BatchSource::Fresh() const {
  const auto options = at::TensorOptions().dtype(options_.dtype).pinned_memory(options_.pinned);
  return {.images = FreshImages(image_shape_),
          .labels = at::empty({options_.rows}, options),
          .boxes = std::vector<std::vector<LabelledBox>>(static_cast<std::size_t>(options_.rows))};
}

at::Tensor BatchSource::FreshImages(const ImageShape& shape) const {
  return at::empty({options_.rows, shape.channels, shape.height, shape.width}, at::TensorOptions().dtype(options_.dtype).pinned_memory(options_.pinned));
}

Status BatchSource::NoMemory(const std::exception& thrown) const {
  Status failure = EngineFailure(thrown);
  if (failure.code() == StatusCode::kUnavailable) return failure.WithPrefix(samples_->name());  // a device that fails pins none either
  return ResourceExhausted(samples_->name() + ": out of memory for a batch of " + std::to_string(options_.rows) + " images of " +
                           ToString(image_shape_));
}

// Images of several sizes are fine where all are cropped to one.
Status BatchSource::CheckShape(const SampleReader& reader, const ImageShape& shape) const {
  if (shape == stored_shape_ || options_.any_size) return OkStatus();
  POSEIDON_ASSIGN_OR_RETURN(const ImageShape becomes, transformer_.OutputShape(shape, reader.where()));
  if (becomes == image_shape_) return OkStatus();
  return DataLoss(reader.where() + " is " + ToString(shape) + ", expected " + ToString(stored_shape_) + " like the first");
}

Status BatchSource::FillRow(SampleReader* reader, std::uint64_t sample_number, std::int64_t row, Batch* batch) const {
  try {
    Sample sample;
    POSEIDON_RETURN_IF_ERROR(reader->Decode(&sample));
    POSEIDON_RETURN_IF_ERROR(CheckShape(*reader, sample.shape));
    const RandomWords random = options_.draw(sample_number);
    if (options_.any_size && !(sample.shape == ImageShape{batch->images.size(1), batch->images.size(2), batch->images.size(3)})) {
      batch->images = FreshImages(sample.shape);
    }
    const std::int64_t offset = row * image_shape_.count();
    if (options_.dtype == at::kDouble) {
      transformer_.Apply(sample, random, batch->images.mutable_data_ptr<double>() + offset);
      batch->labels.mutable_data_ptr<double>()[row] = sample.label;
    } else {
      transformer_.Apply(sample, random, batch->images.mutable_data_ptr<float>() + offset);
      batch->labels.mutable_data_ptr<float>()[row] = static_cast<float>(sample.label);
    }
    if (sample.boxes != nullptr) batch->boxes[static_cast<std::size_t>(row)] = *sample.boxes;
    return OkStatus();
  } catch (const std::exception& error) {
    return NoMemory(error);
  }
}

}  // namespace poseidon::caffe
