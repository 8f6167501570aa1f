// SPDX-License-Identifier: Apache-2.0
// `poseidon convert-mnist`: IDX files (also gzipped) to an LMDB of Datums.
#include <iostream>
#include <memory>

#include "frontends/caffe/data/convert_mnist.h"
#include "tools/console/fail.h"
#include "tools/console/values.h"
#include "tools/train/commands.h"

namespace poseidon::tools {

void AddConvertMnist(CLI::App& app) {
  struct Flags {
    std::string images, labels, database;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand("convert-mnist", "Convert files like MNIST's (IDX) to LMDB");
  c->footer("  poseidon convert-mnist images.gz labels.gz train-lmdb");
  c->add_option("images", flags->images, "IDX file of the images, also .gz")->required()->check(InputFile());
  c->add_option("labels", flags->labels, "IDX file of the labels, also .gz")->required()->check(InputFile());
  c->add_option("database", flags->database, "LMDB folder to make")->required();
  c->callback([flags] {
    const Result<std::uint64_t> count =
        caffe::ConvertMnist(flags->images, flags->labels, flags->database);
    if (!count.ok()) Fail(count.status().message());
    std::cout << *count << " images in " << flags->database << std::endl;
  });
}

}  // namespace poseidon::tools
