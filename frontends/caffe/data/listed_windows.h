// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_LISTED_WINDOWS_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_LISTED_WINDOWS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "frontends/caffe/data/random_words.h"
#include "frontends/caffe/data/sample_source.h"
#include "frontends/caffe/data/window_warp.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

struct ListedWindowsOptions {
  std::string file;         // a window file
  std::string root_folder;  // put before every path of it, as it is
  WarpOptions warp;
  WarpedPixels pixels;
  bool mirror = false;        // at random
  bool cache_images = false;  // the files' bytes are read at once and kept
  // A window with an overlap of this or more is foreground.
  float fg_threshold = 0.5F;
  // One with less than this that is not foreground is background, whose label is 0. Others are not drawn.
  float bg_threshold = 0.5F;
  // Samples come in batches, the first of which begins at sample `begin` and another one after each `batch`: background
  // first, and then `foreground` of them. They are the batches of all workers together.
  std::uint64_t begin = 0;
  std::uint64_t batch = 1;
  std::uint64_t foreground = 0;
  // Of a sample: the first word chooses the window, the second whether it is mirrored.
  SampleDraw draw;
};

// Windows drawn at random from a window file, as samples of floats that are cropped, scaled and mirrored.
// Refused: a file that has no window to draw where a batch needs one, a foreground window of class 0, a window that is
// not in its image.
Result<std::unique_ptr<SampleSource>> OpenListedWindows(ListedWindowsOptions options);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_LISTED_WINDOWS_H_
