// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_LISTED_IMAGES_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_LISTED_IMAGES_H_

#include <memory>
#include <string>

#include "frontends/caffe/data/epoch_order.h"
#include "frontends/caffe/data/image_file.h"
#include "frontends/caffe/data/sample_source.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

struct ListedImagesOptions {
  std::string list;
  std::string root_folder;  // put before every path of the list, as it is
  Channels channels = Channels::kColour;
  ImageSize size;     // that images are scaled to
  EpochDraw shuffle;  // null: the order of the list
};

// The images of a list, over and over.
Result<std::unique_ptr<SampleSource>> OpenListedImages(ListedImagesOptions options);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_LISTED_IMAGES_H_
