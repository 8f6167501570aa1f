// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_TRANSFORMER_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_TRANSFORMER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "frontends/caffe/data/image_input.h"
#include "frontends/caffe/data/random_words.h"
#include "frontends/caffe/data/sample.h"
#include "frontends/caffe/proto/caffe.pb.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// The image of mean_file, a BlobProto; nothing where there is none. Refused: mean_value beside it, a file with other
// numbers than its shape has.
Result<MeanPixels> ReadMeanFile(const TransformationParameter& parameters);

// Steps of transform_param that the layers of one type alone take, and those of layers whose images are a part of the file's.
enum class Steps { kOfAll, kOfObjects, kOfPairs, kOfVideos, kOfWindows };

// Fails where transform_param has a step that is neither of all layers nor among `taken`.
Status CheckSteps(const TransformationParameter& parameters, Steps taken);

// Caffe's transform_param: crop by crop_size or SSD's crop_h and crop_w (at random when training, else the centre), mirror (at random, when
// testing too), minus mean (an image of the source's size, or a value per channel), times scale.
// Copies compare nothing and share nothing. Thread: Apply may be called from several at once.
class Transformer {
 public:
  // Reads mean_file, a BlobProto, if there is one.
  static Result<Transformer> Make(const TransformationParameter& parameters, Phase phase);

  bool crops() const { return crop_height_ > 0; }
  // The shape that samples of `shape` become; an error when they are smaller than the crop or the
  // mean does not fit them. `where` names the source.
  Result<ImageShape> OutputShape(const ImageShape& shape, const std::string& where) const;

  // Which part of a sample of `shape` is used, and whether it is mirrored.
  struct Cut {
    bool mirror;
    std::int64_t top, left, height, width;
  };
  Cut CutOf(const ImageShape& shape, const RandomWords& random) const;

  // Writes the transformed sample, whose shape OutputShape accepted, to `out`, which has room for
  // it.
  template <typename T>
  void Apply(const Sample& sample, const RandomWords& random, T* out) const;

 private:
  Transformer() = default;

  Phase phase_ = TRAIN;
  std::int64_t crop_height_ = 0, crop_width_ = 0;  // zeros: the whole sample
  bool mirror_ = false;
  float scale_ = 1;
  std::string mean_file_;
  ImageShape mean_shape_;
  std::vector<float> mean_image_;   // empty without mean_file
  std::vector<float> mean_values_;  // empty, one for all channels, or one per channel
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_TRANSFORMER_H_
