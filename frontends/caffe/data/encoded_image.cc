// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/encoded_image.h"

#if defined(POSEIDON_HAVE_OPENCV)

#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>

namespace poseidon::caffe {

Status DecodeImage(const std::string& encoded, Channels channels, const std::string& where,
                   ImageShape* shape, std::vector<std::uint8_t>* planes) {
  const std::vector<std::uint8_t> file(encoded.begin(), encoded.end());
  const int mode = channels == Channels::kColour ? cv::IMREAD_COLOR
                   : channels == Channels::kGrey ? cv::IMREAD_GRAYSCALE
                                                 : cv::IMREAD_UNCHANGED;
  cv::Mat image;
  try {
    image = cv::imdecode(file, mode);
  } catch (const cv::Exception&) {
    image.release();
  }
  if (image.empty() || image.depth() != CV_8U) {
    return DataLoss(where + " is corrupt: its " + std::to_string(file.size()) +
                    " bytes are no image with 8 bits per channel");
  }
  *shape = {image.channels(), image.rows, image.cols};
  planes->resize(static_cast<std::size_t>(shape->count()));
  const int depth = image.channels();
  for (int c = 0; c < depth; ++c) {
    std::uint8_t* out = planes->data() + shape->height * shape->width * c;
    for (int y = 0; y < image.rows; ++y) {
      const std::uint8_t* row = image.ptr<std::uint8_t>(y) + c;
      for (int x = 0; x < image.cols; ++x) *out++ = row[x * depth];
    }
  }
  return OkStatus();
}

}  // namespace poseidon::caffe

#else

namespace poseidon::caffe {

Status DecodeImage(const std::string&, Channels, const std::string& where, ImageShape*,
                   std::vector<std::uint8_t>*) {
  return Unimplemented(where + " is an encoded image, which this build cannot decode; build it " +
                       "with libopencv-imgcodecs-dev installed, or convert the database to raw " +
                       "pixels");
}

}  // namespace poseidon::caffe

#endif
