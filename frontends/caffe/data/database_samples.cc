// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/data/database_samples.h"

#include <utility>

namespace poseidon::caffe {
namespace {

class DatabaseReader final : public SampleReader {
 public:
  DatabaseReader(RecordSource* records, const std::string* name, Channels channels)
      : records_(records), name_(name), decoder_(channels) {}

  Status Fetch(std::uint64_t number) override {
    const std::uint64_t position = number % records_->size();
    POSEIDON_ASSIGN_OR_RETURN(const Record record, records_->At(position));
    where_ = *name_ + ": record " + std::to_string(position) + " (key " + std::string(record.key.substr(0, 64)) + ")";
    return decoder_.Parse(record, where_);
  }
  Status Decode(Sample* sample) override { return decoder_.Decode(where_, sample); }
  const std::string& where() const override { return where_; }
  bool compressed() const override { return decoder_.compressed(); }

 private:
  RecordSource* const records_;
  const std::string* const name_;
  SampleDecoder decoder_;
  std::string where_;
};

class DatabaseSamples final : public SampleSource {
 public:
  DatabaseSamples(std::unique_ptr<RecordSource> records, Channels channels)
      : records_(std::move(records)), channels_(channels), name_("database " + records_->path()) {}

  const std::string& name() const override { return name_; }
  std::unique_ptr<SampleReader> MakeReader() override {
    return std::make_unique<DatabaseReader>(records_.get(), &name_, channels_);
  }
  std::string OriginOf(std::uint64_t number) const override {
    return "record " + std::to_string(number % records_->size()) + " of " + records_->path() + ", counted from 0 in the order of keys";
  }

 private:
  const std::unique_ptr<RecordSource> records_;
  const Channels channels_;
  const std::string name_;
};

}  // namespace

Result<std::unique_ptr<SampleSource>> OpenDatabaseSamples(Database database, const std::string& path, Channels channels) {
  POSEIDON_ASSIGN_OR_RETURN(auto records, OpenRecords(database, path));
  return std::unique_ptr<SampleSource>(std::make_unique<DatabaseSamples>(std::move(records), channels));
}

}  // namespace poseidon::caffe
