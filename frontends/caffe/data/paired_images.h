// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_PAIRED_IMAGES_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_PAIRED_IMAGES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "frontends/caffe/data/epoch_order.h"
#include "frontends/caffe/data/image_file.h"
#include "frontends/caffe/data/random_words.h"
#include "frontends/caffe/data/sample_source.h"
#include "frontends/caffe/data/transformer.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// What the second word of a line is.
enum class PairLabels {
  kImage,   // a path of labels for each pixel
  kNumber,  // one label for all pixels
  kNone,    // there is none: all pixels have `padding`
};

struct PairedImagesOptions {
  std::string list;
  PairLabels labels = PairLabels::kImage;
  std::string root_folder;  // put before every path of the list, as it is
  Channels channels = Channels::kColour;
  ImageSize size;  // that both images are scaled to: the first as ImageData does, labels by the nearest pixel
  std::vector<float> scales = {};  // one of which, drawn, both are scaled by; empty: none
  ImageSize crop;            // at a place drawn for each sample; 0x0: none
  bool centred = false;      // the crop is the centre instead
  bool pads = false;         // to a crop that the image does not fill, behind it: with 0 after the transform, and with label `padding`
  std::uint8_t padding = 0;
  bool mirror = false;  // at random
  EpochDraw shuffle;    // null: the order of the list
  SampleDraw draw;      // for crop and mirror
};

// The pairs of a list with lines "IMAGE LABELS" (or of "IMAGE", without labels), over and over: an image and another one of its size whose grey pixels are the labels of
// its pixels. A sample has the planes of the first, transformed, and behind them that of the labels.
// `transformer` neither crops nor mirrors. An error names the list and the line.
Result<std::unique_ptr<SampleSource>> OpenPairedImages(PairedImagesOptions options, Transformer transformer);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_PAIRED_IMAGES_H_
