// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/convert_imageset.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <memory>

#include "frontends/caffe/data/database_writer.h"
#include "frontends/caffe/data/encoded_image.h"
#include "frontends/caffe/data/image_list.h"
#include "frontends/caffe/proto/caffe.pb.h"

namespace poseidon::caffe {
namespace {

constexpr std::uint64_t kBetweenWords = 1000;

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Whether the file's name says that it is of the type: Caffe's matchExt.
bool HasType(const std::string& file, const std::string& type) {
  const std::string extension = Lower(file.substr(file.rfind('.') + 1));  // npos + 1 is 0
  return extension == Lower(type) || (Lower(type) == "jpg" && extension == "jpeg");
}

Status CheckEncoding(const ImagesetOptions& options) {
  if (!options.encoded || !options.size.is_given()) return OkStatus();
  return Unimplemented("images that are resized are not encoded again, expected a size or encoded records; without encoding "
                       "the database holds the resized pixels");
}

// One image after the other becomes a record.
class ImagesetConverter {
 public:
  ImagesetConverter(const ImagesetOptions& options, const ImagesetProgress& progress, const ImageList& list)
      : options_(options), progress_(progress), list_(list), order_(list.size(), options.shuffle) {}

  Result<std::uint64_t> Convert() {
    POSEIDON_ASSIGN_OR_RETURN(writer_, DatabaseWriter::Create(options_.backend, options_.database, 0));
    for (std::uint64_t i = 0; i < list_.size(); ++i) {
      const std::uint64_t entry = order_.At(i);
      const Status read = Read(entry);
      if (!read.ok()) {
        progress_.left_out(read.message());
        continue;
      }
      POSEIDON_RETURN_IF_ERROR(CheckSize(entry));
      POSEIDON_RETURN_IF_ERROR(Put(i, entry));
      if (++written_ % kBetweenWords == 0) progress_.done(written_);
    }
    if (written_ == 0) return InvalidArgument("image list " + list_.path() + ": no image of it could be read");
    POSEIDON_RETURN_IF_ERROR(writer_->Finish());
    return written_;
  }

 private:
  // Also of images that stay encoded: what is no image is left out.
  Status Read(std::uint64_t entry) {
    const std::string path = options_.root_folder + std::string(list_.file(entry));
    const Channels channels = options_.grey ? Channels::kGrey : Channels::kColour;
    Status read = options_.encoded ? ReadEncoded(path, channels) : ReadImageFile(path, channels, options_.size, &image_);
    return read.WithPrefix(list_.Where(entry));
  }

  Status ReadEncoded(const std::string& path, Channels channels) {
    if (!options_.encode_type.empty() && !HasType(path, options_.encode_type)) {
      return Unimplemented("image " + path + " is not encoded again, expected a ." + options_.encode_type + " as encode_type says");
    }
    POSEIDON_RETURN_IF_ERROR(ReadFileBytes(path, datum_.mutable_data()));
    return DecodeImage(datum_.data(), channels, "image " + path, &image_);
  }

  Status CheckSize(std::uint64_t entry) {
    if (written_ == 0) first_shape_ = image_.shape;
    if (!options_.check_size || image_.shape == first_shape_) return OkStatus();
    return InvalidArgument(list_.Where(entry) + ": image " + options_.root_folder + std::string(list_.file(entry)) + " is " +
                           ToString(image_.shape) + ", expected " + ToString(first_shape_) + " like the first");
  }

  // The fields that Caffe sets, so that records have its bytes.
  Status Put(std::uint64_t position, std::uint64_t entry) {
    if (!options_.encoded) {
      datum_.set_channels(static_cast<int>(image_.shape.channels));
      datum_.set_height(static_cast<int>(image_.shape.height));
      datum_.set_width(static_cast<int>(image_.shape.width));
      datum_.set_data(image_.planes.data(), image_.planes.size());
    }
    datum_.set_label(list_.label(entry));
    datum_.set_encoded(options_.encoded);
    std::array<char, 24> number{};
    std::snprintf(number.data(), number.size(), "%08llu_", static_cast<unsigned long long>(position));
    if (!datum_.SerializeToString(&value_)) return ResourceExhausted(list_.Where(entry) + " is too large for a record");
    return writer_->Put(number.data() + std::string(list_.file(entry)), value_);
  }

  const ImagesetOptions& options_;
  const ImagesetProgress& progress_;
  const ImageList& list_;
  EpochOrder order_;
  std::unique_ptr<DatabaseWriter> writer_;
  Image image_;
  ImageShape first_shape_;
  Datum datum_;
  std::string value_;
  std::uint64_t written_ = 0;
};

}  // namespace

Result<std::uint64_t> ConvertImageset(const ImagesetOptions& options, const ImagesetProgress& progress) {
  POSEIDON_RETURN_IF_ERROR(CheckEncoding(options));
  POSEIDON_ASSIGN_OR_RETURN(const ImageList list, ImageList::Read(options.list));
  progress.images(list.size());
  return ImagesetConverter(options, progress, list).Convert();
}

}  // namespace poseidon::caffe
