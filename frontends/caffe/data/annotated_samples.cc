// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/annotated_samples.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace poseidon::caffe {
namespace {

class AnnotatedRecords final : public SampleSource {
 public:
  AnnotatedRecords(std::unique_ptr<RecordSource> records, AnnotatedSamplesOptions options, ObjectTransform transform)
      : records_(std::move(records)), options_(std::move(options)), transform_(std::move(transform)), name_("database " + records_->path()) {}

  // Before the first reader is made: what the first record has.
  Status Begin() {
    AnnotatedDatum first;
    std::string where;
    POSEIDON_RETURN_IF_ERROR(Read(0, &where, &first));
    options_.boxes = options_.boxes || first.has_type();
    return OkStatus();
  }

  const std::string& name() const override { return name_; }
  std::unique_ptr<SampleReader> MakeReader() override;
  std::string OriginOf(std::uint64_t number) const override {
    return "record " + std::to_string(number % records_->size()) + " of " + records_->path() + ", counted from 0 in the order of keys";
  }

  // For the reader that fetches.
  Status Read(std::uint64_t number, std::string* where, AnnotatedDatum* datum) {
    const std::uint64_t position = number % records_->size();
    POSEIDON_ASSIGN_OR_RETURN(const Record record, records_->At(position));
    *where = name_ + ": record " + std::to_string(position) + " (key " + std::string(record.key.substr(0, 64)) + ")";
    if (record.value.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) ||
        !datum->ParseFromArray(record.value.data(), static_cast<int>(record.value.size()))) {
      return DataLoss(*where + " is corrupt: its " + std::to_string(record.value.size()) + " bytes are no AnnotatedDatum");
    }
    return OkStatus();
  }
  const AnnotatedSamplesOptions& options() const { return options_; }
  const ObjectTransform& transform() const { return transform_; }

 private:
  const std::unique_ptr<RecordSource> records_;
  AnnotatedSamplesOptions options_;
  const ObjectTransform transform_;
  const std::string name_;
};

class AnnotatedReader final : public SampleReader {
 public:
  explicit AnnotatedReader(AnnotatedRecords* records) : records_(records) {}

  Status Fetch(std::uint64_t number) override {
    number_ = number;
    return records_->Read(number, &where_, &datum_);
  }
  Status Decode(Sample* sample) override {
    Sample stored;
    POSEIDON_RETURN_IF_ERROR(DecodeDatum(datum_.datum(), records_->options().channels, where_, &image_.image, &stored));
    if (stored.bytes == nullptr) return DataLoss(where_ + " holds numbers of an image, expected its bytes");
    if (stored.bytes != image_.image.planes.data()) {
      image_.image.shape = stored.shape;
      image_.image.planes.assign(stored.bytes, stored.bytes + stored.shape.count());
    }
    POSEIDON_RETURN_IF_ERROR(ReadObjects());
    POSEIDON_ASSIGN_OR_RETURN(const ImageShape shape,
                              records_->transform().Apply(where_, records_->options().draw, number_, &image_, &pixels_));
    *sample = {.shape = shape, .floats = pixels_.data(), .label = stored.label};
    if (records_->options().boxes) sample->boxes = &image_.objects;
    return OkStatus();
  }
  const std::string& where() const override { return where_; }
  bool compressed() const override { return true; }  // what is done to the pixels takes as long

 private:
  Status ReadObjects() {
    image_.objects.clear();
    if (datum_.has_type() && !records_->options().boxes) return DataLoss(where_ + " has boxes, expected none, as the first record of the database");
    for (const AnnotationGroup& group : datum_.annotation_group()) {
      for (const Annotation& annotation : group.annotation()) {
        const NormalizedBBox& box = annotation.bbox();
        for (const float side : {box.xmin(), box.ymin(), box.xmax(), box.ymax()}) {
          if (!std::isfinite(side)) {
            return DataLoss(where_ + " is corrupt: a box of label " + std::to_string(group.group_label()) + " has the side " +
                            std::to_string(side) + ", expected a part of the image");
          }
        }
        image_.objects.push_back({.box = {box.xmin(), box.ymin(), box.xmax(), box.ymax()},
                                  .label = group.group_label(),
                                  .instance = annotation.instance_id(),
                                  .difficult = box.difficult()});
      }
    }
    return OkStatus();
  }

  AnnotatedRecords* const records_;
  std::uint64_t number_ = 0;
  AnnotatedDatum datum_;
  ObjectImage image_;
  std::vector<float> pixels_;
  std::string where_;
};

std::unique_ptr<SampleReader> AnnotatedRecords::MakeReader() { return std::make_unique<AnnotatedReader>(this); }

}  // namespace

Result<AnnotatedSamples> OpenAnnotatedSamples(AnnotatedSamplesOptions options, ObjectTransform transform) {
  POSEIDON_ASSIGN_OR_RETURN(auto records, OpenRecords(options.database, options.path));
  auto samples = std::make_unique<AnnotatedRecords>(std::move(records), std::move(options), std::move(transform));
  POSEIDON_RETURN_IF_ERROR(samples->Begin());
  const bool boxes = samples->options().boxes;
  return AnnotatedSamples{.samples = std::move(samples), .boxes = boxes};
}

}  // namespace poseidon::caffe
