// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_WINDOW_FILE_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_WINDOW_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "frontends/caffe/data/image.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

// Pixels of an image from (x1, y1) to (x2, y2), both included. They may lie outside of it.
struct WindowBox {
  std::int32_t x1 = 0, y1 = 0, x2 = 0, y2 = 0;
};

// R-CNN's window file, as Caffe's layer WindowData reads it. Each image has
//
//   # IMAGE_INDEX
//   PATH
//   CHANNELS
//   HEIGHT
//   WIDTH
//   NUMBER_OF_WINDOWS
//   CLASS OVERLAP X1 Y1 X2 Y2     (as many times)
//
// with any white space between these. Images are numbered from 0, in their order, and have three channels.
struct WindowFile {
  struct Image {
    std::string file;  // as it is written
    ImageShape shape;
    std::uint32_t line = 0;  // of its path
  };
  struct Window {
    std::uint32_t image = 0;
    std::uint32_t line = 0;  // of its class
    std::int32_t label = 0;
    float overlap = 0;  // with an object of that class, over their union
    WindowBox box;      // x1 <= x2, y1 <= y2
  };

  std::string path;
  std::vector<Image> images;  // at least one
  std::vector<Window> windows;

  // "window file PATH, line 3".
  std::string Where(std::uint32_t line) const;
};

// An error names the file and the line, and says what was expected there.
Result<WindowFile> ReadWindowFile(const std::string& path);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_WINDOW_FILE_H_
