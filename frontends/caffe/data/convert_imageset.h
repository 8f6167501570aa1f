// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_DATA_CONVERT_IMAGESET_H_
#define POSEIDON_FRONTENDS_CAFFE_DATA_CONVERT_IMAGESET_H_

#include <cstdint>
#include <functional>
#include <string>

#include "frontends/caffe/data/epoch_order.h"
#include "frontends/caffe/data/image_file.h"
#include "frontends/caffe/data/record_source.h"
#include "poseidon/base/result.h"

namespace poseidon::caffe {

struct ImagesetOptions {
  std::string root_folder;  // put before every path of the list, as it is
  std::string list;
  std::string database;  // must not exist; appears complete or not at all
  Database backend = Database::kLmdb;
  bool grey = false;
  ImageSize size;           // that images are scaled to
  bool check_size = false;  // an image of another size than the first is an error
  bool encoded = false;     // records hold the files' bytes
  std::string encode_type;  // "jpg", "png": what the files must be then; empty: anything
  EpochDraw shuffle;        // null: the order of the list
};

// What the caller may say meanwhile.
struct ImagesetProgress {
  std::function<void(std::uint64_t count)> images;             // how many the list has
  std::function<void(std::uint64_t count)> done;               // how many are in the database, every 1,000
  std::function<void(const std::string& why)> left_out;        // an image that cannot be read: the others go on
};

// Writes the images of a list into a new database, as BVLC Caffe's convert_imageset does: keys are the position in 8 digits,
// '_' and the path as it is in the list; values are Datums of planes, or of the file's bytes. One image is in memory at a
// time. Returns how many were written.
Result<std::uint64_t> ConvertImageset(const ImagesetOptions& options, const ImagesetProgress& progress);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_DATA_CONVERT_IMAGESET_H_
