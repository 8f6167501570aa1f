// SPDX-License-Identifier: Apache-2.0
// `poseidon convert_cifar_data`: CIFAR-10's binary files to two databases, as Caffe's example of that name.
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "frontends/caffe/data/convert_cifar.h"
#include "tools/console/fail.h"
#include "tools/console/values.h"
#include "tools/train/commands.h"
#include "tools/train/database_flags.h"

namespace poseidon::tools {
namespace {

namespace fs = std::filesystem;

struct CifarFlags {
  std::string input, output, kind;
};

void Convert(const std::vector<std::string>& files, const fs::path& database, const std::string& kind) {
  const std::uint64_t count = OrFail(caffe::ConvertCifar(files, database.string(), BackendOf(kind)));
  std::cout << count << " images in " << database.string() << std::endl;
}

void ConvertBoth(const CifarFlags& flags) {
  const fs::path input = flags.input, output = flags.output;
  std::vector<std::string> batches;
  for (int i = 1; i <= 5; ++i) batches.push_back((input / ("data_batch_" + std::to_string(i) + ".bin")).string());
  std::cout << "Writing Training data" << std::endl;
  Convert(batches, output / ("cifar10_train_" + flags.kind), flags.kind);
  std::cout << "Writing Testing data" << std::endl;
  Convert({(input / "test_batch.bin").string()}, output / ("cifar10_test_" + flags.kind), flags.kind);
}

}  // namespace

void AddConvertCifarData(CLI::App& app) {
  auto flags = std::make_shared<CifarFlags>();
  CLI::App* c = app.add_subcommand("convert_cifar_data", "Convert CIFAR-10's binary files to a database for training and one for tests");
  c->footer("  poseidon convert_cifar_data cifar-10-batches-bin . lmdb");
  c->add_option("input_folder", flags->input, "Folder with data_batch_1.bin to data_batch_5.bin and test_batch.bin")->required();
  c->add_option("output_folder", flags->output, "Folder for cifar10_train_KIND and cifar10_test_KIND")->required();
  c->add_option("db_type", flags->kind, "Kind of the databases")->required()->check(OneOf({"lmdb", "leveldb"}));
  c->callback([flags] { ConvertBoth(*flags); });
}

}  // namespace poseidon::tools
