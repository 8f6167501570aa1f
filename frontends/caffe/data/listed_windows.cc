// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/listed_windows.h"

#include <utility>
#include <vector>

#include "frontends/caffe/data/encoded_image.h"
#include "frontends/caffe/data/image_file.h"
#include "poseidon/base/check.h"

namespace poseidon::caffe {
namespace {

class ListedWindows final : public SampleSource {
 public:
  ListedWindows(WindowFile file, ListedWindowsOptions options)
      : file_(std::move(file)), options_(std::move(options)), name_("window file " + file_.path) {}

  // Before the first reader is made.
  Status Sort();
  Status CheckMean() const;
  Status CacheImages();

  struct Drawn {
    std::uint32_t window;
    bool foreground;
    bool mirror;
  };
  Drawn Draw(std::uint64_t number) const;

  const std::string& name() const override { return name_; }
  std::unique_ptr<SampleReader> MakeReader() override;
  std::string OriginOf(std::uint64_t number) const override {
    const WindowFile::Window& window = file_.windows[Draw(number).window];
    return "the window in line " + std::to_string(window.line) + " of " + file_.path + ", image " +
           PathOf(window.image);
  }

  std::string PathOf(std::uint32_t image) const { return options_.root_folder + file_.images[image].file; }
  Status ReadImage(std::uint32_t index, Image* image) const;
  const WindowFile& file() const { return file_; }
  const ListedWindowsOptions& options() const { return options_; }

 private:
  Status CheckWindow(const WindowFile::Window& window) const;

  const WindowFile file_;
  const ListedWindowsOptions options_;
  const std::string name_;
  std::vector<std::uint32_t> foreground_, background_;  // places of windows
  std::vector<std::string> bytes_;                      // of each image; empty: they are read when they are needed
};

Status ListedWindows::Sort() {
  for (std::size_t i = 0; i < file_.windows.size(); ++i) {
    const WindowFile::Window& window = file_.windows[i];
    const bool is_foreground = window.overlap >= options_.fg_threshold;
    if (!is_foreground && !(window.overlap < options_.bg_threshold)) continue;
    if (is_foreground && window.label == 0) {
      return InvalidArgument(file_.Where(window.line) +
                             ": the window is of class 0, the background, with the foreground's overlap of " +
                             std::to_string(window.overlap) + ", expected a class from 1");
    }
    POSEIDON_RETURN_IF_ERROR(CheckWindow(window));
    (is_foreground ? foreground_ : background_).push_back(static_cast<std::uint32_t>(i));
  }
  if (foreground_.empty() && options_.foreground > 0) {
    return InvalidArgument(name_ + " has no foreground window, expected some with an overlap of fg_threshold, " +
                           std::to_string(options_.fg_threshold) + ", or more");
  }
  if (background_.empty() && options_.foreground < options_.batch) {
    return InvalidArgument(name_ +
                           " has no background window, expected some with an overlap of less than bg_threshold, " +
                           std::to_string(options_.bg_threshold));
  }
  return OkStatus();
}

Status ListedWindows::CheckWindow(const WindowFile::Window& window) const {
  const ImageShape& shape = file_.images[window.image].shape;
  const auto fits = [&](bool mirror) { return PlaceOfWindow(window.box, shape, options_.warp, mirror).has_value(); };
  if (fits(false) && (!options_.mirror || fits(true))) return OkStatus();
  const WindowBox& box = window.box;
  return InvalidArgument(file_.Where(window.line) + ": the window from (" + std::to_string(box.x1) + ", " +
                         std::to_string(box.y1) + ") to (" + std::to_string(box.x2) + ", " + std::to_string(box.y2) +
                         ") is outside of its image, expected x from 0 to " + std::to_string(shape.width - 1) +
                         " and y from 0 to " + std::to_string(shape.height - 1));
}

Status ListedWindows::CheckMean() const {
  const ImageShape& mean = options_.pixels.mean.shape;
  const std::int64_t crop = options_.warp.crop_size;
  if (options_.pixels.mean.values.empty()) return OkStatus();
  if (mean.channels != 3)
    return InvalidArgument("the mean is " + ToString(mean) + ", expected the 3 channels of " + name_);
  if (mean.height == 1 && mean.width == 1) return OkStatus();
  if (mean.width >= crop && mean.height >= (mean.width - crop) / 2 + crop) return OkStatus();
  return InvalidArgument("the mean is " + ToString(mean) + ", expected one that has crops of " + std::to_string(crop) +
                         "x" + std::to_string(crop));
}

Status ListedWindows::CacheImages() {
  if (!options_.cache_images) return OkStatus();
  bytes_.resize(file_.images.size());
  for (std::uint32_t i = 0; i < file_.images.size(); ++i) {
    const Status read = ReadFileBytes(PathOf(i), &bytes_[i]);
    if (!read.ok()) return read.WithPrefix(file_.Where(file_.images[i].line));
  }
  return OkStatus();
}

ListedWindows::Drawn ListedWindows::Draw(std::uint64_t number) const {
  const std::uint64_t batch = options_.batch;
  const std::uint64_t row = (number + batch - options_.begin % batch) % batch;
  const bool is_foreground = row >= batch - options_.foreground;
  const std::vector<std::uint32_t>& windows = is_foreground ? foreground_ : background_;
  const RandomWords words = options_.draw(number);
  return {.window = windows[Below(words[0], windows.size())], .foreground = is_foreground, .mirror = options_.mirror && (words[1] & 1) != 0};
}

Status ListedWindows::ReadImage(std::uint32_t index, Image* image) const {
  const WindowFile::Image& listed = file_.images[index];
  const std::string path = PathOf(index);
  const Status read = bytes_.empty() ? ReadImageFile(path, Channels::kColour, {}, image)
                                     : DecodeImage(bytes_[index], Channels::kColour, "image " + path, image);
  if (!read.ok()) return read.WithPrefix(file_.Where(listed.line));
  if (image->shape == listed.shape) return OkStatus();
  return DataLoss(file_.Where(listed.line) + ": image " + path + " is " + ToString(image->shape) + ", expected " +
                  ToString(listed.shape) + " as the window file says");
}

class ListedWindowReader final : public SampleReader {
 public:
  explicit ListedWindowReader(const ListedWindows* windows) : windows_(windows) {}

