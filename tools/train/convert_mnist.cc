// SPDX-License-Identifier: Apache-2.0
// `poseidon convert-mnist` and `convert_mnist_data`, Caffe's name: IDX files (also gzipped) to a database of Datums.
#include <iostream>
#include <memory>

#include "frontends/caffe/data/convert_mnist.h"
#include "tools/console/fail.h"
#include "tools/console/values.h"
#include "tools/train/commands.h"
#include "tools/train/database_flags.h"

namespace poseidon::tools {

void AddConvertMnist(CLI::App& app) {
  struct Flags {
    std::string images, labels, database, backend;
  };
  for (const std::string name : {"convert-mnist", "convert_mnist_data"}) {
    auto flags = std::make_shared<Flags>();
    CLI::App* c = app.add_subcommand(name, "Convert files like MNIST's (IDX) to a database");
    c->footer("  poseidon " + name + " images.gz labels.gz train-lmdb");
    c->add_option("images", flags->images, "IDX file of the images, also .gz")->required()->check(InputFile());
    c->add_option("labels", flags->labels, "IDX file of the labels, also .gz")->required()->check(InputFile());
    c->add_option("database", flags->database, "Folder of the database to make")->required();
    AddBackendFlag(*c, flags->backend);
    const bool as_caffe = name == "convert_mnist_data";
    c->callback([flags, as_caffe] {
      const std::uint64_t count =
          OrFail(caffe::ConvertMnist(flags->images, flags->labels, flags->database, BackendOf(flags->backend)));
      if (as_caffe) std::cout << "Processed " << count << " files." << std::endl;
      else std::cout << count << " images in " << flags->database << std::endl;
    });
  }
}

}  // namespace poseidon::tools
