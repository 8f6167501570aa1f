// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_PAIRED_IMAGES_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_PAIRED_IMAGES_H_

#include <memory>
#include <string>

#include "frontends/caffe/data/epoch_order.h"
#include "frontends/caffe/data/image_file.h"
#include "frontends/caffe/data/random_words.h"
#include "frontends/caffe/data/sample_source.h"
#include "frontends/caffe/data/transformer.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

struct PairedImagesOptions {
  std::string list;
  std::string root_folder;  // put before every path of the list, as it is
  Channels channels = Channels::kColour;
  ImageSize size;  // that both images are scaled to: the first as ImageData does, labels by the nearest pixel
  ImageSize crop;  // at a place drawn for each sample; 0x0: none
  bool mirror = false;  // at random
  EpochDraw shuffle;    // null: the order of the list
  SampleDraw draw;      // for crop and mirror
};

// The pairs of a list with lines "IMAGE LABELS", over and over: an image and another one of its size whose grey pixels are the labels of
// its pixels. A sample has the planes of the first, transformed, and behind them that of the labels.
// `transformer` neither crops nor mirrors. An error names the list and the line.
Result<std::unique_ptr<SampleSource>> OpenPairedImages(PairedImagesOptions options, Transformer transformer);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_PAIRED_IMAGES_H_
