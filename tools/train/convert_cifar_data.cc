// SPDX-License-Identifier: Apache-2.0
// `poseidon convert_cifar_data`: CIFAR-10's binary files to two databases, as Caffe's example of that name.
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
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

void Say(std::uint64_t images, const fs::path& database) { std::cout << images << " images in " << database.string() << std::endl; }

void ConvertBoth(const CifarFlags& flags) {
  const fs::path input = flags.input, output = flags.output;
  const fs::path train = output / ("cifar10_train_" + flags.kind), test = output / ("cifar10_test_" + flags.kind);
  const caffe::Database kind = BackendOf(flags.kind);
  std::vector<std::string> batches;
  for (int i = 1; i <= 5; ++i) batches.push_back((input / ("data_batch_" + std::to_string(i) + ".bin")).string());
  std::cout << "Writing Training data" << std::endl;
  Say(OrFail(caffe::ConvertCifar(batches, train.string(), kind)), train);
  std::cout << "Writing Testing data" << std::endl;
  const auto tests = caffe::ConvertCifar({(input / "test_batch.bin").string()}, test.string(), kind);
  if (!tests.ok()) {  // one of the two would be in the way of another try
    std::error_code error;
    fs::remove_all(train, error);
  }
  Say(OrFail(tests), test);
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
