// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/paired_images.h"

#include <algorithm>
#include <istream>
#include <utility>
#include <vector>

#include "frontends/caffe/data/list_lines.h"

namespace poseidon::caffe {
namespace {

struct Pair {
  std::string image, labels;
  std::uint8_t label = 0;  // where one is for all pixels
};

Result<std::vector<Pair>> ReadPairs(const std::string& path, PairLabels kind) {
  const ListWords words{.list = "image list",
                        .entry = "pair",
                        .expected = kind == PairLabels::kNumber ? "the path of an image and its label, 0 to 255"
                                                                : "the paths of an image and of its labels",
                        .lines = "lines with the paths of an image and of its labels"};
  return ReadListLines<Pair>(path, words, [kind](std::istream& line, Pair* pair) {
    line >> pair->image;
    if (kind == PairLabels::kNone) return true;
    int label = 0;
    const bool reads = kind == PairLabels::kNumber ? line >> label && label >= 0 && label <= 255
                                                   : static_cast<bool>(line >> pair->labels);
    pair->label = static_cast<std::uint8_t>(label);
    std::string third;
    return reads && !(line >> third);
  });
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
    const ImageShape& shape = image_.shape;
    if (options.labels == PairLabels::kImage) {
      POSEIDON_RETURN_IF_ERROR(ReadImageFile(options.root_folder + pair.labels, Channels::kGrey, {}, &labels_));
      if (options.size.is_given()) POSEIDON_RETURN_IF_ERROR(ScaleLabels(options.size.height, options.size.width));
    } else {
      POSEIDON_RETURN_IF_ERROR(Allocate({1, shape.height, shape.width}, &labels_));
      std::fill(labels_.planes.begin(), labels_.planes.end(), options.labels == PairLabels::kNumber ? pair.label : options.padding);
    }
    if (labels_.shape.height != shape.height || labels_.shape.width != shape.width) {
      return InvalidArgument("labels " + pair.labels + " are " + std::to_string(labels_.shape.height) + "x" +
                             std::to_string(labels_.shape.width) + ", expected " + std::to_string(shape.height) + "x" +
                             std::to_string(shape.width) + " as the image " + pair.image);
    }
    const RandomWords words = options.draw(number_);
    POSEIDON_RETURN_IF_ERROR(Scale(words));
    POSEIDON_RETURN_IF_ERROR(Cut(words));
    const Sample pixels{.shape = image_.shape, .bytes = image_.planes.data()};
    POSEIDON_ASSIGN_OR_RETURN(ImageShape whole, images_->transformer().OutputShape(pixels.shape, pair.image));
    const auto place = static_cast<std::size_t>(whole.height * whole.width);
    numbers_.resize(static_cast<std::size_t>(whole.channels + 1) * place);
    images_->transformer().Apply(pixels, {}, numbers_.data());
    std::copy(labels_.planes.begin(), labels_.planes.end(), numbers_.end() - static_cast<std::ptrdiff_t>(place));
    ++whole.channels;
    if (options.pads && options.crop.is_given()) Pad(options.mirror && words[0] % 2 == 1, &whole);
    *sample = {.shape = whole, .floats = numbers_.data()};
    return OkStatus();
  }

  Status ScaleLabels(std::int64_t height, std::int64_t width) {
    Image scaled;
    POSEIDON_RETURN_IF_ERROR(ResizeBy(Interpolation::kNearest, labels_, height, width, &scaled));
    labels_ = std::move(scaled);
    return OkStatus();
  }

  Status Scale(const RandomWords& words) {
    const std::vector<float>& scales = images_->options().scales;
    if (scales.empty()) return OkStatus();
    const float scale = scales[static_cast<std::size_t>(Below(words[3], scales.size()))];
    const auto height = static_cast<std::int64_t>(static_cast<float>(image_.shape.height) * scale);
    const auto width = static_cast<std::int64_t>(static_cast<float>(image_.shape.width) * scale);
    Image scaled;
    POSEIDON_RETURN_IF_ERROR(Resize(image_, std::max<std::int64_t>(1, height), std::max<std::int64_t>(1, width), &scaled));
    image_ = std::move(scaled);
    return ScaleLabels(image_.shape.height, image_.shape.width);
  }

  // To the size of the crop: behind what there is, which is in front once it is mirrored.
  void Pad(bool mirrored, ImageShape* shape) {
    const ImageSize& crop = images_->options().crop;
    if (shape->height == crop.height && shape->width == crop.width) return;
    const std::vector<float> from = std::exchange(numbers_, {});
    const auto place = static_cast<std::size_t>(crop.height * crop.width);
    numbers_.assign(static_cast<std::size_t>(shape->channels) * place, 0.0F);
    std::fill(numbers_.end() - static_cast<std::ptrdiff_t>(place), numbers_.end(), static_cast<float>(images_->options().padding));
    for (std::int64_t row = 0; row < shape->channels * shape->height; ++row) {
      const std::int64_t plane = row / shape->height, y = row % shape->height;
      const std::int64_t left = mirrored ? crop.width - shape->width : 0;
      std::copy_n(from.begin() + row * shape->width, shape->width, numbers_.begin() + (plane * crop.height + y) * crop.width + left);
    }
    shape->height = crop.height;
    shape->width = crop.width;
  }

  // The same of both: mirrored, then cut.
  Status Cut(const RandomWords& words) {
    const PairedImagesOptions& options = images_->options();
    const bool mirrors = options.mirror && words[0] % 2 == 1;
    if (options.crop.is_given()) {
      const ImageSize crop = {options.pads ? std::min(options.crop.height, image_.shape.height) : options.crop.height,
                              options.pads ? std::min(options.crop.width, image_.shape.width) : options.crop.width};
      const std::int64_t rows = image_.shape.height - crop.height, columns = image_.shape.width - crop.width;
      if (rows < 0 || columns < 0) {
        return InvalidArgument("image " + images_->pair(entry_).image + " is " + std::to_string(image_.shape.height) + "x" +
                               std::to_string(image_.shape.width) + ", expected at least the crop's " + std::to_string(options.crop.height) + "x" +
                               std::to_string(options.crop.width));
      }
      const auto place = [&](std::uint32_t word, std::int64_t room) {
        return options.centred ? room / 2 : static_cast<std::int64_t>(Below(word, static_cast<std::uint64_t>(room + 1)));
      };
      const std::int64_t top = place(words[1], rows), left = place(words[2], columns);
      for (Image* const image : {&image_, &labels_}) {
        *image = CutOut(*image, top, mirrors && !options.centred ? columns - left : left, crop.height, crop.width);
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
  POSEIDON_ASSIGN_OR_RETURN(std::vector<Pair> pairs, ReadPairs(options.list, options.labels));
  return std::unique_ptr<SampleSource>(std::make_unique<PairedImages>(std::move(pairs), std::move(options), std::move(transformer)));
}

}  // namespace poseidon::caffe
