// SPDX-License-Identifier: Apache-2.0
// `poseidon extract_features`: blobs of a net, over batches of its data, into databases. Caffe's positional command line and
// Poseidon-Caffe's flags.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "frontends/caffe/data/database_writer.h"
#include "frontends/caffe/solver/features.h"
#include "frontends/caffe/train/job_options.h"
#include "tools/console/fail.h"
#include "tools/console/shared_flags.h"
#include "tools/console/values.h"
#include "tools/train/commands.h"
#include "tools/train/database_flags.h"
#include "tools/train/net_flags.h"
#include "tools/train/packed_strings.h"
#include "tools/train/shared_work.h"

namespace poseidon::tools {
namespace {

constexpr const char* kFeatureUsage =
    "expected PRETRAINED PROTO BLOB[,BLOB...] DATABASE[,DATABASE...] NUM_BATCHES DB_TYPE [CPU], or --model, --weights, "
    "--extract_feature_blob_names and --save_feature_leveldb_names";

struct FeatureFlags {
  std::vector<std::string> places;
  std::string model, weights, blobs, databases, gpu;
  int batches = 1, workers = 1, threads = 0;
};

struct Extraction {
  NetFlags net;
  std::vector<std::string> blobs, databases;
  caffe::Database backend = caffe::Database::kLmdb;
  caffe::FeatureForm form = caffe::FeatureForm::kCaffe;
  int workers = 1;
};

void RefuseUnlessFits(const CLI::Validator& check, const char* what, const std::string& value) {
  if (const std::string why = check(value); !why.empty()) FailUsage(std::string(what) + ": " + why);
}

Extraction FromPlaces(const FeatureFlags& flags) {
  const std::vector<std::string>& places = flags.places;
  if (places.size() < 6 || places.size() > 8 || !flags.model.empty() || !flags.weights.empty()) FailUsage(kFeatureUsage);
  RefuseUnlessFits(SnapshotFiles(), "pretrained", places[0]);
  RefuseUnlessFits(InputFile(), "proto", places[1]);
  RefuseUnlessFits(WholeNumber(1, 1 << 30), "num_batches", places[4]);
  RefuseUnlessFits(OneOf({"lmdb", "leveldb"}), "db_type", places[5]);
  Extraction made;
  if (places.size() > 6 && places[6] != "CPU") made.net.gpu = places.size() > 7 ? places[7] : "0";
  made.net.weights = places[0];
  made.net.model = places[1];
  made.net.iterations = std::stoi(places[4]);
  made.blobs = CommaParts(places[2]);
  made.databases = CommaParts(places[3]);
  made.backend = BackendOf(places[5]);
  return made;
}

// Of a job of one client with one thread, whose numbers are behind the names.
Extraction FromFlags(const FeatureFlags& flags) {
  if (flags.model.empty() || flags.weights.empty()) FailUsage(kFeatureUsage);
  Extraction made;
  if (!flags.gpu.starts_with('-')) made.net.gpu = flags.gpu;
  made.net.weights = flags.weights;
  made.net.model = flags.model;
  made.net.iterations = flags.batches;
  made.blobs = CommaParts(flags.blobs);
  for (const std::string& name : CommaParts(flags.databases)) made.databases.push_back(name + "_0_0");
  made.backend = caffe::Database::kLevelDb;
  made.form = caffe::FeatureForm::kPoseidon;
  return made;
}

Extraction ReadExtraction(const FeatureFlags& flags) {
  Extraction made = flags.places.empty() ? FromFlags(flags) : FromPlaces(flags);
  if (made.blobs.empty() || made.blobs.size() != made.databases.size()) {
    FailUsage("there are " + std::to_string(made.blobs.size()) + " names of blobs and " + std::to_string(made.databases.size()) +
              " of databases, expected as many of both");
  }
  made.workers = std::min(flags.workers, made.net.iterations);
  // Processes that are forked from one that has looked for GPUs cannot use them.
  if (!made.net.gpu.empty() && made.workers == 1) OrFailUsage(caffe::GpusIn(made.net.gpu).status());
  made.net.phase = "TEST";
  made.net.threads = flags.threads;
  if (made.net.threads == 0) made.net.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / made.workers);
  return made;
}

// What makes the features of a batch: for each blob the number of its rows, then the rows.
Result<SharedWork::MakeItem> BeginExtraction(const Extraction& what, int rank) {
  caffe::NetOptions options;
  options.share = {.rank = rank, .world = what.workers};
  if (!what.net.gpu.empty()) {
    POSEIDON_ASSIGN_OR_RETURN(options.placement, caffe::GpuOf(what.net.gpu, rank));
  }
  POSEIDON_ASSIGN_OR_RETURN(std::shared_ptr<caffe::Net> net, TryBuildNet(what.net, options));
  POSEIDON_ASSIGN_OR_RETURN(const std::string words, TryLoadWeights(what.net, net.get()));
  if (rank == 0 && !words.empty()) std::cerr << "poseidon: " << words << std::endl;
  for (const std::string& blob : what.blobs) {
    if (net->blob(blob) == nullptr) return InvalidArgument("unknown feature blob name " + blob + " in the network " + what.net.model);
  }
  return SharedWork::MakeItem([net, &what](std::uint64_t batch) -> Result<std::string> {
    net->BeginPass({.step = batch, .pass = 0, .batch = batch});
    POSEIDON_RETURN_IF_ERROR(net->Forward().status());
    std::vector<std::vector<std::string>> all;
    for (const std::string& blob : what.blobs) {
      POSEIDON_ASSIGN_OR_RETURN(auto rows, caffe::FeaturesOf(*net, blob, what.form));
      all.push_back(std::move(rows));
    }
    return Packed(all);
  });
}

// The databases, and how many rows each has.
class Outputs {
 public:
  explicit Outputs(const Extraction& what) : what_(what), rows_(what.blobs.size()) {}

