// SPDX-License-Identifier: Apache-2.0
// `poseidon compute_image_mean`: the mean image of a database, as Caffe's tool of that name.
#include <iostream>
#include <memory>
#include <string>

#include "frontends/caffe/data/image_mean.h"
#include "frontends/caffe/proto/read.h"
#include "tools/console/fail.h"
#include "tools/console/values.h"
#include "tools/train/commands.h"
#include "tools/train/database_flags.h"

namespace poseidon::tools {
namespace {

struct MeanFlags {
  std::string database, output, backend, place;
};

void ComputeMean(const MeanFlags& flags) {
  const std::string backend = flags.backend.empty() ? flags.place : flags.backend;
  const std::unique_ptr<caffe::RecordSource> records = OpenDatabase(flags.database, backend);
  const auto say = [](std::uint64_t count) { std::cout << "Processed " << count << " files." << std::endl; };
  std::cout << "Starting iteration" << std::endl;
  const caffe::ImageMean mean = OrFail(caffe::ComputeImageMean(records.get(), say));
  if (mean.records % 10'000 != 0) say(mean.records);
  if (!flags.output.empty()) {
    std::cout << "Write to " << flags.output << "\n";
    OrFail(caffe::WriteBinaryFile(mean.image, flags.output));
  }
  std::cout << "Number of channels: " << mean.channels.size() << "\n";
  for (std::size_t c = 0; c < mean.channels.size(); ++c) {
    std::cout << "mean_value channel [" << c << "]: " << mean.channels[c] << "\n";
  }
  std::cout << std::flush;
}

}  // namespace

void AddComputeImageMean(CLI::App& app) {
  auto flags = std::make_shared<MeanFlags>();
  CLI::App* c = app.add_subcommand("compute_image_mean", "Compute the mean image of a database");
  c->footer("  poseidon compute_image_mean train_lmdb mean.binaryproto");
  c->add_option("input_db", flags->database, "LMDB or LevelDB of images of one size")->required();
  c->add_option("output_file", flags->output, "File for the mean, a binary BlobProto")->check(OutputFile());
  c->add_option("kind", flags->place, "Instead of --backend: lmdb or leveldb")->check(OneOf({"lmdb", "leveldb"}));
  AddReadBackendFlag(*c, flags->backend);
  c->callback([flags] { ComputeMean(*flags); });
}

}  // namespace poseidon::tools
