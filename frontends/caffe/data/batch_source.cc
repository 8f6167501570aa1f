// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/batch_source.h"

#include <ATen/ops/empty.h>

#include <exception>
#include <string>
#include <utility>

#include "poseidon/base/check.h"

namespace poseidon::caffe {

BatchSource::BatchSource(Options options, Transformer transformer,
                         std::unique_ptr<RecordSource> records)
    : options_(std::move(options)),
      transformer_(std::move(transformer)),
      records_(std::move(records)),
      decoder_(options_.channels) {}

Result<std::unique_ptr<BatchSource>> BatchSource::Open(Options options, Transformer transformer) {
  POSEIDON_CHECK(options.rows > 0 && options.stride > 0 && options.ahead > 0 && options.draw,
                 "a batch source needs rows, a stride, a queue and a draw");
  POSEIDON_CHECK(options.dtype == at::kFloat || options.dtype == at::kDouble,
                 "batches are float or double");
  POSEIDON_ASSIGN_OR_RETURN(auto records, OpenRecords(options.database, options.path));
  std::unique_ptr<BatchSource> source(
      new BatchSource(std::move(options), std::move(transformer), std::move(records)));
  POSEIDON_RETURN_IF_ERROR(source->ReadFirstRecord());
  return source;
}

BatchSource::~BatchSource() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (reader_.joinable()) reader_.join();
}

Status BatchSource::ReadFirstRecord() {
  POSEIDON_ASSIGN_OR_RETURN(const Record record, records_->At(0));
  Sample sample;
  POSEIDON_RETURN_IF_ERROR(
      decoder_.Decode(record, "database " + options_.path + ": record 0", &sample));
  stored_shape_ = sample.shape;
  POSEIDON_ASSIGN_OR_RETURN(image_shape_,
                            transformer_.OutputShape(sample.shape, "database " + options_.path));
  return OkStatus();
}

Status BatchSource::Take(std::uint64_t first, Batch* batch) {
  MutexLock lock(mutex_);
  const std::uint64_t expected = ready_.empty() ? reading_.value_or(next_) : ready_.front().first;
  if (!started_ || expected != first) {
    for (Read& read : ready_) {
      if (read.status.ok()) idle_.push_back(std::move(read.batch));
    }
    ready_.clear();
    reading_.reset();
    next_ = first;
    ++course_;
  }
  if (!started_) {
    started_ = true;
    reader_ = std::thread(&BatchSource::ReadAhead, this);
  }
  changed_.NotifyAll();
  while (ready_.empty()) changed_.Wait(lock);
  Read read = std::move(ready_.front());
  ready_.pop_front();
  if (!read.status.ok()) {
    next_ = first;
    ++course_;
    return read.status;
  }
  if (batch->images.defined()) idle_.push_back(std::move(*batch));
  *batch = std::move(read.batch);
  lock.Unlock();
  changed_.NotifyAll();
  return OkStatus();
}

// After a failure the reader waits: what follows would be asked for by nobody.
void BatchSource::ReadAhead() {
  MutexLock lock(mutex_);
  std::uint64_t failed_course = 0;
  while (true) {
    while (!stopping_ && (ready_.size() >= options_.ahead || course_ == failed_course)) changed_.Wait(lock);
    if (stopping_) return;
    const std::uint64_t course = course_;
    Read read{.first = next_, .status = OkStatus(), .batch = TakeIdle()};
    reading_ = next_;
    next_ += options_.stride;
    lock.Unlock();
    try {
      if (!read.batch.images.defined()) read.batch = Fresh();
      read.status = Fill(read.first, &read.batch);
    } catch (const std::exception&) {  // of the allocators; nobody else is there to catch it
      read.status = ResourceExhausted("database " + options_.path + ": out of memory for a batch of " +
                                      std::to_string(options_.rows) + " images of " + ToString(image_shape_));
    }
    lock.Lock();
    if (course != course_) {
      idle_.push_back(std::move(read.batch));
      continue;
    }
    reading_.reset();
    if (!read.status.ok()) failed_course = course;
    ready_.push_back(std::move(read));
    changed_.NotifyAll();
  }
}

// The consumer may have handed its tensors on (a layer's factors are still being sent, say), so
// only memory without any other user is written again.
Batch BatchSource::TakeIdle() {
  for (auto batch = idle_.begin(); batch != idle_.end(); ++batch) {
    if (batch->images.storage().use_count() == 1 && batch->labels.storage().use_count() == 1) {
      Batch taken = std::move(*batch);
      idle_.erase(batch);
      return taken;
    }
  }
  return {};
}

Batch BatchSource::Fresh() const {
  const auto options = at::TensorOptions().dtype(options_.dtype);
  return {
      .images = at::empty(
          {options_.rows, image_shape_.channels, image_shape_.height, image_shape_.width}, options),
      .labels = at::empty({options_.rows}, options)};
}

Status BatchSource::Fill(std::uint64_t first, Batch* batch) {
  for (std::int64_t row = 0; row < options_.rows; ++row) {
    POSEIDON_RETURN_IF_ERROR(FillRow(first + static_cast<std::uint64_t>(row), row, batch));
  }
  return OkStatus();
}

Status BatchSource::FillRow(std::uint64_t sample_number, std::int64_t row, Batch* batch) {
  const std::uint64_t position = sample_number % records_->size();
  POSEIDON_ASSIGN_OR_RETURN(const Record record, records_->At(position));
  const std::string where = "database " + options_.path + ": record " + std::to_string(position) +
                            " (key " + std::string(record.key.substr(0, 64)) + ")";
  Sample sample;
  POSEIDON_RETURN_IF_ERROR(decoder_.Decode(record, where, &sample));
  if (!(sample.shape == stored_shape_)) {
    return DataLoss(where + " is " + ToString(sample.shape) + ", expected " +
                    ToString(stored_shape_) + " like record 0");
  }
  const RandomWords random = options_.draw(sample_number);
  const std::int64_t offset = row * image_shape_.count();
  if (options_.dtype == at::kDouble) {
    transformer_.Apply(sample, random, batch->images.mutable_data_ptr<double>() + offset);
    batch->labels.mutable_data_ptr<double>()[row] = sample.label;
  } else {
    transformer_.Apply(sample, random, batch->images.mutable_data_ptr<float>() + offset);
    batch->labels.mutable_data_ptr<float>()[row] = static_cast<float>(sample.label);
  }
  return OkStatus();
}

}  // namespace poseidon::caffe
