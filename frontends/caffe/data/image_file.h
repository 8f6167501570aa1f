// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_FILE_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_FILE_H_

#include <cstdint>
#include <string>

#include "frontends/caffe/data/image.h"
#include "poseidon/base/status.h"

namespace poseidon::caffe {

// The size that an image is scaled to; 0x0 leaves it as it is.
struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool is_given() const { return height > 0 && width > 0; }
};

// Reads the image file `path` (JPEG or PNG, told apart by its first bytes) into *image, as Caffe's
// ReadImageToCVMat does: decoded with the given channels, turned upright as its EXIF orientation says (but not for
// kAsStored), then scaled to `size` where one is given. A file that is absent, truncated or no image is an error that names it.
// Memory of *image is used again. Thread: any.
Status ReadImageFile(const std::string& path, Channels channels, ImageSize size, Image* image);

// Reads all of a file that may be as long as an image file is, at most 1 GiB, into *bytes. An error names it.
Status ReadFileBytes(const std::string& path, std::string* bytes);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_IMAGE_FILE_H_
