// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_SAMPLE_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_SAMPLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "frontends/caffe/data/box.h"
#include "frontends/caffe/data/image.h"
#include "frontends/caffe/data/record_source.h"
#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// A decoded record: planes of bytes or of floats (the other pointer is null), and its label. The
// pixels belong to the decoder that made it, until its next call.
struct Sample {
  ImageShape shape;
  const std::uint8_t* bytes = nullptr;
  const float* floats = nullptr;
  std::int32_t label = 0;
  const std::vector<LabelledBox>* boxes = nullptr;  // of sources that have some
};

// Makes a sample of `datum`, to which it points, or to *decoded where that is an encoded image. `where` names the record in an error.
Status DecodeDatum(const Datum& datum, Channels channels, const std::string& where, Image* decoded, Sample* sample);

// Turns records that hold a Datum into samples. `where` names the record in an error.
// Thread: one at a time.
class SampleDecoder {
 public:
  explicit SampleDecoder(Channels channels) : channels_(channels) {}
  // The two steps at once.
  Status Decode(const Record& record, const std::string& where, Sample* sample);
  // Copies what the record holds.
  Status Parse(const Record& record, const std::string& where);
  // Decodes what was parsed last.
  Status Decode(const std::string& where, Sample* sample);
  // Whether what was parsed last is an encoded image.
  bool compressed() const { return datum_.encoded(); }

 private:
  const Channels channels_;
  Datum datum_;
  Image image_;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_SAMPLE_H_
