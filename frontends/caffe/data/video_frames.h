// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_VIDEO_FRAMES_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_VIDEO_FRAMES_H_

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

struct VideoFramesOptions {
  std::string list;
  std::string root_folder;  // put before every folder of the list, as it is
  bool flow = false;        // frames are two grey images each, x and y, in place of one in colours
  std::string pattern;      // of their names: "image_%04d.jpg", of flow "flow_%c_%04d.jpg"
  std::int64_t segments = 1;
  std::int64_t length = 1;  // frames behind one another of each segment
  ImageSize size;           // that frames are scaled to
  std::int64_t crop = 0;    // side; 0: none
  bool trains = true;       // places are drawn; else they are in the middle
  bool mirror = false;      // at random
  bool corners = false;     // crops are drawn from the corners and the centre
  bool more_corners = false;            // and the middles of the sides and of the quarters
  std::vector<float> ratios = {};       // of the shorter side, that crops have, scaled to `crop`; empty: of that size
  std::int64_t most_apart = 1;          // how far apart in `ratios` height and width may be
  bool turns_flow = false;  // the x of a mirrored flow points the other way: 255 - x
  EpochDraw shuffle;        // null: the order of the list
  SampleBlocks blocks;
};

// The videos of a list with lines "FOLDER FRAMES LABEL", over and over: some frames of each, as channels of one image. A video is cut
// into segments of one length, and of each come frames behind one another, from a drawn place on. Frames count from 1.
// `transformer` neither crops nor mirrors. An error names the list and the line.
Result<std::unique_ptr<SampleSource>> OpenVideoFrames(VideoFramesOptions options, Transformer transformer);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_VIDEO_FRAMES_H_
