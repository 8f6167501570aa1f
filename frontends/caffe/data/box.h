// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_BOX_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_BOX_H_

#include <algorithm>
#include <cstdint>

namespace poseidon::caffe {

// Boxes of SSD, in parts of the image's width and height. T is the net's type: SSD computes in it.
template <typename T>
struct Box {
  T x1 = 0;
  T y1 = 0;
  T x2 = 0;
  T y2 = 0;
};

// 0 of a box whose corners are the wrong way round.
template <typename T>
T AreaOf(const Box<T>& box) {
  if (box.x2 < box.x1 || box.y2 < box.y1) return 0;
  return (box.x2 - box.x1) * (box.y2 - box.y1);
}

template <typename T>
T SharedArea(const Box<T>& a, const Box<T>& b) {
  const T width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  const T height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  return width > 0 && height > 0 ? width * height : 0;
}

// The area that two boxes share, over that which they cover together.
template <typename T>
T Overlap(const Box<T>& a, const Box<T>& b) {
  const T shared = SharedArea(a, b);
  return shared > 0 ? shared / (AreaOf(a) + AreaOf(b) - shared) : 0;
}

// An object in an image.
struct LabelledBox {
  Box<float> box;
  std::int32_t label = 0;
  std::int32_t instance = 0;
  bool difficult = false;
};

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_BOX_H_
