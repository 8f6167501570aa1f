// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/layers/batch_layer.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "frontends/caffe/net/random.h"

namespace poseidon::caffe {
namespace {

// One for each that computes: an image is decoded in less time than it takes through a net. More than eight read a disk no faster.
std::size_t DecodingThreads() { return static_cast<std::size_t>(std::clamp(at::get_num_threads(), 1, 8)); }

}  // namespace

Status BatchLayer::CheckRows(std::uint32_t rows) const {
  return rows > 0 ? OkStatus() : InvalidArgument("batch_size is 0, expected at least 1");
}

Result<BatchLayer::Opening> BatchLayer::OpeningOf(const DataParameter& data, const TransformationParameter& transform) const {
  POSEIDON_RETURN_IF_ERROR(CheckRows(data.batch_size()));
  if (transform.force_color() && transform.force_gray()) return InvalidArgument("has both force_color and force_gray, expected one");
  const Channels channels = transform.force_color() ? Channels::kColour : transform.force_gray() ? Channels::kGrey : Channels::kAsStored;
  POSEIDON_ASSIGN_OR_RETURN(SourcePart part, PartOf(data.source(), data.shared_file_system(), context().share.rank, context().share.world));
  return Opening{.database = data.backend() == DataParameter::LMDB ? Database::kLmdb : Database::kLevelDb,
                 .channels = channels,
                 .reading = {.rows = data.batch_size(), .rand_skip = data.rand_skip(), .ahead = data.prefetch(), .part = std::move(part)}};
}

Status BatchLayer::ReadFrom(std::unique_ptr<SampleSource> samples, const Reading& reading,
                            const TransformationParameter& transform) {
  POSEIDON_ASSIGN_OR_RETURN(Transformer transformer, Transformer::Make(transform, phase()));
  rows_ = static_cast<std::int64_t>(reading.rows);
  BatchSource::Options options;
  options.rows = rows_;
  options.any_size = reading.any_size;
  own_part_ = reading.part.own;
  options.stride = static_cast<std::uint64_t>(rows_) * (own_part_ ? 1 : static_cast<std::uint64_t>(context().share.world));
  options.ahead = std::max<std::size_t>(1, reading.ahead);
  options.threads = DecodingThreads();
  options.dtype = context().dtype;
  options.pinned = context().feeds_device;
  options.draw = [blocks = Blocks(reading.part.suffix)](std::uint64_t sample) { return blocks(sample, 0); };
  // The same number on all workers: they share the samples from there on.
  if (reading.rand_skip > 0) {
    const RandomStream skips(context().seed, RandomPurpose::kSkip, unique_name(), 0);
    skip_ = skips.Draw(0, 0)[0] % reading.rand_skip;
  }
  POSEIDON_ASSIGN_OR_RETURN(source_, BatchSource::Open(std::move(samples), std::move(options), std::move(transformer)));
  return OkStatus();
}

// Equal numbers are other samples in another worker's part.
SampleBlocks BatchLayer::Blocks(const std::string& suffix) const {
  const RandomStream stream(context().seed, RandomPurpose::kTransform, unique_name() + suffix, phase() == TRAIN ? 0 : 1);
  return [stream](std::uint64_t sample, std::uint64_t block) { return stream.Draw(sample, block); };
}

EpochDraw BatchLayer::Shuffle(const std::string& suffix) const {
  return [seed = context().seed, name = unique_name() + suffix](std::uint64_t epoch) -> EpochBits {
    const RandomStream stream(seed, RandomPurpose::kShuffle, name, epoch);
    return [stream](std::uint64_t number) { return stream.Draw(number, 0)[0]; };
  };
}

Status BatchLayer::Reshape(const Blobs& /*bottom*/, const Blobs& top) {
  ShapeTops(rows_, source_->image_shape(), top);
  return OkStatus();
}

void BatchLayer::ShapeTops(std::int64_t rows, const ImageShape& image, const Blobs& top) {
  SetShape(top[0], {rows, image.channels, image.height, image.width}, options());
  if (top.size() > 1) SetShape(top[1], {rows}, options());
}

std::uint64_t BatchLayer::FirstSample(std::uint64_t batch) const {
  const auto rows = static_cast<std::uint64_t>(rows_);
  const bool trains = phase() == TRAIN;
  if (own_part_) return FirstSampleOfPart(batch, trains, context().share, rows);
  return trains ? FirstTrainSample(batch, context().share, rows) : FirstTestSample(batch, rows);
}

Status BatchLayer::Forward(const Blobs& /*bottom*/, const Blobs& top) {
  const std::uint64_t first = FirstSample(context().pass->batch);
  POSEIDON_RETURN_IF_ERROR(source_->Take(skip_ + first, &batch_));
  first_ = skip_ + first;
  FillTops(batch_, top);
  return OkStatus();
}

// No copy; what they were goes back to the readers.
void BatchLayer::FillTops(const Batch& batch, const Blobs& top) {
  top[0]->data = batch.images;
  if (top.size() > 1) top[1]->data = batch.labels;
}

std::string BatchLayer::RecordAt(std::int64_t row) const {
  return source_->samples().OriginOf(first_ + static_cast<std::uint64_t>(row));
}

}  // namespace poseidon::caffe