  Status Open() {
    for (const std::string& path : what_.databases) {
      POSEIDON_ASSIGN_OR_RETURN(auto writer, caffe::DatabaseWriter::Create(what_.backend, path, 0));
      writers_.push_back(std::move(writer));
    }
    return OkStatus();
  }

  Status Add(std::string_view batch) {
    Unpacker unpacker(batch);
    for (std::size_t i = 0; i < writers_.size(); ++i) {
      for (std::uint64_t rows = unpacker.Number(); rows > 0; --rows) {
        char key[24];
        std::snprintf(key, sizeof key, "%010llu", static_cast<unsigned long long>(rows_[i]));
        POSEIDON_RETURN_IF_ERROR(writers_[i]->Put(key, unpacker.String()));
        if (++rows_[i] % 1000 == 0) Say(i);
      }
    }
    return OkStatus();
  }

  Status Finish() {
    for (std::size_t i = 0; i < writers_.size(); ++i) {
      POSEIDON_RETURN_IF_ERROR(writers_[i]->Finish());
      Say(i);
    }
    return OkStatus();
  }

 private:
  void Say(std::size_t i) const {
    std::cout << "Extracted features of " << rows_[i] << " query images for feature blob " << what_.blobs[i] << std::endl;
  }

  const Extraction& what_;
  std::vector<std::unique_ptr<caffe::DatabaseWriter>> writers_;
  std::vector<std::uint64_t> rows_;
};

Status Extract(const Extraction& what) {
  Outputs outputs(what);
  SharedWork work{.workers = what.workers, .items = static_cast<std::uint64_t>(what.net.iterations)};
  work.begin = [&what](int rank) { return BeginExtraction(what, rank); };
  work.take = [&outputs](std::uint64_t, std::string_view bytes) { return outputs.Add(bytes); };
  POSEIDON_RETURN_IF_ERROR(outputs.Open());
  POSEIDON_RETURN_IF_ERROR(RunShared(work));
  return outputs.Finish();
}

}  // namespace

void AddExtractFeatures(CLI::App& app) {
  auto flags = std::make_shared<FeatureFlags>();
  CLI::App* c = app.add_subcommand("extract_features", "Write blobs of a trained net, over batches of its data, into databases");
  c->footer("  poseidon extract_features net.caffemodel net.prototxt fc7 features 10 lmdb\n"
            "  poseidon extract_features --model net.prototxt --weights net.caffemodel \\\n"
            "    --extract_feature_blob_names fc7 --save_feature_leveldb_names features");
  c->add_option("places", flags->places, "PRETRAINED PROTO BLOB[,BLOB...] DATABASE[,DATABASE...] NUM_BATCHES DB_TYPE [CPU|GPU [DEVICE_ID]]");
  c->add_option("--model", flags->model, "Net with a data layer for phase TEST")->type_name("PROTOTXT")->check(InputFile());
  c->add_option("--weights", flags->weights, "Trained .caffemodel or .caffemodel.h5")->type_name("FILE")->check(SnapshotFiles());
  c->add_option("--extract_feature_blob_names", flags->blobs, "Blobs")->type_name("NAME[,NAME...]");
  c->add_option("--save_feature_leveldb_names", flags->databases, "LevelDBs to make, a name for each blob; _0_0 comes behind it")->type_name("PATH[,PATH...]");
  c->add_option("--num_mini_batches", flags->batches, "Number of batches")->type_name("N")->check(WholeNumber(1, 1 << 30));
  c->add_option("--workers", flags->workers, "Processes that share the batches")->type_name("N")->check(WholeNumber(1, 1024));
  AddGpuFlag(*c, flags->gpu);
  AddThreadsFlag(*c, flags->threads);
  c->callback([flags] {
    const Extraction what = ReadExtraction(*flags);
    std::cout << "Using " << (what.net.gpu.empty() ? "CPU" : "GPU " + what.net.gpu) << "\nExtracting Features" << std::endl;
    if (const Status done = Extract(what); !done.ok()) Fail(done.message());
    std::cout << "Successfully extracted the features!" << std::endl;
  });
}

}  // namespace poseidon::tools
