// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/listed_images.h"

#include <utility>

#include "frontends/caffe/data/image_list.h"

namespace poseidon::caffe {
namespace {

class ListedImages final : public SampleSource {
 public:
  ListedImages(ImageList list, ListedImagesOptions options)
      : list_(std::move(list)), options_(std::move(options)), order_(list_.size(), options_.shuffle), name_("image list " + list_.path()) {}

  const std::string& name() const override { return name_; }
  std::unique_ptr<SampleReader> MakeReader() override;
  std::string OriginOf(std::uint64_t number) const override {
    EpochOrder order(list_.size(), options_.shuffle);  // another than the readers' own, who may be at work
    const std::uint64_t entry = order.At(number);
    return "image " + FileAt(entry) + " of " + list_.Where(entry);
  }

  // For the reader that fetches.
  std::uint64_t EntryOf(std::uint64_t number) { return order_.At(number); }
  std::string FileAt(std::uint64_t entry) const { return options_.root_folder + std::string(list_.file(entry)); }
  const ImageList& list() const { return list_; }
  const ListedImagesOptions& options() const { return options_; }

 private:
  const ImageList list_;
  const ListedImagesOptions options_;
  EpochOrder order_;
  const std::string name_;
};

class ListedImageReader final : public SampleReader {
 public:
  explicit ListedImageReader(ListedImages* images) : images_(images) {}

  Status Fetch(std::uint64_t number) override {
    entry_ = images_->EntryOf(number);
    where_ = images_->list().Where(entry_) + ": image " + images_->FileAt(entry_);
    return OkStatus();
  }
  Status Decode(Sample* sample) override {
    const ListedImagesOptions& options = images_->options();
    const Status read = ReadImageFile(images_->FileAt(entry_), options.channels, options.size, &image_);
    if (!read.ok()) return read.WithPrefix(images_->list().Where(entry_));
    *sample = {.shape = image_.shape, .bytes = image_.planes.data(), .label = images_->list().label(entry_)};
    return OkStatus();
  }
  const std::string& where() const override { return where_; }
  bool compressed() const override { return true; }

 private:
  ListedImages* const images_;
  std::uint64_t entry_ = 0;
  Image image_;
  std::string where_;
};

std::unique_ptr<SampleReader> ListedImages::MakeReader() { return std::make_unique<ListedImageReader>(this); }

}  // namespace

Result<std::unique_ptr<SampleSource>> OpenListedImages(ListedImagesOptions options) {
  POSEIDON_ASSIGN_OR_RETURN(ImageList list, ImageList::Read(options.list));
  return std::unique_ptr<SampleSource>(std::make_unique<ListedImages>(std::move(list), std::move(options)));
}

}  // namespace poseidon::caffe
