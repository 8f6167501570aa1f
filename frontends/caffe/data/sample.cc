// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/sample.h"

#include <limits>

#include "frontends/caffe/data/encoded_image.h"

namespace poseidon::caffe {

Status SampleDecoder::Decode(const Record& record, const std::string& where, Sample* sample) {
  POSEIDON_RETURN_IF_ERROR(Parse(record, where));
  return Decode(where, sample);
}

Status SampleDecoder::Parse(const Record& record, const std::string& where) {
  if (record.value.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) ||
      !datum_.ParseFromArray(record.value.data(), static_cast<int>(record.value.size()))) {
    return DataLoss(where + " is corrupt: its " + std::to_string(record.value.size()) +
                    " bytes are no Datum");
  }
  return OkStatus();
}

Status DecodeDatum(const Datum& datum, Channels channels, const std::string& where, Image* decoded, Sample* sample) {
  *sample = Sample{};
  sample->label = datum.label();
  if (datum.encoded()) {
    POSEIDON_RETURN_IF_ERROR(DecodeImage(datum.data(), channels, where, decoded));
    sample->shape = decoded->shape;
    sample->bytes = decoded->planes.data();
    return OkStatus();
  }
  // Each dimension fits 31 bits, so the product of two fits 62: checked before the third.
  const ImageShape shape{datum.channels(), datum.height(), datum.width()};
  constexpr std::int64_t kMostPixels = std::int64_t{1} << 31;
  if (shape.channels <= 0 || shape.height <= 0 || shape.width <= 0 ||
      shape.height * shape.width > kMostPixels || shape.count() > kMostPixels) {
    return DataLoss(where + " is corrupt: its image is " + ToString(shape) +
                    ", expected positive dimensions");
  }
  const auto stored = static_cast<std::int64_t>(datum.data().empty() ? datum.float_data_size()
                                                                      : datum.data().size());
  if (stored != shape.count()) {
    return DataLoss(where + " is corrupt: it holds " + std::to_string(stored) +
                    " pixels, expected " + std::to_string(shape.count()) + " for " +
                    ToString(shape));
  }
  sample->shape = shape;
  if (datum.data().empty()) {
    sample->floats = datum.float_data().data();
  } else {
    sample->bytes = reinterpret_cast<const std::uint8_t*>(datum.data().data());
  }
  return OkStatus();
}

Status SampleDecoder::Decode(const std::string& where, Sample* sample) { return DecodeDatum(datum_, channels_, where, &image_, sample); }

}  // namespace poseidon::caffe
