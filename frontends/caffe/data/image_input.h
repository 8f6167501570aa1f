// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_INPUT_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_INPUT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "frontends/caffe/data/detector_crop.h"
#include "frontends/caffe/data/float_image.h"
#include "frontends/caffe/data/image.h"
#include "frontends/caffe/data/image_file.h"
#include "poseidon/base/result.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// Reads the numbers of a BlobProto, and the last three axes of its shape, in either of the forms that it has. An error names the file;
// whether the numbers are those of the shape is not looked at.
Result<MeanPixels> ReadMeanBlob(const std::string& path);

// Whether it has as many numbers as its shape, which has sides from 1 to 2^20, asks for.
bool IsWhole(const MeanPixels& mean);

// Reads a mean from a BlobProto (.binaryproto), or from NumPy's .npy with shape [channels], [height, width] or [channels, height,
// width]. An error names the file.
Result<MeanPixels> ReadMeanPixels(const std::string& path);

// The mean over height and width, as a value for each channel.
MeanPixels ValuePerChannel(const MeanPixels& mean);

// How an image becomes what a net classifies. The defaults are those of Caffe's example in C++; pycaffe's Classifier scales first and
// crops then.
struct InputOptions {
  ImageSize scaled;  // before cropping, in floating point; not given: to the net's input, as cv::resize does, and nothing is cropped
  bool ten_crops = false;
  MeanPixels mean;   // an image of another size is scaled to the net's input
  double raw_scale = 255;   // times a pixel in [0, 1], before the mean is subtracted
  double input_scale = 1;   // after it
  std::int64_t context_pad = 0;   // of a window: pixels of the input, on each side, that show what is around it
  std::vector<int> channel_swap;  // channel c of the input is this one of red, green, blue; empty: 2, 1, 0
};

// Turns images into rows of a net's input. Thread: several at once.
class ImageInput {
 public:
  // `input` is the shape of one row, of one or three channels. Fails where the options do not fit it.
  static Result<ImageInput> Make(InputOptions options, const ImageShape& input);

  // Rows that one image becomes: the four corners (upper left, upper right, lower left, lower right), the centre, and the five
  // mirrored; or one, the centre.
  int rows() const { return options_.ten_crops ? 10 : 1; }
  Channels channels() const { return input_.channels == 1 ? Channels::kGrey : Channels::kColour; }

  // Writes rows() rows [channels, height, width] of `image`, which has channels().
  Status Apply(const Image& image, std::vector<float>* out) const;

  // Writes the row of a window of `image`, scaled in floating point to the input as pycaffe's Detector does. What its
  // context has outside of the image is the mean, and so zero.
  Status ApplyWindow(const Image& image, const DetectorWindow& window, std::vector<float>* out) const;

 private:
  // Where pixels of planes begin, and their region of the input.
  struct From {
    std::int64_t plane, stride, top, left;
  };
  struct To {
    std::int64_t top, left, height, width;
  };
  ImageInput(InputOptions options, const ImageShape& input) : options_(std::move(options)), input_(input) {}
  Status CheckChannels(const Image& image) const;
  template <typename Pixel>
  void Write(const Pixel* planes, const From& from, const To& to, bool mirror, float* out) const;
  template <typename Pixel>
  void WriteCrops(const Pixel* planes, std::vector<float>* out) const;

  InputOptions options_;  // with a mean of the shape of the input, or of one value a channel
  ImageShape input_;
  bool scales_numbers_ = false;  // not bytes
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_INPUT_H_
