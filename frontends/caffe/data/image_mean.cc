// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/image_mean.h"

#include <cstddef>
#include <string>

#include "frontends/caffe/data/sample.h"

namespace poseidon::caffe {
namespace {

constexpr std::uint64_t kRecordsBetweenWords = 10'000;

template <typename Pixel>
void Add(const Pixel* pixels, std::vector<double>* sums) {
  for (std::size_t i = 0; i < sums->size(); ++i) (*sums)[i] += static_cast<double>(pixels[i]);
}

ImageMean MeanOf(const std::vector<double>& sums, const ImageShape& shape, std::uint64_t records) {
  ImageMean mean{.records = records};
  mean.image.set_num(1);
  mean.image.set_channels(static_cast<int>(shape.channels));
  mean.image.set_height(static_cast<int>(shape.height));
  mean.image.set_width(static_cast<int>(shape.width));
  mean.image.mutable_data()->Reserve(static_cast<int>(sums.size()));
  for (const double sum : sums) mean.image.add_data(static_cast<float>(sum / static_cast<double>(records)));
  const auto plane = static_cast<int>(shape.height * shape.width);
  for (int c = 0; c < shape.channels; ++c) {
    double sum = 0;
    for (int i = 0; i < plane; ++i) sum += double{mean.image.data(c * plane + i)};
    mean.channels.push_back(sum / plane);
  }
  return mean;
}

}  // namespace

Result<ImageMean> ComputeImageMean(RecordSource* records, const std::function<void(std::uint64_t)>& progress) {
  SampleDecoder decoder(Channels::kAsStored);
  ImageShape shape;
  std::vector<double> sums;
  for (std::uint64_t i = 0; i < records->size(); ++i) {
    const std::string where = "database " + records->path() + ": record " + std::to_string(i);
    POSEIDON_ASSIGN_OR_RETURN(const Record record, records->At(i));
    Sample sample;
    POSEIDON_RETURN_IF_ERROR(decoder.Decode(record, where, &sample));
    if (i == 0) {
      shape = sample.shape;
      sums.resize(static_cast<std::size_t>(shape.count()));
    }
    if (sample.shape != shape) {
      return InvalidArgument(where + " is " + ToString(sample.shape) + ", expected " + ToString(shape) +
                             " as record 0: images of one size have a mean");
    }
    if (sample.bytes != nullptr) Add(sample.bytes, &sums);
    else Add(sample.floats, &sums);
    if (progress && (i + 1) % kRecordsBetweenWords == 0) progress(i + 1);
  }
  return MeanOf(sums, shape, records->size());
}

}  // namespace poseidon::caffe
