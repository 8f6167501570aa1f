// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/paired_images.h"

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

namespace poseidon::caffe {
namespace {

constexpr int kMirrored = 2;  // EXIF's orientation

struct Pair {
  std::string image, labels;
};

Result<std::vector<Pair>> ReadPairs(const std::string& path) {
  std::string text;
  if (const Status read = ReadFileBytes(path, &text); !read.ok()) return Status(read.code(), "image list " + read.message());
  std::vector<Pair> pairs;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Pair pair;
    std::string third;
    if (!(words >> pair.image)) continue;  // empty
    if (!(words >> pair.labels) || words >> third) {
      return InvalidArgument("image list " + path + ", pair " + std::to_string(pairs.size() + 1) + " is '" + line.substr(0, 100) +
                             "', expected the paths of an image and of its labels");
    }
    pairs.push_back(std::move(pair));
  }
  if (pairs.empty()) return InvalidArgument("image list " + path + " is empty, expected lines with the paths of an image and of its labels");
  if (pairs.size() >> 32 != 0) return InvalidArgument("image list " + path + " has 2^32 pairs or more");
  return pairs;
}

class PairedImages final : public SampleSource {
 public:
  PairedImages(std::vector<Pair> pairs, PairedImagesOptions options, Transformer transformer)
      : pairs_(std::move(pairs)), options_(std::move(options)), transformer_(std::move(transformer)), order_(pairs_.size(), options_.shuffle),
        name_("image list " + options_.list) {}

  const std::string& name() const override { return name_; }
  std::unique_ptr<SampleReader> MakeReader() override;
  std::string OriginOf(std::uint64_t number) const override {
    EpochOrder order(pairs_.size(), options_.shuffle);  // another than the readers' own, who may be at work
    const std::uint64_t entry = order.At(number);
    return "image " + pairs_[entry].image + " of " + Where(entry);
  }

  // For the reader that fetches.
  std::uint64_t EntryOf(std::uint64_t number) { return order_.At(number); }
  const Pair& pair(std::uint64_t entry) const { return pairs_[entry]; }
  std::string Where(std::uint64_t entry) const { return "list " + options_.list + ", pair " + std::to_string(entry + 1); }
  const PairedImagesOptions& options() const { return options_; }
  const Transformer& transformer() const { return transformer_; }

 private:
  const std::vector<Pair> pairs_;
  const PairedImagesOptions options_;
  const Transformer transformer_;
  EpochOrder order_;
  const std::string name_;
};

class PairedImageReader final : public SampleReader {
 public:
  explicit PairedImageReader(PairedImages* images) : images_(images) {}

  Status Fetch(std::uint64_t number) override {
    number_ = number;
    entry_ = images_->EntryOf(number);
    where_ = images_->Where(entry_) + ": image " + images_->pair(entry_).image;
    return OkStatus();
  }
  Status Decode(Sample* sample) override {
    const Status decoded = DecodePair(sample);
    return decoded.ok() ? decoded : decoded.WithPrefix(images_->Where(entry_));
  }
  const std::string& where() const override { return where_; }
  bool compressed() const override { return true; }

 private:
  Status DecodePair(Sample* sample) {
    const PairedImagesOptions& options = images_->options();
    const Pair& pair = images_->pair(entry_);
    POSEIDON_RETURN_IF_ERROR(ReadImageFile(options.root_folder + pair.image, options.channels, options.size, &image_));
    POSEIDON_RETURN_IF_ERROR(ReadImageFile(options.root_folder + pair.labels, Channels::kGrey, {}, &labels_));
    if (options.size.is_given()) {
      Image scaled;
      POSEIDON_RETURN_IF_ERROR(ResizeBy(Interpolation::kNearest, labels_, options.size.height, options.size.width, &scaled));
      labels_ = std::move(scaled);
    }
    const ImageShape& shape = image_.shape;
    if (labels_.shape.height != shape.height || labels_.shape.width != shape.width) {
      return InvalidArgument("labels " + pair.labels + " are " + std::to_string(labels_.shape.height) + "x" +
                             std::to_string(labels_.shape.width) + ", expected " + std::to_string(shape.height) + "x" +
                             std::to_string(shape.width) + " as the image " + pair.image);
    }
    POSEIDON_RETURN_IF_ERROR(Cut());
    const Sample pixels{.shape = image_.shape, .bytes = image_.planes.data()};
    POSEIDON_ASSIGN_OR_RETURN(ImageShape whole, images_->transformer().OutputShape(pixels.shape, pair.image));
    const auto place = static_cast<std::size_t>(whole.height * whole.width);
    numbers_.resize(static_cast<std::size_t>(whole.channels + 1) * place);
    images_->transformer().Apply(pixels, {}, numbers_.data());
    std::copy(labels_.planes.begin(), labels_.planes.end(), numbers_.end() - static_cast<std::ptrdiff_t>(place));
    ++whole.channels;
    *sample = {.shape = whole, .floats = numbers_.data()};
    return OkStatus();
  }

  // The same of both: mirrored, then cut.
  Status Cut() {
    const PairedImagesOptions& options = images_->options();
    const RandomWords words = options.draw(number_);
    const bool mirrors = options.mirror && words[0] % 2 == 1;
    if (options.crop.is_given()) {
      const std::int64_t rows = image_.shape.height - options.crop.height, columns = image_.shape.width - options.crop.width;
      if (rows < 0 || columns < 0) {
        return InvalidArgument("image " + images_->pair(entry_).image + " is " + std::to_string(image_.shape.height) + "x" +
                               std::to_string(image_.shape.width) + ", expected at least the crop's " + std::to_string(options.crop.height) + "x" +
                               std::to_string(options.crop.width));
      }
      const auto top = static_cast<std::int64_t>(Below(words[1], static_cast<std::uint64_t>(rows + 1)));
      const auto left = static_cast<std::int64_t>(Below(words[2], static_cast<std::uint64_t>(columns + 1)));
      for (Image* const image : {&image_, &labels_}) {
        *image = CutOut(*image, top, mirrors ? columns - left : left, options.crop.height, options.crop.width);
      }
    }
    if (mirrors) {
      for (Image* const image : {&image_, &labels_}) Orient(kMirrored, image);
    }
    return OkStatus();
  }

  PairedImages* const images_;
  std::uint64_t number_ = 0;
  std::uint64_t entry_ = 0;
  Image image_, labels_;
  std::vector<float> numbers_;
  std::string where_;
};

std::unique_ptr<SampleReader> PairedImages::MakeReader() { return std::make_unique<PairedImageReader>(this); }

}  // namespace

Result<std::unique_ptr<SampleSource>> OpenPairedImages(PairedImagesOptions options, Transformer transformer) {
  POSEIDON_ASSIGN_OR_RETURN(std::vector<Pair> pairs, ReadPairs(options.list));
  return std::unique_ptr<SampleSource>(std::make_unique<PairedImages>(std::move(pairs), std::move(options), std::move(transformer)));
}

}  // namespace poseidon::caffe