  Status Fetch(std::uint64_t number) override {
    drawn_ = windows_->Draw(number);
    const WindowFile::Window& window = windows_->file().windows[drawn_.window];
    where_ = windows_->file().Where(window.line) + ": image " + windows_->PathOf(window.image);
    return OkStatus();
  }
  Status Decode(Sample* sample) override {
    const ListedWindowsOptions& options = windows_->options();
    const WindowFile::Window& window = windows_->file().windows[drawn_.window];
    POSEIDON_RETURN_IF_ERROR(windows_->ReadImage(window.image, &image_));
    const auto place = PlaceOfWindow(window.box, image_.shape, options.warp, drawn_.mirror);
    POSEIDON_CHECK(place.has_value(), "every window of an image of this shape was checked");
    const std::int64_t crop = options.warp.crop_size;
    *sample = {.shape = {image_.shape.channels, crop, crop}, .label = drawn_.foreground ? window.label : 0};
    pixels_.resize(static_cast<std::size_t>(sample->shape.count()));
    sample->floats = pixels_.data();
    const Status warped = WarpWindow(image_, *place, crop, drawn_.mirror, options.pixels, pixels_.data());
    return warped.ok() ? warped : warped.WithPrefix(where_);
  }
  const std::string& where() const override { return where_; }
  bool compressed() const override { return true; }

 private:
  const ListedWindows* const windows_;
  ListedWindows::Drawn drawn_{};
  Image image_;
  std::vector<float> pixels_;
  std::string where_;
};

std::unique_ptr<SampleReader> ListedWindows::MakeReader() { return std::make_unique<ListedWindowReader>(this); }

}  // namespace

Result<std::unique_ptr<SampleSource>> OpenListedWindows(ListedWindowsOptions options) {
  POSEIDON_CHECK(options.batch > 0 && options.foreground <= options.batch && options.draw &&
                     options.warp.crop_size > 0 && 2 * options.warp.context_pad < options.warp.crop_size,
                 "windows need a batch, a draw and a crop that is larger than its context");
  POSEIDON_ASSIGN_OR_RETURN(WindowFile file, ReadWindowFile(options.file));
  auto windows = std::make_unique<ListedWindows>(std::move(file), std::move(options));
  POSEIDON_RETURN_IF_ERROR(windows->Sort());
  POSEIDON_RETURN_IF_ERROR(windows->CheckMean());
  POSEIDON_RETURN_IF_ERROR(windows->CacheImages());
  return std::unique_ptr<SampleSource>(std::move(windows));
}

}  // namespace poseidon::caffe
